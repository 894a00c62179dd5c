package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// A receiver that waited for the end of a lease gives up before that. Another receiver must then be
// woken when the lease ends.
func TestLeaseEndsAfterTheReceiverThatWaitedForThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		first, second, third := waiting(t, q, time.Minute), waiting(t, q, 3*time.Second), waiting(t, q, time.Hour)
		appendTo(t, b, 0, 1)
		wantHanded(t, <-first, "[0#1]")
		began := time.Now()
		wantHanded(t, <-second, "[]")
		wantHanded(t, <-third, "[0#2]")
		if waited := time.Since(began); waited > 31*time.Second {
			t.Errorf("handed out after %v", waited)
		}
	})
}

func TestLeaseThatIsMadeShorterEndsSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{Lease: ptr(time.Hour)})
		appendTo(t, b, 0, 1)
		ms := mustReceive(t, q, 1, 0)
		other := waiting(t, q, 30*time.Minute)
		if _, err := q.Extend(t.Context(), 5*time.Second, ms[0].Token); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		wantHanded(t, <-other, "[0#2]")
		if waited := time.Since(began); waited > 6*time.Second {
			t.Errorf("handed out after %v", waited)
		}
	})
}
