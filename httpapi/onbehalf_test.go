package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// Another broker revokes the key and wins the slot for which this broker has built the change. The
// routes are examples of the ways in which a request's context reaches the broker.
func TestKeyRevokedBeforeTheCommitChangesNothing(t *testing.T) {
	for _, test := range []struct {
		method, path, body string
		header             []string
	}{
		{"POST", "/v1/topics/orders/records", "x", nil},
		{"POST", "/v1/topics/new/records", "x", nil},
		{"POST", "/records?topic-name=orders", formBody("[1]", "a"), []string{"Content-Type", typeForm + "; boundary=" + boundary}},
		{"POST", "/v1/commits", `{"appends":[{"topic":"orders","records":[{"value":"x"}]},{"topic":"orders","records":[{"value":"y"}]}]}`, nil},
		{"DELETE", "/v1/topics/orders", "", nil},
		{"POST", "/v1/keys", `{"name":"new","scopes":["admin"]}`, nil},
		{"GET", "/v1/topics/orders/consumers/new/records", "", nil},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			memory := objstore.NewMemory()
			faulty := storetest.NewFaulty(memory)
			bubbleOn(t, faulty, seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
				other := openBroker(t, memory, seb.Options{})
				_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
				s.append("orders", "x", bearer(ops)...)
				caller, secret := newKey(t, s.broker, "caller", seb.ScopeAdmin)
				release := make(chan struct{})
				remove := faulty.On(objstore.VerbCreate, "log/", storetest.Hold(release))
				answered := make(chan answer)
				go func() {
					answered <- s.do(test.method, test.path, strings.NewReader(test.body), append(test.header, bearer(secret)...)...)
				}()
				synctest.Wait()
				if _, err := other.RevokeKey(t.Context(), caller.ID); err != nil {
					t.Fatal(err)
				}
				revoked := other.Status().Applied
				remove()
				close(release)
				a := <-answered
				if a.StatusCode != http.StatusUnauthorized {
					t.Errorf("%d %s", a.StatusCode, a.body)
				}
				if now := s.broker.Status().Applied; now > revoked {
					t.Errorf("%d commits after the revocation", now-revoked)
				}
			})
		})
	}
}
