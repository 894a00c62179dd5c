package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// A receiver that has waited for long gets no record from an owner that another broker has
// followed more than a second ago: it would be with two workers.
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

// A former owner that has not heard of the next one yet learns of it when it is asked for more
// time with a token that it does not know: it says where the queue is, not that the lease is lost.
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
		_, epoch, err := next.Queue("t", "work").Owner(t.Context()) // which looks
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

// A broker that has not heard of a queue yet looks at the log before it says that there is none.
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
