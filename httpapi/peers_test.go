package httpapi

import (
	"encoding/hex"
	"net/http"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

// peersOf returns what a broker says of the others.
func (s *server) peersOf() (j peersJSON) {
	s.t.Helper()
	s.get("/v1/peers").json(s.t, &j)
	return j
}

// Each of two connected brokers lists the other one, with what that one has told of itself.
func TestPeersOverHTTP(t *testing.T) {
	memory := objstore.NewMemory()
	a, b := newPeerWith(t, memory, Options{Version: "v1", Zone: "east"}), newPeerWith(t, memory, Options{Version: "v2", Zone: "west"})
	if got := a.peersOf(); len(got.Peers) != 0 || len(got.Session) != 32 {
		t.Errorf("a broker alone: %+v", got)
	}
	a.createOrders(1)
	b.append("orders", "x") // b reads a commit of a, and writes one
	deadline := time.Now().Add(20 * time.Second)
	got := a.peersOf()
	for len(got.Peers) != 1 || !got.Peers[0].Connected || got.Peers[0].LastCommit == nil || got.Peers[0].RoundTrip == nil {
		if time.Now().After(deadline) {
			t.Fatalf("not connected: %+v", got)
		}
		got = a.peersOf() // a second connection may replace the first one, and then a ping on that has no answer
	}
	of := b.broker.Session().ID()
	p := got.Peers[0]
	if p.Session != hex.EncodeToString(of[:]) || p.Address != b.url || !p.HandsOver || p.Version != "v2" || p.Zone != "west" || p.Error != "" {
		t.Errorf("%+v", p)
	}
	a.get("/v1/peers?all=true").wantProblem(t, http.StatusBadRequest, "invalid_request")
}
