package seb_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

const arrivalMax = 20 * time.Second

// hook is a server that takes pushed records.
type hook struct {
	*httptest.Server
	came   chan string // "value#attempt"
	answer atomic.Pointer[http.HandlerFunc]
}

func newHook(t testing.TB, answer http.HandlerFunc) *hook {
	t.Helper()
	h := &hook{came: make(chan string, 1000)}
	h.answer.Store(&answer)
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		answer := *h.answer.Load() // before the test is told, which may set another then
		h.came <- string(body) + "#" + r.Header.Get("Seb-Attempt")
		answer(w, r)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) set(answer http.HandlerFunc) { h.answer.Store(&answer) }

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// want waits for what is to come next.
func (h *hook) want(t testing.TB, want ...string) {
	t.Helper()
	left := map[string]int{}
	for _, one := range want {
		left[one]++
	}
	for range want {
		select {
		case one := <-h.came:
			if left[one]--; left[one] < 0 {
				t.Fatalf("%s came, of %v", one, want)
			}
		case <-time.After(arrivalMax):
			t.Fatalf("of %v there are missing %v", want, left)
		}
	}
}

func (h *hook) wantNothingMore(t testing.TB) {
	t.Helper()
	select {
	case one := <-h.came:
		t.Errorf("%s came", one)
	default:
	}
}

// pushes returns options of a broker that may push to this machine.
func pushes() seb.Options {
	return seb.Options{Batching: seb.Immediate(), PushNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

// deliver has b push until the returned function is called, or the test ends.
func deliver(t testing.TB, b *seb.Broker) (end func()) {
	t.Helper()
	return deliverWith(t, b, seb.PushOptions{Grace: time.Second})
}

func deliverWith(t testing.TB, b *seb.Broker, o seb.PushOptions) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := b.DeliverPushed(ctx, o); err != nil {
			t.Error(err)
		}
	}()
	end = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(end)
	return end
}

// pushedQueue returns queue work of topic t, which is pushed to a URL.
func pushedQueue(t testing.TB, b *seb.Broker, u seb.QueueUpdate, url string) *seb.Queue {
	t.Helper()
	mustCreateTopic(t, b, "t", 1)
	q := b.Queue("t", "work")
	mustSet(t, q, u)
	mustPush(t, q, url)
	return q
}

func mustPush(t testing.TB, q *seb.Queue, url string) {
	t.Helper()
	if _, _, _, err := q.SetPush(t.Context(), seb.PushUpdate{URL: &url}); err != nil {
		t.Fatal(err)
	}
}

func appendValues(t testing.TB, b *seb.Broker, texts ...string) {
	t.Helper()
	if _, err := b.Append(t.Context(), "t", values(texts...)); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until f returns "", which says what is wrong.
func eventually(t testing.TB, f func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(arrivalMax); ; {
		wrong := f()
		if wrong == "" {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatal(wrong)
		}
	}
}

// wantDone waits until all of a queue is done, but for what is parked.
func wantDone(t testing.TB, q *seb.Queue, dead int64) {
	t.Helper()
	eventually(t, func() string {
		info, err := q.Describe(t.Context())
		if err != nil || info.Ready+info.Held+info.Leased != 0 || info.Dead != dead {
			return fmt.Sprintf("%d ready, %d leased, %d dead, %v", info.Ready, info.Leased, info.Dead, err)
		}
		return ""
	})
}

func TestPushedQueueIsDelivered(t *testing.T) {
	h := newHook(t, status(http.StatusNoContent))
	b := open(t, objstore.NewMemory(), pushes())
	deliver(t, b)
	q := pushedQueue(t, b, seb.QueueUpdate{}, h.URL)
	appendValues(t, b, "a", "b")
	h.want(t, "a#1", "b#1")
	appendValues(t, b, "c")
	h.want(t, "c#1")
	wantDone(t, q, 0)
}

// wantBlocked waits until the push of q, which has one record, may not send it, and checks
// that this has made nothing dead.
func wantBlocked(t testing.TB, q *seb.Queue, why string) {
	t.Helper()
	eventually(t, func() string {
		info, err := q.Push(t.Context())
		if err != nil || !strings.Contains(info.Blocked, why) {
			return fmt.Sprintf("blocked: %q, %v", info.Blocked, err)
		}
		return ""
	})
	info, err := q.Describe(t.Context())
	if err != nil || info.Dead != 0 || info.Ready+info.Leased != 1 {
		t.Errorf("%+v, %v", info, err)
	}
}
