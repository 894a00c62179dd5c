package httpapi

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// checkedBytesMax is the largest body whose JSON is checked. Larger bodies in tests just
// repeat the same records.
const checkedBytesMax = 256 << 10

// conforms checks that a matches its description in openapi.yaml.
func (d *document) conforms(h *Handler, a answer) error {
	_, pattern := h.mux.Handler(a.Request)
	if !isClean(a.Request.URL) {
		pattern = unmatched // the original's paths are an exception: the mux redirects them
	}
	pattern = routeName(pattern)
	if a.Request.Method == http.MethodOptions && a.StatusCode == http.StatusNoContent {
		return nil // the answer to a preflight
	}
	want, err := d.answerTo(a.Request.Method, pattern, a.StatusCode)
	if err != nil {
		return err
	}
	if err := checkHeaders(want, a.Header); err != nil {
		return err
	}
	if err := d.checkBody(want, a); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[fmt.Sprintf("%s %s %d", a.Request.Method, pattern, a.StatusCode)] = true
	return nil
}

// checkHeaders checks that required headers are present, and that Seb- headers, and other headers that
// programs use, are described. Seb-Header- headers are exempt, since a record's headers can have any name, and so is
// the warning about a key that was not checked: any response can have it, so the description of the whole API
// tells of it.
func checkHeaders(want answerAt, got http.Header) error {
	for name, h := range want.Headers {
		unless, conditional := h.Value.Extensions["x-required-unless"]
		required := h.Value.Required || conditional && unless != got.Get("Content-Type")
		if required && got.Get(name) == "" {
			return fmt.Errorf("the header %s is not there", name)
		}
	}
	for name := range got {
		described := func(n string) bool { return http.CanonicalHeaderKey(n) == name }
		telling := strings.HasPrefix(name, "Seb-") && !strings.HasPrefix(name, headerPrefix)
		if !telling && !slices.Contains([]string{"Idempotency-Replayed", "Www-Authenticate", "Retry-After", "Allow"}, name) {
			continue
		}
		if name == warningHeader && slices.Equal(got[name], []string{uncheckedWarning}) {
			continue
		}
		if !slices.ContainsFunc(headerNames(want.Response), described) {
			return fmt.Errorf("the header %s is not described", name)
		}
	}
	return nil
}

func headerNames(a *openapi3.Response) []string {
	var names []string
	for name := range a.Headers {
		names = append(names, name)
	}
	return names
}

func (d *document) checkBody(want answerAt, a answer) error {
	if len(want.Content) == 0 {
		if a.body != "" {
			return errors.New("a body is not described")
		}
		return nil
	}
	mediaType := a.Header.Get("Content-Type")
	content, pointer := want.media(mediaType)
	switch {
	case content == nil:
		return fmt.Errorf("the Content-Type %q is not described", mediaType)
	case a.Request.Method == http.MethodHead || len(a.body) > checkedBytesMax:
		return nil
	}
	if _, lines := content.Extensions["x-itemSchema"]; lines {
		for line := range strings.Lines(a.body) {
			if err := d.checkJSON(pointer+"/x-itemSchema", line); err != nil {
				return err
			}
		}
		return nil
	}
	if strings.HasPrefix(mediaType, typeJSON) || strings.HasPrefix(mediaType, "application/problem+json") {
		return d.checkJSON(pointer+"/schema", a.body)
	}
	return nil
}

func (d *document) checkJSON(pointer, text string) error {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("%w in %s", err, text)
	}
	if err := d.check(pointer, value); err != nil {
		return fmt.Errorf("%w\nin %s", err, text)
	}
	return nil
}

// wantDescribed checks an answer against openapi.yaml. Every answer that a test reads is checked.
func (s *server) wantDescribed(a answer) {
	s.t.Helper()
	if _, timed := s.t.(*testing.B); timed {
		return
	}
	if err := openDocument(s.t).conforms(s.handler, a); err != nil {
		s.t.Errorf("%s %s, %d: not as openapi.yaml has it: %v", a.Request.Method, a.Request.URL, a.StatusCode, err)
	}
}

// unseen are described answers that no test gets, with the reasons.
var unseen = map[string]string{
	"500":               "what is its own fault a broker can't be asked for",
	"POST /v1/keys 404": "the key would have to be revoked before its creation is answered",
}

// TestMain fails a whole run if any described answer was never given, so that openapi.yaml
// describes only answers that a test has seen.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 && allRan() {
		for _, missing := range neverSeen() {
			fmt.Printf("openapi.yaml describes an answer that no test got: %s\n", missing)
			code = 1
		}
	}
	os.Exit(code)
}

// allRan tells whether all tests ran: no flag selected some.
func allRan() bool {
	for _, name := range []string{"run", "skip", "list", "bench", "fuzz"} {
		if flag.Lookup("test."+name).Value.String() != "" {
			return false
		}
	}
	return !testing.Short()
}

func neverSeen() []string {
	d, err := described()
	if err != nil {
		return []string{err.Error()}
	}
	var missing []string
	for path, item := range d.Paths.Map() {
		for method, op := range item.Operations() {
			for status := range op.Responses.Map() {
				name := method + " " + path + " " + status
				if unseen[status] == "" && unseen[name] == "" && !d.seen[name] {
					missing = append(missing, name)
				}
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// The checks must notice answers that are not described.
func TestOpenAPICheckFindsWhatIsNotDescribed(t *testing.T) {
	s := newServerWith(t, 1)
	d := openDocument(t)
	good := s.get("/v1/topics/orders")
	if err := d.conforms(s.handler, good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(a *answer){
		"another status":     func(a *answer) { a.StatusCode = http.StatusTeapot },
		"another media type": func(a *answer) { a.Header.Set("Content-Type", "text/html") },
		"a missing header":   func(a *answer) { a.Header.Del(requestIDHeader) },
		"a new header":       func(a *answer) { a.Header.Set("Seb-Mood", "fine") },
		"another new header": func(a *answer) { a.Header.Set("Idempotency-Replayed", "true") },
		"a missing field":    func(a *answer) { a.body = strings.Replace(a.body, `"name":"orders",`, "", 1) },
		"a new field":        func(a *answer) { a.body = strings.Replace(a.body, "{", `{"mood":"fine",`, 1) },
		"a new nested field": func(a *answer) { a.body = strings.Replace(a.body, `[{`, `[{"mood":"fine",`, 1) },
		"a field of no type": func(a *answer) { a.body = strings.Replace(a.body, `"orders"`, "7", 1) },
		"an invalid body":    func(a *answer) { a.body = "{" },
	} {
		t.Run(name, func(t *testing.T) {
			header := good.Header.Clone()
			bad := answer{&http.Response{Request: good.Request, StatusCode: good.StatusCode, Header: header}, good.body}
			change(&bad)
			if d.conforms(s.handler, bad) == nil {
				t.Error("the check finds nothing")
			}
		})
	}
	var p problem
	if err := json.Unmarshal([]byte(`{"type":"about:blank","status":404}`), &p); err != nil {
		t.Fatal(err)
	}
	p.Title, p.Detail, p.Code = "Not Found", "no", "topic_exists"
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if d.checkJSON("#/components/responses/NotFound/content/application~1problem+json/schema", string(text)) == nil {
		t.Error("a code of another status passes")
	}
}
