package seb_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// pipes is a push target that is connected by pipes, so that it can run in virtual time. Every URL
// reaches it.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}

	mu   sync.Mutex
	came []string // "value#attempt", in order
}

func newPipes(t testing.TB, answer http.HandlerFunc) *pipes {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.came = append(p.came, string(body)+"#"+r.Header.Get("Seb-Attempt"))
		p.mu.Unlock()
		answer(w, r)
	})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(p) // always ends with an error
	}()
	t.Cleanup(func() {
		close(p.closed)
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.came...)
}

// deliver makes b push to the pipes until end is called, or the test ends.
func (p *pipes) deliver(t testing.TB, b *seb.Broker) (end func()) {
	t.Helper()
	return deliverWith(t, b, seb.DialTargets(seb.PushOptions{Grace: time.Second}, p.dial))
}

const pipesURL = "http://target.example/"

func describe(t testing.TB, q *seb.Queue) seb.QueueInfo {
	t.Helper()
	info, err := q.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// The target is so slow that records wait for minutes. Meanwhile the owner has nothing to commit, except
// for signs of life.
func TestOnlyTheOwnerPushesHoweverSlowTheTargetIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newPipes(t, func(http.ResponseWriter, *http.Request) { time.Sleep(4 * time.Minute) })
		store := objstore.NewMemory()
		var brokers []*seb.Broker
		for range 3 {
			b := open(t, store, immediate())
			target.deliver(t, b)
			brokers = append(brokers, b)
		}
		b := brokers[0]
		q := pushedQueue(t, b, seb.QueueUpdate{}, pipesURL)
		one, minutes := 1, 5*time.Minute
		if _, _, _, err := q.SetPush(t.Context(), seb.PushUpdate{MaxInFlight: &one, Timeout: &minutes}); err != nil {
			t.Fatal(err)
		}
		for _, other := range brokers[1:] { // so that they learn of the queue
			describe(t, other.Queue("t", "work"))
		}
		appendValues(t, b, "a", "b", "c", "d")
		time.Sleep(17 * time.Minute)
		if got := target.all(); len(got) != 4 {
			t.Errorf("%v came", got)
		}
		if info := describe(t, q); info.Epoch != 1 || info.Ready+info.Held+info.Leased != 0 {
			t.Errorf("the queue is %+v", info)
		}
	})
}

func TestAnotherBrokerPushesWhenTheOwnerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newPipes(t, func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) })
		store := objstore.NewMemory()
		lost, other := openOnly(t, store, immediate()), open(t, store, immediate())
		end := target.deliver(t, lost)
		pushedQueue(t, lost, seb.QueueUpdate{}, pipesURL)
		appendValues(t, lost, "a")
		time.Sleep(5 * time.Second)
		target.deliver(t, other)
		q := other.Queue("t", "work")
		describe(t, q)
		appendValues(t, lost, "b")
		time.Sleep(100 * time.Millisecond) // the request with record b is under way
		kill(t, lost)
		began := time.Now()
		appendValues(t, other, "c")
		for describe(t, q).Epoch == 1 && time.Since(began) < 5*time.Minute {
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took < 25*time.Second || took > 45*time.Second {
			t.Errorf("taken over after %v", took)
		}
		appendValues(t, other, "d")
		time.Sleep(2 * time.Second)
		if got := target.all(); len(got) != 3 || got[2] != "d#1" {
			t.Errorf("after the takeover %v came", got)
		}
		time.Sleep(2 * time.Minute)
		// No broker could acknowledge b, or knows that the push of c had not begun.
		if got := target.all(); len(got) != 5 || !slices.Equal(slices.Sorted(slices.Values(got[3:])), []string{"b#2", "c#2"}) {
			t.Errorf("%v came", got)
		}
		if info := describe(t, q); info.Ready+info.Held+info.Leased+info.Dead != 0 || info.Epoch != 2 {
			t.Errorf("the queue is %+v", info)
		}
		end()
	})
}

// If the owner shuts down, another broker pushes the rest at once.
func TestAnotherBrokerPushesWhenTheOwnerGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newPipes(t, func(http.ResponseWriter, *http.Request) { time.Sleep(500 * time.Millisecond) })
		store := objstore.NewMemory()
		one, other := openOnly(t, store, immediate()), open(t, store, immediate())
		end := target.deliver(t, one)
		q := pushedQueue(t, one, seb.QueueUpdate{}, pipesURL)
		time.Sleep(time.Second) // until one owns the queue
		describe(t, other.Queue("t", "work"))
		target.deliver(t, other)
		appendValues(t, one, "a", "b")
		time.Sleep(100 * time.Millisecond)
		end() // waits for the two requests
		if info := describe(t, q); info.Ready+info.Held+info.Leased != 0 {
			t.Errorf("the queue is %+v", info)
		}
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		appendValues(t, other, "c")
		for len(target.all()) < 3 && time.Since(began) < 5*time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("went on after %v", took)
		}
		time.Sleep(time.Minute)
		if got := target.all(); len(got) != 3 {
			t.Errorf("%v came", got)
		}
	})
}

func TestIdlePushedQueueCostsNoCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newPipes(t, status(http.StatusOK))
		store := objstore.NewMemory()
		b, other := open(t, store, immediate()), open(t, store, immediate())
		target.deliver(t, b)
		target.deliver(t, other)
		pushedQueue(t, b, seb.QueueUpdate{}, pipesURL)
		appendValues(t, b, "a")
		time.Sleep(2 * seb.ReceiveWaitMax) // the next receive of the pusher may move the dispatch limit once more
		applied := b.Status().Applied
		time.Sleep(3 * time.Hour)
		if now := b.Status().Applied; now != applied || len(target.all()) != 1 {
			t.Errorf("%d commits in three idle hours; %v came", now-applied, target.all())
		}
	})
}
