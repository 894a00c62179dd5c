package httpapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/simple-event-broker/seb"
)

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// logLines is a log that is safe for concurrent use.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logLines) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestUnknownRoutesAndMethods(t *testing.T) {
	s := newServerWith(t, 1)
	for _, path := range []string{"/", "/v1", "/v1/topic", "/v1/topics/", "/v1/topics/orders/", "/v1/topics/orders/records/0/x", "/metrics"} {
		p := s.get(path).wantProblem(t, http.StatusNotFound, codeRouteNotFound)
		if p.Hint == "" {
			t.Errorf("%s: no hint", path)
		}
	}
	for _, c := range []struct{ method, path, allow string }{
		{"OPTIONS", ordersPath, "DELETE, GET, HEAD, POST"},
		{"POST", "/v1/topics", "GET, HEAD"},
		{"POST", "/v1/topics/orders", "DELETE, GET, HEAD, PATCH, PUT"},
		{"PUT", ordersPath, "DELETE, GET, HEAD, POST"},
		{"PUT", ordersPath + "/0", "GET, HEAD"},
		{"BREW", "/v1/version", "GET, HEAD"},
		{"OPTIONS", "/livez", "GET, HEAD"},
	} {
		a := s.do(c.method, c.path, nil)
		a.wantProblem(t, http.StatusMethodNotAllowed, codeMethodNotAllowed)
		a.wantHeader(t, "Allow", c.allow)
	}
}

// If a name was left out of a path, the cleaned path would name another topic.
func TestPathsWithAnEmptyPartAreNotCleaned(t *testing.T) {
	s := newServerWith(t, 1)
	s.append("records", "a topic of that name")
	for _, path := range []string{
		"//", "//v1/topics", "/v1//topics", "/v1/topics//records", "/v1/topics//", "/v1/topics//orders", "/v1/./topics", "/v1/topics/.", "/v1/topics/..",
		"/v1/topics/orders/../records", "/..//livez",
	} {
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS"} {
			a := s.do(method, path, strings.NewReader("x"))
			if p := a.wantProblem(t, http.StatusNotFound, codeRouteNotFound); !strings.Contains(p.Hint, "is a name missing?") {
				t.Errorf("%s %s: the hint is %q", method, path, p.Hint)
			}
		}
	}
	s.get("/v1/topics/%2e%2e/records").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidTopicName)
	s.get("/v1/topics/a%2f%2fb").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidTopicName)
	s.get("/v1/topics/%6frders/records").want(t, http.StatusOK)
	s.get("//record?topic-name=orders&offset=0").want(t, http.StatusOK) // served after a redirect, as by the original
	for topic, want := range map[string]int{"records": 1, "orders": 1} {
		if got := len(s.stored(topic, 0)); got != want {
			t.Errorf("topic %s holds %d records", topic, got)
		}
	}
}

func TestLongNamesAreNotRepeatedWhole(t *testing.T) {
	s := newServerWith(t, 1)
	long := strings.Repeat("x", 20_000)
	for _, a := range []answer{s.get("/v1/topics/" + long), s.get("/" + long), s.get("/v1/topics?" + long + "=1"), s.do("PUT", "/v1/topics/orders/records/"+long, nil)} {
		if a.StatusCode < 400 || len(a.body) > 1000 {
			t.Errorf("status %d with %d bytes", a.StatusCode, len(a.body))
		}
	}
}

func TestMetricsKnowOneParameter(t *testing.T) {
	metrics := prometheus.NewRegistry()
	s := newServer(t, seb.Options{}, Options{Registerer: metrics, Gatherer: metrics})
	s.get("/metrics?name=x").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	s.get("/metrics", "Seb-Key", "x").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	a := s.get("/metrics?name[]=seb_http_events_total&name[]=seb_http_event_streams")
	a.want(t, http.StatusOK)
	if n := strings.Count(a.body, "# TYPE"); n != 2 {
		t.Errorf("%d metrics:\n%s", n, a.body)
	}
}

func TestHeadIsGetWithoutBody(t *testing.T) {
	s := newServerWith(t, 2)
	for _, path := range []string{"/v1/topics", "/v1/topics/orders", ordersPath, ordersPath + "/1", "/livez", "/readyz", "/v1/version"} {
		get, head := s.get(path), s.do("HEAD", path, nil)
		head.want(t, get.StatusCode)
		if head.body != "" || head.Header.Get("Content-Type") != get.Header.Get("Content-Type") || head.Header.Get("Seb-Next-Offset") != get.Header.Get("Seb-Next-Offset") {
			t.Errorf("HEAD %s: %q %v, GET has %v", path, head.body, head.Header, get.Header)
		}
	}
	if a := s.do("HEAD", "/v1/topics/none", nil); a.StatusCode != http.StatusNotFound || a.body != "" {
		t.Errorf("HEAD of nothing: %d %q", a.StatusCode, a.body)
	}
}

func TestRequestID(t *testing.T) {
	s := newServerWith(t, 1)
	for given, kept := range map[string]bool{
		"req-1.A_z": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "a b": false, "a\"b": false, "é": false,
	} {
		got := s.get("/livez", requestIDHeader, given).Header.Get(requestIDHeader)
		if (got == given) != kept || got == "" {
			t.Errorf("request id %q became %q", given, got)
		}
	}
	first, second := s.get("/livez"), s.get("/livez")
	if first.Header.Get(requestIDHeader) == second.Header.Get(requestIDHeader) {
		t.Error("two requests have the same id")
	}
}

func TestTraceID(t *testing.T) {
	const id, rest = "4bf92f3577b34da6a3ce929d0e0e4736", "-00f067aa0ba902b7-01"
	for parent, want := range map[string]string{
		"00-" + id + rest:                      id,
		"01-" + id + rest + "-more":            id,
		"00-" + id + rest + "-more":            "",
		"ff-" + id + rest:                      "",
		"00-" + strings.Repeat("0", 32) + rest: "",
		"00-" + strings.ToUpper(id) + rest:     "",
		"00-" + id:                             "",
		"":                                     "",
	} {
		if got := traceID(parent); got != want {
			t.Errorf("traceID(%q) = %q, want %q", parent, got, want)
		}
	}
}

func TestAccessLog(t *testing.T) {
	var log logLines
	s := newServer(t, seb.Options{}, Options{Logger: log.logger()})
	const secret = "do-not-log-this"
	s.append("orders", secret, "Authorization", "Bearer "+secret, requestIDHeader, "id-1",
		"Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	s.post(ordersPath+"?key="+secret+"&nope=1", secret, requestIDHeader, "id-2")
	s.stop() // waits until all handlers have written their log lines
	var got []map[string]any
	for l := range strings.Lines(log.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
	}
	if len(got) != 2 {
		t.Fatalf("log is %s", log.String())
	}
	for name, want := range map[string]any{
		"level": "DEBUG", "request_id": "id-1", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "method": "POST",
		"path": ordersPath, "status": 201.0, "bytes_in": float64(len(secret)),
	} {
		if got[0][name] != want {
			t.Errorf("%s is %v, want %v", name, got[0][name], want)
		}
	}
	if got[1]["level"] != "INFO" || got[1]["request_id"] != "id-2" || !strings.Contains(got[1]["error"].(string), "nope") {
		t.Errorf("line of a refusal is %v", got[1])
	}
	if strings.Contains(log.String(), secret) {
		t.Errorf("the log has a secret: %s", log.String())
	}
}

// A read commits nothing, so neither the answer nor the log has an outcome.
func TestRefusedReadHasNoOutcomeInTheLog(t *testing.T) {
	var log logLines
	s := newServer(t, seb.Options{}, Options{Logger: log.logger()})
	s.get(ordersPath + "?nope=1")
	s.post(ordersPath+"?nope=1", "x")
	s.stop()
	if got := log.String(); strings.Count(got, "outcome") != 1 || strings.Count(got, "nope") != 2 {
		t.Errorf("the log is\n%s", got)
	}
}

func TestPanicBecomesAProblem(t *testing.T) {
	var log logLines
	s := newServer(t, seb.Options{}, Options{Logger: log.logger()})
	s.handler.route("/panic", methods{"GET": {needsNothing, func(*response, *http.Request) error { panic("the secret of the panic") }}})
	s.handler.route("/late", methods{"GET": {needsNothing, func(w *response, _ *http.Request) error {
		w.Header().Set("Content-Length", "10")
		if _, err := w.Write([]byte("half")); err != nil {
			return err
		}
		panic("late")
	}}})
	a := s.get("/panic", requestIDHeader, "id-1")
	a.wantProblem(t, http.StatusInternalServerError, codeInternal)
	if strings.Contains(a.body, "secret") {
		t.Errorf("the client sees the panic: %s", a.body)
	}
	if l := log.String(); !strings.Contains(l, "the secret of the panic") || !strings.Contains(l, `"id-1"`) || !strings.Contains(l, "response_test.go") {
		t.Errorf("the log lacks the panic, its request or its stack: %s", l)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/late", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := s.client.Do(req); err == nil {
		defer resp.Body.Close()
		if _, err := bytes.NewBuffer(nil).ReadFrom(resp.Body); err == nil {
			t.Error("half an answer looks whole")
		}
	}
	s.get("/livez").want(t, http.StatusOK)
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := newServer(t, seb.Options{}, Options{Registerer: reg, Gatherer: reg})
	s.append("orders", "12345")
	s.get("/v1/topics/none")
	s.get("/nowhere/at/all")
	s.do("BREW", "/livez", nil)
	s.get(ordersPath + "/0")
	a := s.get("/metrics")
	a.want(t, http.StatusOK)
	for _, want := range []string{
		`seb_http_requests_total{code="201",method="POST",route="/v1/topics/{topic}/records"} 1`,
		`seb_http_requests_total{code="404",method="GET",route="/v1/topics/{topic}"} 1`,
		`seb_http_requests_total{code="404",method="GET",route="unmatched"} 1`,
		`seb_http_requests_total{code="405",method="other",route="/livez"} 1`,
		`seb_http_request_duration_seconds_count{method="POST",route="/v1/topics/{topic}/records"} 1`,
		`seb_http_request_bytes_total{route="/v1/topics/{topic}/records"} 5`,
		`seb_http_response_bytes_total{route="/v1/topics/{topic}/records/{offset}"} 5`,
		`seb_http_requests_in_flight 1`,
	} {
		if !strings.Contains(a.body, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	if strings.Contains(a.body, "nowhere") || strings.Contains(a.body, "BREW") {
		t.Error("clients can make series")
	}
}

// A Seb- header that has no effect is refused: its sender expects an effect.
func TestSebHeadersThatDoNothingAreRefused(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{Gatherer: prometheus.NewRegistry()})
	s.append("orders", "x")
	for pattern, m := range s.handler.declared {
		for method := range m {
			if slices.Contains(originalPaths, pattern) {
				continue // the original's paths ignore all headers
			}
			for _, name := range []string{"Seb-Surprise", "Seb-Next-Offset", "seb-delay"} {
				p := s.do(method, example(pattern), nil, name, "1").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
				if !strings.Contains(p.Detail, http.CanonicalHeaderKey(name)) {
					t.Errorf("%s %s: the problem is %+v", method, pattern, p)
				}
			}
		}
	}
	s.get(ordersPath, keyHeader, "k").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	s.get(ordersPath, "Accept", typeEvents, keyHeader, "k").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
}

// net/http would answer OPTIONS * itself, without the headers that all answers have. Its answers to
// requests that it can't parse can't have these headers, so they must not repeat the request.
func TestAnswersToWhatHasNoPath(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	ask := func(request string) (status int, header http.Header, body string) {
		t.Helper()
		conn, err := s.connect()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, string(text)
	}
	status, header, body := ask("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if status != http.StatusOK || body != "" || header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("OPTIONS *: %d %v %q", status, header, body)
	}
	const mark = "<b>mark</b>"
	for _, request := range []string{
		mark + "\r\n\r\n", "GET " + mark + "\r\n\r\n", "GET / " + mark + "\r\n\r\n", "GET /%zz" + mark + " HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET / HTTP/1.1\r\n" + mark + ": x\r\nHost: localhost\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: " + mark + "\r\n\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\nX: \x01" + mark + "\r\n\r\n", "GET / HTTP/9.9\r\nHost: " + mark + "\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " + mark + "\r\n\r\n", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + mark + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + mark + strings.Repeat("x", 2*headerBytesMax) + "\r\n\r\n",
	} {
		status, header, body := ask(request)
		if status < 400 || strings.Contains(body, "mark") || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
			t.Errorf("%.60q: %d %v %q", request, status, header, body)
		}
	}
}
