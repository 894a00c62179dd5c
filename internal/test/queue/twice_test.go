package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/test/kit"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// A worker whose connection broke sends its acknowledgement again, before the first one is in the log.
// Both get into one commit, and both must be told that the work counts.
func TestDeliveryThatIsAcknowledgedTwiceInOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), kit.InVirtualTime(seb.Options{Batching: seb.Timed(time.Second, 1<<20)}))
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, b, 0, 2)
		ms := mustReceive(t, q, 2, 0)
		synctest.Wait() // a receiver returns a moment before the status shows the commit
		before := b.Status().Applied
		errs := make(chan error)
		for range 2 {
			go func() { errs <- q.Ack(t.Context(), tokens(ms)...) }()
		}
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if after := b.Status().Applied; after != before+1 {
			t.Errorf("%d commits", after-before)
		}
		mustAck(t, q, ms...)
	})
}
