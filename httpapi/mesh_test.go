package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// An event that is appended at one broker reaches a stream at another one without a request of that broker to the store,
// once the two have heard of each other.
func TestEventsReachStreamsOfOtherBrokersWithoutGets(t *testing.T) {
	memory := objstore.NewMemory()
	a := newPeerWith(t, memory, Options{})
	store := storetest.NewFaulty(memory)
	b := newPeerWith(t, store, Options{})
	a.createOrders(1)
	stream := b.follow("")
	stream.begin()
	deadline := time.Now().Add(20 * time.Second)
	for i := 0; ; i++ {
		before := store.Count(objstore.VerbGet, "log/")
		a.post("/v1/topics/orders/records", "x").want(t, http.StatusCreated)
		stream.records(1)
		if store.Count(objstore.VerbGet, "log/") == before && i > 3 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("each event needs a Get")
		}
	}
}

// A broker without peers refuses their connections with an answer that says so. The other broker names itself nowhere for that.
func TestBrokerWithoutPeersRefusesConnections(t *testing.T) {
	memory := objstore.NewMemory()
	a, b := newPeer(t, memory), newPeer(t, memory)
	conn, err := b.handler.dialMesh(t.Context(), a.broker.Session().ID(), a.url)
	if err == nil {
		conn.Close()
		t.Fatal("it accepted a connection")
	}
	if !strings.Contains(err.Error(), "--no-peers") {
		t.Error(err)
	}
	if n := b.broker.Status().Applied; n != 0 {
		t.Errorf("%d commits were made", n)
	}
}

// Appends, positions of consumers and answers of workers at one broker are committed by the other one, which wrote the last
// commit, once the two have heard of each other.
func TestConnectedBrokersCommitTogether(t *testing.T) {
	memory := objstore.NewMemory()
	a := newPeerWith(t, memory, Options{})
	store := storetest.NewFaulty(memory)
	b := newPeerWith(t, store, Options{})
	a.ownQueue(0)
	a.do("PUT", "/v1/topics/orders/consumers/billing", nil).want(t, http.StatusCreated)
	b.append("orders", "first") // introduces the broker
	claims := func() int { return store.Count(objstore.VerbCreate, "log/") }
	deadline := time.Now().Add(20 * time.Second)
	for i := 0; ; i++ {
		before := claims()
		a.append("orders", "x") // now a has written the last commit
		b.append("orders", "y")
		b.post("/v1/topics/orders/consumers/billing/commit", `{"offsets":{"0":1}}`).want(t, http.StatusOK)
		b.answered("ack", http.StatusOK, a.received("mail", `{"max":1}`)...)
		if claims() == before && i > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the second broker still writes commits: %d", claims()-before)
		}
	}
}
