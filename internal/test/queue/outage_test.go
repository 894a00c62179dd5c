package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
)

// A claim takes longer than the owner waits for it. The previous worker tries to extend its lease before
// the claim gets into the log. The claimed attempt must reach a worker.
func TestAttemptThatIsCountedLateIsHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		opts := immediate()
		opts.AppendTimeout, opts.Address = 10*time.Second, "http://owner" // with an address, the owner need not show itself
		opts.StaleMax = time.Minute                                       // so that the owner goes on during the outage
		b := open(t, faulty, opts)
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, b, 0, 1)
		ms := mustReceive(t, q, 1, 0)
		next := waiting(t, q, time.Hour)
		time.Sleep(29 * time.Second)
		faulty.SetDown(true)
		time.Sleep(11500 * time.Millisecond) // the lease has ended, and the outcome of the claim is unknown
		if until, err := q.Extend(t.Context(), 10*time.Minute, ms[0].Token); seb.CodeOf(err) != seb.CodeLeaseLost {
			t.Errorf("a lease was extended until %v, though the next attempt of its record may be in the log: %v", until, err)
		}
		faulty.SetDown(false)
		began := time.Now()
		got := <-next
		wantHanded(t, got, "[0#2]")
		if waited := time.Since(began); waited > time.Minute {
			t.Errorf("handed out after %v", waited)
		}
		mustAck(t, q, got...)
	})
}

// An owner that can't read the log may have lost the queue. Once its last sync is too old, it hands
// out nothing and extends no lease.
func TestOwnerWithoutItsStoreHandsOutNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, faulty := newFaulty()
		owner, other := open(t, faulty, immediate()), open(t, store, immediate())
		mustCreateTopic(t, owner, "t", 1)
		q := owner.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, owner, 0, 3)
		first := mustReceive(t, q, 1, 0)

		faulty.SetDown(true)
		wantHanded(t, mustReceive(t, q, 1, 0), "[1#1]") // its last sync is recent enough for a second
		time.Sleep(time.Second + 1)
		for range 3 {
			if got, err := q.Receive(t.Context(), seb.ReceiveOptions{}); seb.CodeOf(err) != seb.CodeStoreUnavailable {
				t.Errorf("handed out %s, %v", handed(got), err)
			}
			if until, err := q.Extend(t.Context(), time.Hour, first[0].Token); seb.CodeOf(err) != seb.CodeStoreUnavailable {
				t.Errorf("extended until %v, %v", until, err)
			}
			time.Sleep(9 * time.Second)
		}
		time.Sleep(time.Minute)

		wantHanded(t, mustReceive(t, other.Queue("t", "work"), 3, time.Minute), "[0#2 1#2 2#2]")
		faulty.SetDown(false)
		time.Sleep(10 * time.Second) // by then the owner has noticed that the store is back
		if got, err := q.Receive(t.Context(), seb.ReceiveOptions{}); seb.CodeOf(err) != seb.CodeQueueElsewhere {
			t.Errorf("handed out %s, %v", handed(got), err)
		}
	})
}

// A waiting receiver gets the same error, at the time when there would be a record to hand out.
func TestLeaseThatEndsWhileTheStoreIsAwayEndsAReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := open(t, faulty, immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, b, 0, 1)
		mustReceive(t, q, 1, 0)
		began := time.Now()
		time.AfterFunc(15*time.Second, func() { faulty.SetDown(true) })
		got, err := q.Receive(t.Context(), seb.ReceiveOptions{Wait: time.Hour})
		if len(got) > 0 || seb.CodeOf(err) != seb.CodeStoreUnavailable {
			t.Errorf("handed out %s, %v", handed(got), err)
		}
		if waited := time.Since(began); waited < 30*time.Second || waited > 45*time.Second {
			t.Errorf("it was told after %v", waited)
		}
	})
}
