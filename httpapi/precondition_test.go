package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
)

// A write that does not take a condition refuses it, instead of doing unconditionally what the caller meant to do
// under a condition.
func TestWritesRefuseConditionsThatTheyDoNotTake(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "x")
	takes := []string{"POST /v1/topics/{topic}/consumers/{consumer}/commit If-Match", "PUT /v1/topics/{topic}/queues/{queue} If-None-Match"}
	for pattern, methods := range s.handler.declared {
		for method := range methods {
			if method == http.MethodGet || pattern == "/records" { // the original's requests ignore conditions
				continue
			}
			for _, name := range []string{"If-Match", "If-None-Match"} {
				route := method + " " + pattern
				if slices.Contains(takes, route+" "+name) {
					continue
				}
				path, body, header := changing(method, pattern, 77, "0123abcd.1/0:0.1")
				p := s.do(method, path, strings.NewReader(body), append(header, name, "*")...).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
				if p.Detail != name+" has no effect here" || (p.Outcome == string(seb.NotCommitted)) == slices.Contains(readByPost, route) {
					t.Errorf("%s with %s: %+v", route, name, p)
				}
			}
		}
	}
	s.get("/v1/topics/new").wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
	if got := s.stored("orders", 0); len(got) != 1 {
		t.Errorf("refused requests left %d records", len(got))
	}
}
