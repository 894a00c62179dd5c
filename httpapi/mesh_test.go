package httpapi

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
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

// connectedTo reports whether a broker is connected to a session.
func connectedTo(t *testing.T, s *server, session seb.SessionKey) bool {
	t.Helper()
	for _, p := range s.broker.Peers().List(t.Context()) {
		if p.Session == session.ID() && p.Connected {
			return true
		}
	}
	return false
}

func awaitConnected(t *testing.T, s *server, session seb.SessionKey) {
	t.Helper()
	late := time.After(20 * time.Second)
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !connectedTo(t, s, session) {
		select {
		case <-again.C:
		case <-late:
			t.Fatal("the brokers do not connect")
		}
	}
}

// A broker that starts connects to the others before it writes a commit, also to those that only another one knows.
func TestStartingBrokerConnectsWithoutACommit(t *testing.T) {
	memory := objstore.NewMemory()
	a := newPeerWith(t, memory, Options{})
	a.createOrders(1)
	store := storetest.NewFaulty(memory)
	b := newPeerWith(t, store, Options{})
	awaitConnected(t, b, a.broker.Session())
	awaitConnected(t, a, b.broker.Session())
	c := newPeerWith(t, store, Options{})
	for _, other := range []*server{a, b} {
		awaitConnected(t, c, other.broker.Session())
		awaitConnected(t, other, c.broker.Session())
	}
	c.append("orders", "x")
	b.append("orders", "y")
	if n := store.Count(objstore.VerbCreate, "log/"); n != 0 {
		t.Errorf("the new brokers wrote %d commits", n)
	}
	if n := store.Count(objstore.VerbCreate, "data/"); n != 2 {
		t.Errorf("the new brokers introduced themselves %d times", n)
	}
	// A commit of the first broker names them, so they need no introductions any longer.
	for _, s := range []*server{b, c} {
		if key, err := s.broker.Peers().Introduce(t.Context()); key != "" || err != nil {
			t.Errorf("the log does not name a broker: %q, %v", key, err)
		}
	}
}

// The broker on the other side does not know introductions, since it is of an older version, or it does not find this one. Then the
// new broker names itself in the log.
func TestBrokerThatIsNotIntroducedNamesItselfInTheLog(t *testing.T) {
	memory := objstore.NewMemory()
	blind := storetest.NewFaulty(memory)
	blind.On(objstore.VerbGet, "data/", func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
		return storetest.Answer{}, objstore.ErrNotFound
	})
	a := newPeerWith(t, blind, Options{})
	a.createOrders(1)
	store := storetest.NewFaulty(memory)
	b := newPeerWith(t, store, Options{})
	awaitConnected(t, b, a.broker.Session())
	if n := store.Count(objstore.VerbCreate, "log/"); n == 0 {
		t.Error("it wrote no commit")
	}
}

// A broker on a copy of the bucket introduces itself in the copy, where nobody of the original log finds it. It stores nothing for a
// broker that does not answer.
func TestBrokerOfACopiedBucketIsNotConnected(t *testing.T) {
	memory := objstore.NewMemory()
	a := newPeerWith(t, memory, Options{})
	a.createOrders(1)
	copied := objstore.NewMemory()
	copyBucket(t, memory, copied)
	staging := newPeerWith(t, copied, Options{NoPeers: true})
	conn, err := staging.handler.dialMesh(t.Context(), a.broker.Session().ID(), a.url)
	if err == nil {
		conn.Close()
		t.Fatal("a broker of the original log accepted the connection")
	}
	if !strings.Contains(err.Error(), "403") {
		t.Error(err)
	}
	if n := len(a.broker.Peers().List(t.Context())); n != 0 {
		t.Errorf("%d peers", n)
	}
	a.stop()
	store := storetest.NewFaulty(memory)
	b := newPeerWith(t, store, Options{NoPeers: true})
	if _, err := b.handler.dialMesh(t.Context(), a.broker.Session().ID(), a.url); err == nil {
		t.Error("it is connected to a broker that has ended")
	}
	if n := store.Count(objstore.VerbCreate, "data/"); n != 0 {
		t.Errorf("it introduced itself %d times to a broker that has ended", n)
	}
}
