package push_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// hook is a server that receives pushed records.
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
		answer := *h.answer.Load() // before the test is told, since the test may then set another answer
		h.came <- string(body) + "#" + r.Header.Get("Seb-Attempt")
		answer(w, r)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) set(answer http.HandlerFunc) { h.answer.Store(&answer) }

// want waits for that many requests, which must be these, in any order.
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
				t.Fatalf("%s came, want one of %v", one, want)
			}
		case <-time.After(arrivalMax):
			t.Fatalf("of %v, these did not come: %v", want, left)
		}
	}
}

func (h *hook) wantNothingMore(t testing.TB) {
	t.Helper()
	select {
	case one := <-h.came:
		t.Errorf("%s came, want no request", one)
	default:
	}
}

// pushes returns options of a broker that may push to this machine.
func pushes() seb.Options {
	return seb.Options{Batching: seb.Immediate(), PushNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

// deliver makes b deliver pushed records until end is called, or the test ends.
func deliver(t testing.TB, b *seb.Broker) (end func()) {
	t.Helper()
	return deliverWith(t, b, seb.PushOptions{Grace: time.Second})
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

// wantBlocked waits until the queue's push is blocked for that reason. q has one record; wantBlocked
// checks that it is no dead letter.
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
