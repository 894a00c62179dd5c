package httpapi

import (
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/simple-event-broker/seb"
)

func TestOpenAPIIsServed(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	a := s.get("/openapi.yaml")
	a.want(t, http.StatusOK)
	a.wantHeader(t, "Content-Type", "application/yaml")
	if a.body != string(openAPI) {
		t.Error("what is served is not the document")
	}
}

// The library checks the rules of OpenAPI 3.1, and the examples, of the document as it is and with x-constraints.
func TestOpenAPIIsValid(t *testing.T) {
	if testing.Short() {
		t.Skip("nothing goes on at once")
	}
	published, err := openapi3.NewLoader().LoadFromData(openAPI)
	if err != nil {
		t.Fatal(err)
	}
	if !published.IsOpenAPI31OrLater() {
		t.Errorf("the document is OpenAPI %s", published.OpenAPI)
	}
	for name, d := range map[string]*openapi3.T{"as it is": published, "with x-constraints": openDocument(t).T} {
		if err := d.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaFormatValidation()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOpenAPIHasEveryRoute(t *testing.T) {
	b := newServer(t, seb.Options{}, Options{}).broker
	served := New(b, Options{Gatherer: prometheus.NewRegistry(), Triggers: refusingTriggers(&b)}).declared
	d := openDocument(t)
	for pattern, m := range served {
		for method := range m {
			if d.operation(method, pattern) == nil {
				t.Errorf("%s %s is served, and not in openapi.yaml", method, pattern)
			}
		}
	}
	for path, item := range d.Paths.Map() {
		for method := range item.Operations() {
			if served[path][method].act == nil {
				t.Errorf("%s %s is in openapi.yaml, and not served", method, path)
			}
		}
	}
}

// The security of an operation and the refusals that it describes match what its route
// declares.
func TestOpenAPISaysWhoNeedsAKey(t *testing.T) {
	b := newServer(t, seb.Options{}, Options{}).broker
	d := openDocument(t)
	for pattern, m := range New(b, Options{Gatherer: prometheus.NewRegistry(), Triggers: refusingTriggers(&b)}).declared {
		for method, s := range m {
			want := []string{}
			if !s.need.nobody {
				want = append(want, "apiKey")
			}
			if s.need.signed {
				want = append(want, "signedURL")
			}
			op := d.operation(method, pattern)
			if op == nil {
				continue // TestOpenAPIHasEveryRoute reports it
			}
			if got := d.credentials(op); !slices.Equal(got, want) {
				t.Errorf("%s %s: the security is %v, want %v", method, pattern, got, want)
			}
			forbids := !s.need.nobody && !s.need.anyKey && !slices.Contains(originalPaths, pattern)
			for status, want := range map[string]bool{"401": !s.need.nobody, "403": forbids} {
				if got := op.Responses.Value(status) != nil; got != want {
					t.Errorf("%s %s: %s is described: %v, want %v", method, pattern, status, got, want)
				}
			}
		}
	}
}

func TestOpenAPIHasEveryCodeUnderItsStatus(t *testing.T) {
	described := map[string]map[string]bool{} // by status, then code
	openDocument(t).each(func(where, status string, a *openapi3.Response) {
		plain := isPlain(a)
		if described[status] == nil {
			described[status] = map[string]bool{}
		}
		if want := problemStatus(a); want != "" && want != status {
			t.Errorf("%s: the answer under %s says that it is %s", where, status, want)
		}
		for _, code := range problemCodes(a) {
			described[status][code] = true
			got := statuses[seb.Code(code)]
			if plain {
				got = originalStatus(problem{Code: seb.Code(code), Status: got})
			}
			if strconv.Itoa(got) != status {
				t.Errorf("%s: %s is under %s; the handler answers it with %d", where, code, status, got)
			}
		}
	})
	for code, status := range statuses {
		if !described[strconv.Itoa(status)][string(code)] {
			t.Errorf("%s is not described under %d", code, status)
		}
	}
}

// HEAD is served wherever GET is.
func TestHeadAnswersAsGetDoes(t *testing.T) {
	s := newServerWith(t, 3)
	paths := []string{"/v1/topics", "/v1/topics/orders", ordersPath, ordersPath + "/1", "/v1/version", "/openapi.yaml", "/livez", "/readyz"}
	for _, path := range paths {
		get, head := s.get(path), s.do("HEAD", path, nil)
		head.want(t, get.StatusCode)
		head.wantHeader(t, "Content-Type", get.Header.Get("Content-Type"))
		if head.body != "" {
			t.Errorf("HEAD %s has a body", path)
		}
	}
	if !slices.Contains(paths, "/openapi.yaml") {
		t.Error("the document is not among them")
	}
}
