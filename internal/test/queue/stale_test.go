package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// A receiver has waited for long at an owner, and another broker took the queue over more than a
// second ago. The receiver must get no record from the former owner, since another worker may have
// that record.
func TestReceiverThatHasWaitedGetsNothingFromAFormerOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		former, next := open(t, store, immediate()), open(t, store, immediate())
		mustCreateTopic(t, former, "t", 1)
		q := former.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		if _, err := former.Append(t.Context(), "t", values("later"), seb.Delay(time.Minute)); err != nil {
			t.Fatal(err)
		}
		outcome := make(chan error)
		go func() {
			ms, err := q.Receive(t.Context(), seb.ReceiveOptions{Wait: time.Hour})
			for _, m := range ms {
				t.Errorf("the former owner hands out offset %d, attempt %d", m.Offset, m.Attempt)
			}
			outcome <- err
		}()
		time.Sleep(58 * time.Second)
		wantHanded(t, mustReceive(t, next.Queue("t", "work"), 1, 0), "[]")
		wantCode(t, <-outcome, seb.CodeQueueElsewhere)
	})
}

// A former owner is asked to extend a lease with a token that it does not know. It learns then that
// there is a new owner, and answers where the queue is, not that the lease is lost.
func TestFormerOwnerDoesNotRefuseALeaseOfTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		former, next := open(t, store, immediate()), open(t, store, immediate())
		mustCreateTopic(t, former, "t", 1)
		q := former.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, former, 0, 1)
		ms := mustReceive(t, q, 1, 0)
		if err := q.Nack(t.Context(), seb.NackOptions{Delay: ptr(time.Duration(0))}, tokens(ms)...); err != nil {
			t.Fatal(err)
		}
		_, epoch, err := next.Queue("t", "work").Owner(t.Context()) // this syncs
		if err == nil {
			err = next.Queue("t", "work").TakeOver(t.Context(), epoch)
		}
		if err != nil {
			t.Fatal(err)
		}
		ms = mustReceive(t, next.Queue("t", "work"), 1, time.Second)
		wantHanded(t, ms, "[0#2]")
		_, err = q.Extend(t.Context(), time.Minute, tokens(ms)...)
		wantCode(t, err, seb.CodeQueueElsewhere)
	})
}

// A broker that does not know a queue syncs before it answers that the queue does not exist.
func TestBrokerLearnsOfANewQueueWhenItIsAskedForMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		owner, other := open(t, store, immediate()), open(t, store, immediate())
		mustCreateTopic(t, owner, "t", 1)
		q := owner.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, owner, 0, 1)
		if _, err := other.Queue("t", "work").Extend(t.Context(), time.Minute, tokens(mustReceive(t, q, 1, 0))...); err != nil {
			t.Error(err)
		}
	})
}
