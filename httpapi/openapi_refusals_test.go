package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// Some refusals can be provoked in the same way everywhere. The test does so for every operation
// that has them in openapi.yaml.
func TestDescribedRefusals(t *testing.T) {
	small := seb.Options{Limits: seb.Limits{RecordBytes: 1000, RequestBytes: 400_000}}
	for _, c := range []struct {
		name   string
		code   seb.Code
		query  string
		body   string
		header []string
		key    string // "" for a key that may do everything
		before func(s *server)
	}{
		{name: "an unknown parameter", code: seb.CodeInvalidRequest, query: "surprise=1"},
		{name: "a large body", code: seb.CodeRequestTooLarge, body: strings.Repeat(" ", 600_000)},
		{name: "an unknown encoding", code: codeUnsupportedEncoding, body: "{}", header: []string{"Content-Encoding", "br"}},
		{name: "no key", code: seb.CodeUnauthorized, key: "none"},
		{name: "a key for something else", code: seb.CodeForbidden, key: "elsewhere", body: `{"appends":[{"topic":"orders","records":[{"value":"x"}]}]}`},
		{
			name: "too many wrong keys", code: codeTooManyAttempts, key: "wrong",
			before: func(s *server) {
				for range attemptsBurst {
					s.get("/v1/topics", bearer("garbage")...).want(s.t, http.StatusUnauthorized)
				}
			},
		},
		{
			name: "a closed broker", code: seb.CodeBrokerClosed, body: `{"partitions":2}`,
			before: func(s *server) {
				if err := s.broker.Close(); err != nil {
					s.t.Error(err)
				}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b *seb.Broker
			s := newServer(t, small, Options{Gatherer: prometheus.NewRegistry(), Triggers: refusingTriggers(&b)})
			b = s.broker
			s.append("orders", "zero\none\n", "Content-Type", typeNDJSON)
			_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
			_, elsewhere := newKey(t, s.broker, "elsewhere", seb.ScopeWrite, "other")
			shown := map[string][]string{"": bearer(ops), "elsewhere": bearer(elsewhere), "wrong": bearer("garbage")}
			if c.before != nil {
				c.before(s)
			}
			eachDescribed(t, c.code, func(o usualRequest) {
				if c.query != "" {
					if slices.Contains(originalPaths, o.path) {
						return // the original's paths ignore the parameter
					}
					o.target = withQuery(o.target, c.query)
				}
				header := slices.Concat(o.header, c.header, shown[c.key])
				a := s.do(o.method, o.target, strings.NewReader(c.body), header...)
				a.want(t, statuses[c.code])
				if !slices.Contains(originalPaths, o.path) {
					a.wantProblem(t, statuses[c.code], c.code)
				}
			})
		})
	}
}

func withQuery(target, query string) string {
	if strings.Contains(target, "?") {
		return target + "&" + query
	}
	return target + "?" + query
}

func TestDescribedMemoryBudget(t *testing.T) {
	var b *seb.Broker
	opts := Options{Gatherer: prometheus.NewRegistry(), Triggers: refusingTriggers(&b)}
	bubbleOn(t, objstore.NewMemory(), seb.Options{}, opts, 0, func(t *testing.T, s *server) {
		b = s.broker
		for i := range scrapesMax {
			if _, err := s.handler.scrapes.begin(t.Context(), seb.Holder{Key: seb.KeyID(i + 1)}); err != nil {
				t.Fatal(err)
			}
		}
		s.append("orders", "zero\none\n", "Content-Type", typeNDJSON)
		s.setQueue("mail", "", http.StatusCreated)
		defer s.reserveAll()()
		eachDescribed(t, seb.CodeOverMemoryBudget, func(o usualRequest) {
			s.do(o.method, o.target, strings.NewReader(`{"partitions":2}`), o.header...).want(t, http.StatusTooManyRequests)
		})
	})
}

func TestDescribedSlowBodies(t *testing.T) {
	var b *seb.Broker
	bubbleOn(t, objstore.NewMemory(), seb.Options{}, Options{Triggers: refusingTriggers(&b)}, 0, func(t *testing.T, s *server) {
		b = s.broker
		eachDescribed(t, codeRequestTimeout, func(o usualRequest) {
			head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n", o.method, o.target)
			for i := 0; i < len(o.header); i += 2 {
				head += o.header[i] + ": " + o.header[i+1] + "\r\n"
			}
			a, _ := answerOn(t, s.dial(head+"\r\nabc"))
			a.Request = httptest.NewRequestWithContext(t.Context(), o.method, o.target, nil)
			a.want(t, http.StatusRequestTimeout)
			s.wantDescribed(a)
		})
	})
}

func TestAppendCreatesNoTopicTooMany(t *testing.T) {
	s := newServer(t, seb.Options{Limits: seb.Limits{Topics: 1}}, Options{})
	s.append("orders", "x")
	for path, body := range map[string]string{"/v1/topics/more/records": "x", "/v1/events": `{"event":"a","entity_id":"1"}`, commitsPath: `{"appends":[{"topic":"more","records":[{"value":"x"}]}]}`} {
		p := s.post(path, body).wantProblem(t, http.StatusConflict, seb.CodeTooManyTopics)
		if p.Outcome != string(seb.NotCommitted) {
			t.Errorf("outcome is %q", p.Outcome)
		}
	}
	s.exchange(originalPost("/records?topic-name=more", formBody("[1]", "x"))).wantText(t, http.StatusConflict, "not_committed")
}

func TestDescribedKeyLimit(t *testing.T) {
	s := newServer(t, seb.Options{Limits: seb.Limits{Keys: 1}}, Options{})
	_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	p := s.post("/v1/keys", `{"name":"more","scopes":["read"]}`, bearer(ops)...).wantProblem(t, http.StatusConflict, seb.CodeTooManyKeys)
	if p.Limit != 1 || p.Outcome != string(seb.NotCommitted) {
		t.Errorf("the problem is %+v", p)
	}
}

// usualRequest is a valid request to an operation, made of its usual examples.
type usualRequest struct {
	method, path, target string
	header               []string
}

// eachDescribed calls f for every operation that has an answer with code in its description.
func eachDescribed(t *testing.T, code seb.Code, f func(o usualRequest)) {
	t.Helper()
	d := openDocument(t)
	found := 0
	for path, item := range d.Paths.Map() {
		for method, op := range item.Operations() {
			a := op.Responses.Value(fmt.Sprint(statuses[code]))
			if a == nil || !slices.Contains(problemCodes(a.Value), string(code)) {
				continue
			}
			target, header, _, err := d.request(method, path, "usual")
			if err != nil {
				t.Fatal(err)
			}
			found++
			f(usualRequest{method, path, target, header})
		}
	}
	if found == 0 {
		t.Errorf("no operation is described to answer %s", code)
	}
}
