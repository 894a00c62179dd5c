package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/test/kit"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// A record whose last attempt failed does not wait for a retry. So the time shown is when it was
// parked, and not when a retry would have been due.
func TestDeadLetterShowsItsTime(t *testing.T) {
	delays := map[string]*time.Duration{"the queue's backoff": nil, "the worker's": ptr(48 * time.Hour)}
	for name, delay := range delays {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, objstore.NewMemory(), kit.InVirtualTime(immediate()))
				mustCreateTopic(t, b, "t", 1)
				q := b.Queue("t", "work")
				mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1), BackoffMin: ptr(time.Hour)})
				appendTo(t, b, 0, 1)
				began := time.Now()
				ms := mustReceive(t, q, 1, 0)
				if err := q.Nack(t.Context(), seb.NackOptions{Delay: delay}, ms[0].Token); err != nil {
					t.Fatal(err)
				}
				dead, _, _, err := q.Dead(t.Context(), seb.DeadOptions{})
				if err != nil || len(dead) != 1 || dead[0].Parked.Before(began) || dead[0].Parked.After(time.Now().Add(ticks)) {
					t.Fatalf("%+v, %v", dead, err)
				}
			})
		})
	}
}
