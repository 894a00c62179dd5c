package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// untilStreams waits until n streams are being served.
func (s *server) untilStreams(n float64) {
	s.t.Helper()
	s.untilWaiting(n) // no other requests are served
}

func TestAnyBrokerStreamsAQueue(t *testing.T) {
	peers := newPeersWithQueue(t, 3, 4)
	f := peers[1].receiving("?max_in_flight=2&lease=5m")
	ms := f.wantMessages("0#1 1#1")
	peers[0].wantCounts("mail", 2, 2, 0, 0)
	for i, through := range []*server{peers[1], peers[2], peers[0]} {
		through.answered("ack", 200, ms[i])
		if i < 2 {
			ms = append(ms, f.wantMessages(fmt.Sprintf("%d#1", 2+i))...)
		}
	}
	peers[2].append("orders", "x")
	f.wantMessages("4#1")
	peers[1].wantOwner(1)
}

// A worker's stream goes on when the owner dies: the broker that relays the stream takes the
// queue over.
func TestStreamGoesOnWhenTheOwnerDies(t *testing.T) {
	t.Parallel() // it waits for seconds
	shared := objstore.NewMemory()
	dying := &brokenStore{Store: shared}
	peers := newPeersWithQueue(t, 2, 1, dying, shared)
	defer dying.down.Store(false)
	f := peers[1].receiving("?lease=10m")
	first := f.wantMessages("0#1")
	dying.down.Store(true)
	peers[0].stop()
	peers[1].untilOwned(2)
	peers[1].answered("ack", 200, first...)
	peers[1].append("orders", "y")
	f.wantMessages("1#1")
}

// A worker's stream through another broker goes on when the owner shuts down.
func TestStreamGoesOnWhenTheOwnerShutsDown(t *testing.T) {
	t.Parallel() // it waits for seconds
	peers := newPeersWithQueue(t, 2, 1)
	f := peers[1].receiving("")
	f.wantMessages("0#1")
	peers[0].handler.Drain()
	if err := peers[0].broker.Close(); err != nil {
		t.Fatal(err)
	}
	peers[0].stop()
	peers[1].append("orders", "y")
	f.wantMessages("1#1")
	peers[1].wantOwner(2)
}

// A stream goes on when another broker becomes the owner.
func TestStreamFollowsItsQueue(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 1)
	f := peers[0].receiving("?max_in_flight=1")
	f.wantMessages("0#1")
	peers[1].wantOwner(1) // syncs
	if err := peers[1].broker.Queue("orders", "mail").TakeOver(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	peers[1].append("orders", "y")
	f.wantMessages("1#1") // the new owner counts records in flight from 0
	peers[0].wantOwner(2)
}

func TestDrainEndsStreamsThroughAnotherBroker(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 1)
	f := peers[1].receiving("")
	f.wantMessages("0#1")
	peers[1].handler.Drain()
	f.wantEnd()
	peers[0].untilStreams(0)
}

// servedOn serves the server's handler on pipes too.
func (s *server) servedOn(l *pipeListener) {
	srv, served := NewServer(s.handler, nil), make(chan struct{})
	go func() {
		defer close(served)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.t.Errorf("serve: %v", err)
		}
	}()
	s.t.Cleanup(func() {
		if err := errors.Join(srv.Close(), s.handler.Close()); err != nil {
			s.t.Errorf("close server: %v", err)
		}
		<-served
	})
}

// bubbleBeside is bubbleOf with two brokers: s forwards requests for queue mail to owner. The queue has
// some records.
func bubbleBeside(t *testing.T, records, connections int, f func(t *testing.T, s, owner *server)) {
	t.Helper()
	var owner *server
	open := func(t *testing.T) *server {
		shared, pipes := objstore.NewMemory(), newPipeListener()
		owner = newServerOn(t, shared, seb.Options{Address: "http://owner"}, Options{})
		owner.ownQueue(records)
		owner.stop() // stops the server on a port
		owner.servedOn(pipes)
		return newServerOn(t, shared, seb.Options{Memory: 8 << 20}, Options{DialPeer: func(context.Context, string, string) (net.Conn, error) { return pipes.dial() }})
	}
	bubbleAround(t, open, connections, func(t *testing.T, s *server) { f(t, s, owner) })
}

func TestOldStreamThroughAnotherBrokerGivesWayToWhoWaitsForAConnection(t *testing.T) {
	bubbleBeside(t, 3, 1, func(t *testing.T, s, _ *server) {
		start := time.Now()
		f := s.receiving("?lease=1h&max_in_flight=2")
		ms := f.wantMessages("0#1 1#1")
		ended := make(chan error, 1)
		go func() { // reads the stream, so that it is not cut off
			_, err := io.Copy(io.Discard, f.in)
			ended <- err
		}()
		s.client.Timeout = 2 * eventStreamTurn
		s.get("/livez").want(t, http.StatusOK) // the request waits for the only connection
		if took := time.Since(start); took < eventStreamTurn || took > eventStreamTurn+2*commentInterval {
			t.Errorf("it waited %v", took)
		}
		if err := <-ended; err != nil {
			t.Errorf("the stream ended with %v", err)
		}
		s.answered("ack", 200, ms...)
		s.wantHanded(`{"max":9}`, "2#1")
	})
}

// The owner leases records to a stream that another broker relays, so a lack of memory there must not stop the stream.
func TestStreamOfAnotherBrokersQueueNeedsNoMemoryOfTheBudget(t *testing.T) {
	bubbleBeside(t, 3, 0, func(t *testing.T, s, _ *server) {
		defer s.reserveAll()()
		s.receiving("").wantMessages("0#1 1#1 2#1")
	})
}

// A drained broker must not ask the owner for a stream: its records would be leased, but not sent to a worker.
func TestDrainedBrokerPassesNoStreamOn(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 50)
	peers[1].handler.Drain()
	for range 10 {
		if a := peers[1].get(mailPath+"/receive", "Accept", typeEvents); a.StatusCode != 200 || !strings.HasPrefix(a.body, "retry: ") {
			t.Errorf("drained: %d %s", a.StatusCode, a.body)
		}
	}
	peers[0].wantCounts("mail", 50, 0, 0, 0)
}

func TestStreamThroughAnotherBrokerEndsWithItsClient(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 1)
	f := peers[1].receiving("")
	f.wantMessages("0#1")
	if err := f.resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	peers[1].untilStreams(0)
	peers[0].untilStreams(0)
	peers[0].append("orders", "y")
	peers[1].wantHanded(`{"max":9}`, "1#1")
	peers[1].wantNothingReservedSoon()
}

func TestStreamThroughAnotherBrokerEndsWithItsQueue(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 1)
	f := peers[1].receiving("")
	f.wantMessages("0#1")
	peers[1].do("DELETE", mailPath, nil).want(t, http.StatusNoContent)
	f.wantError(seb.CodeQueueNotFound) // the error is sent once
	peers[1].get(mailPath+"/receive", "Accept", typeEvents).wantProblem(t, 404, seb.CodeQueueNotFound)
}

func TestStreamThroughAnotherBrokerEndsWithItsKey(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 1)
	_, ops := newKey(t, peers[0].broker, "ops", seb.ScopeAdmin)
	worker, secret := newKey(t, peers[0].broker, "worker", seb.ScopeRead)
	peers[1].wantOwner(1) // syncs: before that, the broker knows no keys
	peers[1].get(mailPath+"/receive", "Accept", typeEvents).wantProblem(t, http.StatusUnauthorized, seb.CodeUnauthorized)
	f := peers[1].receiving("", bearer(secret)...)
	f.wantMessages("0#1")
	peers[1].do("DELETE", fmt.Sprint("/v1/keys/", worker.ID), nil, bearer(ops)...).want(t, http.StatusNoContent)
	f.wantError(seb.CodeUnauthorized)
	peers[0].untilStreams(0)
}

// streaming returns an owner's handler that begins a stream with text and then calls then.
func streaming(text string, then func(r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(requestIDHeader, r.Header.Get(requestIDHeader))
		w.Header().Set("Content-Type", typeEvents)
		_, _ = fmt.Fprint(w, text) // fails if the client has left
		_ = http.NewResponseController(w).Flush()
		then(r)
	}
}

// patientOwner is fakeOwner with a server that takes the owner for lost after the time first without an answer.
func patientOwner(t *testing.T, first time.Duration, handler http.HandlerFunc) *server {
	t.Helper()
	s := fakeOwner(t, handler)
	s.handler.patience = patience{first, first}
	return s
}

func dies(*http.Request) { panic(http.ErrAbortHandler) }

// A stream that ends within an event is cut: nothing can follow half an event.
func TestStreamThatBreaksOffWithinAnEventIsCut(t *testing.T) {
	s := patientOwner(t, 10*time.Second, streaming("retry: 1\n\nid: a\ndata: {\"tok", dies))
	f := s.receiving("")
	f.wantCut()
	s.wantOwner(1)
}

// If an owner's streams end again and again between events, the owner is asked again after a pause. If it
// does not answer then, it is replaced.
func TestOwnerWhoseStreamsEndIsAskedAgain(t *testing.T) {
	t.Parallel() // it waits for seconds
	began := time.Now()
	var asked atomic.Int32
	silent := make(chan struct{}, ownerTries)
	s := patientOwner(t, time.Second, func(w http.ResponseWriter, r *http.Request) {
		switch n := asked.Add(1); {
		case n == 3:
			w.Header().Set(requestIDHeader, r.Header.Get(requestIDHeader))
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = fmt.Fprint(w, `{"status":429,"detail":"no","code":"over_memory_budget"}`)
		case n > 3:
			silent <- struct{}{}
			<-r.Context().Done()
		case n > 1:
			streaming("retry: 1\n\n", dies)(w, r)
		default:
			streaming("retry: 1\n\n", func(*http.Request) {})(w, r)
		}
	})
	f := s.receiving("")
	<-silent
	s.untilOwned(2)
	if took := time.Since(began); asked.Load() != 4 || took < 2*queueStreamPause {
		t.Errorf("it was asked %d times within %v", asked.Load(), took)
	}
	s.append("orders", "x")
	f.wantMessages("0#1")
}

// If an owner's refusal is final, the worker's stream ends.
func TestOwnerThatRefusesToGoOnEndsTheStream(t *testing.T) {
	var asked atomic.Int32
	s := patientOwner(t, 10*time.Second, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			streaming("retry: 1\n\n", func(*http.Request) {})(w, r)
			return
		}
		w.Header().Set(requestIDHeader, r.Header.Get(requestIDHeader))
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprint(w, `{"status":403,"detail":"no","code":"forbidden"}`)
	})
	f := s.receiving("")
	if p := f.wantError(seb.CodeForbidden); !strings.Contains(p.Detail, "no") {
		t.Errorf("the problem is %+v", p)
	}
	s.wantOwner(1)
}
