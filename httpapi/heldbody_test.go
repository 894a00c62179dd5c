package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// hold sends a request without the last byte of its body, and returns a function that
// sends this byte and reads the answer.
func (s *server) hold(method, path, body string, header ...string) (finish func() answer) {
	s.t.Helper()
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n", method, path, len(body))
	for i := 0; i < len(header); i += 2 {
		head += header[i] + ": " + header[i+1] + "\r\n"
	}
	c := s.dial(head + "\r\n" + body[:len(body)-1])
	synctest.Wait()
	return func() answer {
		s.t.Helper()
		if _, err := c.Write([]byte(body[len(body)-1:])); err != nil {
			s.t.Fatal(err)
		}
		a, _ := answerOn(s.t.(*testing.T), c)
		return a
	}
}

// heldBodies calls f for every route that reads a body, with a request that would
// change something or hand out records.
func heldBodies(t *testing.T, s *server, ops []string, f func(route, method, path, body string, header []string)) {
	t.Helper()
	bodies := 0
	for _, pattern := range slices.Sorted(maps.Keys(s.handler.declared)) {
		for method := range s.handler.declared[pattern] {
			route := method + " " + pattern
			if route == queueRoute+"push/resume" { // needs a target that is gone, and has no body
				continue
			}
			if a := s.do("DELETE", "/v1/topics/orders", nil, ops...); a.StatusCode != http.StatusNotFound {
				a.want(t, http.StatusNoContent)
			}
			s.append("orders", "x", ops...)
			s.do("PUT", "/v1/topics/orders/consumers/billing", nil, ops...).want(t, http.StatusCreated)
			token := s.queueFor(route, "", ops)
			path, body, header := changing(method, pattern, 0, token)
			switch route {
			case "PUT /v1/topics/{topic}":
				body = `{"partitions":2}`
			case "POST /v1/topics/{topic}/records":
				body = "value"
			case queueRoute + "receive", queueRoute + "dead/redrive":
				body = "{ }"
			}
			if body == "" {
				continue
			}
			bodies++
			f(route, method, path, body, header)
		}
	}
	if bodies < 12 {
		t.Errorf("only %d routes read a body", bodies)
	}
}

// wantRevoked checks the answer to a caller whose access ended while its body was read.
func wantRevoked(t *testing.T, route string, a answer) {
	t.Helper()
	if a.StatusCode != http.StatusUnauthorized {
		t.Errorf("%s: %d %s", route, a.StatusCode, a.body)
		return
	}
	if strings.Contains(route, "/v1/") {
		p := a.wantProblem(t, http.StatusUnauthorized, seb.CodeUnauthorized)
		if reads := strings.HasSuffix(route, "/receive") || strings.HasSuffix(route, "/extend"); !reads && p.Outcome != string(seb.NotCommitted) {
			t.Errorf("%s: outcome %q", route, p.Outcome)
		}
	}
}

func TestKeyRevokedWhileTheBodyComesChangesNothing(t *testing.T) {
	for _, where := range []string{"here", "on another broker"} {
		t.Run(where, func(t *testing.T) {
			store := objstore.NewMemory()
			bubbleOn(t, store, seb.Options{PushNetworks: loopback}, Options{}, 0, func(t *testing.T, s *server) {
				_, secret := newKey(t, s.broker, "ops", seb.ScopeAdmin)
				ops := bearer(secret)
				revoker := s.broker
				if where != "here" {
					revoker = openBroker(t, store, seb.Options{})
				}
				n := 0
				heldBodies(t, s, ops, func(route, method, path, body string, header []string) {
					n++
					k, secret := newKey(t, s.broker, fmt.Sprint("caller", n), seb.ScopeAdmin)
					finish := s.hold(method, path, body, slices.Concat(header, bearer(secret))...)
					if _, err := revoker.RevokeKey(t.Context(), k.ID); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * time.Second) // the broker's last sync is now too old
					applied := revoker.Status().Applied
					wantRevoked(t, route, finish())
					if now := s.broker.Status().Applied; now > applied {
						t.Errorf("%s made %d commits", route, now-applied)
					}
				})
			})
		})
	}
}

func TestFirstKeyRefusesThoseWhoseBodyStillComes(t *testing.T) {
	bubble(t, seb.Options{PushNetworks: loopback}, func(t *testing.T, s *server) {
		finish := map[string]func() answer{}
		heldBodies(t, s, nil, func(route, method, path, body string, header []string) {
			finish[route] = s.hold(method, path, body, header...)
		})
		newKey(t, s.broker, "owner", seb.ScopeAdmin)
		applied := s.broker.Status().Applied
		for route, finish := range finish {
			wantRevoked(t, route, finish())
		}
		if now := s.broker.Status().Applied; now != applied {
			t.Errorf("callers without a key made %d commits", now-applied)
		}
	})
}
