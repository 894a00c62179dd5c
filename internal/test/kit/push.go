package kit

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

// AppendValues appends values to topic "t".
func AppendValues(t testing.TB, b *seb.Broker, texts ...string) {
	t.Helper()
	if _, err := b.Append(t.Context(), "t", Values(texts...)); err != nil {
		t.Fatal(err)
	}
}

// PushedQueue creates queue "work" of topic "t", whose records are pushed to a URL.
func PushedQueue(t testing.TB, b *seb.Broker, u seb.QueueUpdate, url string) *seb.Queue {
	t.Helper()
	MustCreateTopic(t, b, "t", 1)
	q := b.Queue("t", "work")
	MustSet(t, q, u)
	MustPush(t, q, url)
	return q
}

// MustPush sets the URL to which a queue's records are pushed.
func MustPush(t testing.TB, q *seb.Queue, url string) {
	t.Helper()
	if _, _, _, err := q.SetPush(t.Context(), seb.PushUpdate{URL: &url}); err != nil {
		t.Fatal(err)
	}
}

// ArrivalMax is how long, in real time, a test waits for something that must happen.
const ArrivalMax = 20 * time.Second

// Eventually calls f again and again until it returns "". If that takes longer than [ArrivalMax], the test
// fails with the last text of f, which says what is wrong.
func Eventually(t testing.TB, f func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(ArrivalMax); ; {
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

// WantDone waits until a queue has the given number of dead letters, and all its other records are done.
func WantDone(t testing.TB, q *seb.Queue, dead int64) {
	t.Helper()
	Eventually(t, func() string {
		info, err := q.Describe(t.Context())
		if err != nil || info.Ready+info.Held+info.Leased != 0 || info.Dead != dead {
			return fmt.Sprintf("%d ready, %d leased, %d dead, %v", info.Ready, info.Leased, info.Dead, err)
		}
		return ""
	})
}

// DeliverWith makes b deliver pushed records until end is called, or the test ends.
func DeliverWith(t testing.TB, b *seb.Broker, o seb.PushOptions) (end func()) {
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

// Status returns a handler that answers with the given status and no body.
func Status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}
