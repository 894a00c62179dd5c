package seb_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
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

// A record of a queue with the default settings outlasts a day in which the target fails, whatever the backoffs
// come to at random.
func TestPushedRecordOutlastsADayOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healthy atomic.Bool
		target := newPipes(t, func(w http.ResponseWriter, _ *http.Request) {
			if !healthy.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		b := open(t, objstore.NewMemory(), kit.InVirtualTime(immediate()))
		target.deliver(t, b)
		q := pushedQueue(t, b, seb.QueueUpdate{}, pipesURL)
		appendValues(t, b, "a")
		time.Sleep(24 * time.Hour)
		healthy.Store(true)
		time.Sleep(seb.PushedBackoffMaxDefault)
		wantLeft(t, q, 0)
		if tried := len(target.all()); tried < 144 || tried > 289 {
			t.Errorf("there came %d requests", tried)
		}
	})
}
