package seb_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
)

// The store fails for longer than the leases of pushed records last: those of requests under way, and of
// records that the target has taken. No broker can count the next attempt of these records meanwhile, so
// none hands them out again.
func TestPushedRecordOutlivesAnOutageOfTheStore(t *testing.T) {
	for _, work := range []time.Duration{15 * time.Second, 90 * time.Second, 4 * time.Minute} {
		for _, outage := range []time.Duration{25 * time.Second, 100 * time.Second, 5 * time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				target := newPipes(t, func(http.ResponseWriter, *http.Request) { time.Sleep(work) })
				_, faulty := newFaulty()
				b := open(t, faulty, kit.InVirtualTime(immediate()))
				target.deliver(t, b)
				q := pushedQueue(t, b, seb.QueueUpdate{}, pipesURL)
				if _, _, _, err := q.SetPush(t.Context(), seb.PushUpdate{Timeout: ptr(5 * time.Minute)}); err != nil {
					t.Fatal(err)
				}
				appendValues(t, b, "a", "b")
				time.Sleep(10 * time.Second)
				faulty.SetDown(true)
				time.Sleep(outage)
				faulty.SetDown(false)
				time.Sleep(6 * time.Minute)
				if got := target.all(); len(got) != 2 {
					t.Errorf("with work of %v and an outage of %v there came %v", work, outage, got)
				}
				wantLeft(t, q, 0)
			})
		}
	}
}
