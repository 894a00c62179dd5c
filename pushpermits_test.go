package seb_test

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// pushedQueues returns queues of one topic that are pushed to the same target. Each has all records
// of the topic to push.
func pushedQueues(t *testing.T, b *seb.Broker, count int) []*seb.Queue {
	t.Helper()
	queues := []*seb.Queue{pushedQueue(t, b, seb.QueueUpdate{}, pipesURL)}
	for i := 1; i < count; i++ {
		q := b.Queue("t", fmt.Sprint("q", i))
		mustSet(t, q, seb.QueueUpdate{})
		mustPush(t, q, pipesURL)
		queues = append(queues, q)
	}
	return queues
}

// All queues together have only as many requests under way as there are permits. The queues take turns
// to send the next one, even if one queue may have many more requests under way than the others.
func TestPushedQueuesShareFairly(t *testing.T) {
	const queues, records, eager = 8, 400, "q1"
	synctest.Test(t, func(t *testing.T) {
		var (
			mu              sync.Mutex
			underWay, most  int
			came, firstDone = map[string]int{}, map[string]int{}
		)
		target := newPipes(t, func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			underWay++
			most = max(most, underWay)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			underWay--
			name := r.Header.Get("Seb-Queue")
			if came[name]++; came[name] == records && len(firstDone) == 0 {
				maps.Copy(firstDone, came)
			}
		})
		b := open(t, objstore.NewMemory(), immediate())
		all := pushedQueues(t, b, queues)
		if _, _, _, err := b.Queue("t", eager).SetPush(t.Context(), seb.PushUpdate{MaxInFlight: new(1024)}); err != nil {
			t.Fatal(err)
		}
		appendValues(t, b, strings.Fields(strings.Repeat("v ", records))...)
		end := target.deliver(t, b)
		for _, q := range all {
			wantDone(t, q, 0)
		}
		end()
		if bound := 4 * runtime.GOMAXPROCS(0); most > bound {
			t.Errorf("%d requests were under way, of targets that answer at once; want at most %d", most, bound)
		}
		counts := slices.Collect(maps.Values(firstDone))
		if len(counts) != queues || slices.Max(counts) > 2*slices.Min(counts) {
			t.Errorf("when the first queue was done, the queues had %v deliveries", firstDone)
		}
		if free, all := seb.PushPermits(b); free != all {
			t.Errorf("%d of %d permits are free when nothing is pushed", free, all)
		}
	})
}

// Targets that don't answer hold connections, but no permits: however many requests to them are under
// way, requests to other targets go on.
func TestTargetsThatHangDoNotHoldUpOthers(t *testing.T) {
	const hanging = 4
	records := 64 * runtime.GOMAXPROCS(0) // of each queue: more than there are permits
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		target := newPipes(t, func(_ http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Seb-Queue") != "fast" {
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}
		})
		b := open(t, objstore.NewMemory(), immediate())
		slow := pushedQueues(t, b, hanging)
		appendValues(t, b, strings.Fields(strings.Repeat("v ", records))...)
		end := target.deliver(t, b)
		synctest.Wait()
		time.Sleep(time.Second)
		if got := len(target.all()); got != hanging*64 {
			t.Errorf("%d requests are under way, want %d", got, hanging*64)
		}
		fast := b.Queue("t", "fast")
		mustSet(t, fast, seb.QueueUpdate{})
		mustPush(t, fast, pipesURL)
		wantDone(t, fast, 0)
		close(release)
		for _, q := range slow {
			wantDone(t, q, 0)
		}
		end()
		if free, all := seb.PushPermits(b); free != all {
			t.Errorf("%d of %d permits are free when nothing is pushed", free, all)
		}
	})
}

// Messages that a queue has handed out, and that are not sent, give their permits back.
func TestPermitsOfMessagesThatAreNotSentComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendValues(t, b, "a", "b", "c")
		if _, err := seb.PushQueueThatChanged(q).Receive(t.Context(), 2); err == nil {
			t.Error("messages came although the queue has another target")
		}
		messages, err := seb.PushQueue(q).Receive(t.Context(), 2)
		if err != nil || len(messages) != 2 {
			t.Fatalf("%d messages, %v", len(messages), err)
		}
		if free, all := seb.PushPermits(b); free != all-2 {
			t.Errorf("%d of %d permits are free while two messages are to be sent", free, all)
		}
		messages[0].Release()
		time.Sleep(time.Second) // the target of the other message does not answer
		messages[1].Release()
		if free, all := seb.PushPermits(b); free != all {
			t.Errorf("%d of %d permits are free after that", free, all)
		}
	})
}
