package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// readByPost are the routes that commit nothing for their caller although they take a POST.
var readByPost = []string{queueRoute + "receive", queueRoute + "extend"}

// Every refusal of a write has the outcome not_committed, whatever the reason, and wherever the request
// was refused. Refusals of other requests have no outcome.
func TestRefusedWritesSayThatTheyWereNotDone(t *testing.T) {
	if testing.Short() {
		t.Skip("many requests, one at a time")
	}
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "x")
	_, secret := newKey(t, s.broker, "ops", seb.ScopeAdmin|seb.ScopeRead|seb.ScopeWrite)
	_, weak := newKey(t, s.broker, "weak", seb.ScopeRead, "other")
	ops := bearer(secret)
	for pattern, methods := range s.handler.declared {
		for method := range methods {
			if method == http.MethodGet {
				continue
			}
			route := method + " " + pattern
			path, body, header := changing(method, pattern, 77, "0123abcd.1/0:0.1")
			refused := func(why, path, body string, header ...string) {
				t.Helper()
				a := s.do(method, path, strings.NewReader(body), header...)
				if a.StatusCode < 400 || a.StatusCode >= 500 {
					t.Errorf("%s, %s: %d %s", route, why, a.StatusCode, a.body)
					return
				}
				if got := outcomeOf(t, a); (got == seb.NotCommitted) == slices.Contains(readByPost, route) {
					t.Errorf("%s, %s: %d, outcome %q", route, why, a.StatusCode, got)
				}
			}
			sent := append(slices.Clone(header), ops...)
			refused("no key", path, body, header...)
			refused("another's key", path, body, append(slices.Clone(header), bearer(weak)...)...)
			refused("an invalid key", path, body, append(slices.Clone(header), "Authorization", "none")...)
			if pattern != "/records" { // the original Seb's paths accept any parameter
				refused("a parameter that there is not", withParameter(path), body, sent...)
			}
			if strings.Contains(pattern, "{topic}") {
				refused("no name of a topic", strings.Replace(path, "/topics/", "/topics/$", 1), body, sent...)
			}
			if method == http.MethodDelete {
				continue // a GET has no body
			}
			if !slices.Contains(sent, "Content-Type") {
				sent = append(sent, "Content-Type", typeRecords)
			}
			refused("a body that is cut off", path, "{", sent...)
			refused("an encoding that there is not", path, body+"{}", append(slices.Clone(sent), "Content-Encoding", "br")...)
			refused("no gzip", path, "no gzip", append(slices.Clone(sent), "Content-Encoding", "gzip")...)
			refused("too large", path, strings.Repeat(" ", s.handler.limits.RequestBytes+1), sent...)
		}
	}
}

// Errors of a receive with acknowledgements have the outcome of the acknowledgements. After these are
// committed, errors have no outcome.
func TestOutcomeOfAReceiveIsThatOfItsAcks(t *testing.T) {
	store := storetest.NewFaulty(objstore.NewMemory())
	opts := seb.Options{AppendTimeout: time.Second, Batching: seb.Immediate()}
	bubbleOn(t, store, opts, Options{}, 0, func(t *testing.T, s *server) {
		s.ownQueue(2)
		token := s.received("mail", "")[0].Token
		body := fmt.Sprintf(`{"ack":[%q]}`, token)
		a := s.post(queuesPath+"/nothing/receive", body)
		a.want(t, http.StatusNotFound)
		if got := outcomeOf(t, a); got != seb.NotCommitted {
			t.Errorf("%d, outcome %q", a.StatusCode, got)
		}
		store.SetDown(true)
		a = s.post(mailPath+"/receive", body)
		a.want(t, http.StatusServiceUnavailable)
		if got := outcomeOf(t, a); got != seb.Unknown {
			t.Errorf("%d, outcome %q", a.StatusCode, got)
		}
		a = s.post(mailPath+"/receive", `{"max":0}`)
		a.want(t, http.StatusBadRequest)
		if got := outcomeOf(t, a); got != "" {
			t.Errorf("%d, outcome %q", a.StatusCode, got)
		}
	})
}

// Each refused token has its own outcome: for a lost lease none, for a record that was to become a dead letter
// with a copy the outcome of that commit.
func TestRefusedTokensHaveAnOutcome(t *testing.T) {
	store := storetest.NewFaulty(objstore.NewMemory())
	opts := seb.Options{AppendTimeout: time.Second, Batching: seb.Immediate()}
	bubbleOn(t, store, opts, Options{}, 0, func(t *testing.T, s *server) {
		s.append("orders.dead", "x")
		s.ownQueue(2)
		s.setQueue("mail", `{"max_attempts":1,"dead_letter_topic":"orders.dead"}`, http.StatusOK)
		out := s.wantHanded(`{"max":2}`, "0#1 1#1")
		outcomes := func(how string, status int, tokens ...wireMessage) (list []string) {
			t.Helper()
			var told struct{ Results []tokenResult }
			a := s.answered(how, status, tokens...)
			a.json(t, &told)
			for _, r := range told.Results {
				list = append(list, fmt.Sprintf("%v %s %s", r.OK, r.Code, r.Outcome))
			}
			if got := outcomeOf(t, a); got != "" {
				t.Errorf("all of it has the outcome %q: %s", got, a.body)
			}
			return list
		}
		want := func(got []string, want ...string) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("the tokens are %q, want %q", got, want)
			}
		}
		const lost, ok = "false lease_lost not_committed", "true  "
		s.answered("ack", http.StatusOK, out[0])
		want(outcomes("extend", http.StatusConflict, out...), "false lease_lost ", ok)
		undo := store.On(objstore.VerbCreate, "log/", func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
			return storetest.Answer{}, storetest.ErrInjected
		})
		want(outcomes("nack", http.StatusConflict, out...), lost, "false store_unavailable unknown")
		undo()
		time.Sleep(10 * time.Second) // by then the broker has tried again
		synctest.Wait()
		if got := outcomes("nack", http.StatusConflict, out...); got[0] != lost || got[1] != ok && got[1] != lost {
			t.Errorf("when the store is back the tokens are %q", got) // the earlier try may have made the record a dead letter
		}
		s.wantCounts("mail", 0, 0, 0, 1)
		if dead := s.stored("orders.dead", 0); len(dead) != 2 {
			t.Errorf("there are %d copies", len(dead)-1)
		}
	})
}

// The hint for a body that is too large depends on what it has: records, tokens, or neither.
func TestHintOfATooLargeBodyIsAboutIt(t *testing.T) {
	s := newServer(t, seb.Options{Limits: seb.Limits{RequestBytes: 1 << 20, RecordBytes: 1 << 20}}, Options{})
	large := strings.Repeat(" ", 1<<20+1)
	for route, hint := range map[string]string{
		"POST /v1/topics/orders/records":                  "records",
		"POST " + commitsPath:                             "records",
		"POST " + mailPath + "/ack":                       "tokens",
		"POST " + mailPath + "/nack":                      "tokens",
		"POST " + mailPath + "/extend":                    "tokens",
		"POST " + mailPath + "/receive":                   "/openapi.yaml",
		"POST " + mailPath + "/dead/redrive":              "fewer records",
		"POST " + mailPath + "/purge":                     "/openapi.yaml",
		"PUT " + mailPath:                                 "/openapi.yaml",
		"PUT " + mailPath + "/push":                       "/openapi.yaml",
		"PUT /v1/topics/orders":                           "/openapi.yaml",
		"PUT /v1/topics/orders/consumers/billing":         "/openapi.yaml",
		"POST /v1/topics/orders/consumers/billing/commit": "/openapi.yaml",
		"POST /v1/keys":                                   "/openapi.yaml",
	} {
		method, path, _ := strings.Cut(route, " ")
		p := s.do(method, path, strings.NewReader(large)).wantProblem(t, http.StatusRequestEntityTooLarge, seb.CodeRequestTooLarge)
		if !strings.Contains(p.Hint, hint) || hint != "records" && hint != "fewer records" && strings.Contains(p.Hint, "records") {
			t.Errorf("%s: the hint is %q", route, p.Hint)
		}
	}
}

func withParameter(path string) string {
	if strings.Contains(path, "?") {
		return path + "&nonsense=1"
	}
	return path + "?nonsense=1"
}

// outcomeOf returns the outcome in a problem, or in an error in plain text.
func outcomeOf(t *testing.T, a answer) seb.Outcome {
	t.Helper()
	if strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain") {
		for _, o := range []seb.Outcome{seb.NotCommitted, seb.Unknown} {
			if strings.Contains(a.body, fmt.Sprintf("(outcome: %s)", o)) {
				return o
			}
		}
		return ""
	}
	var p problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("%s %s: %s: %v", a.Request.Method, a.Request.URL, a.body, err)
	}
	return p.Outcome
}
