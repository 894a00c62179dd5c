package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/test/kit"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// A worker whose connection broke says again that it is done, before its first word is in
// the log: both get into one commit, and neither may be told that its work doesn't count.
func TestDeliveryThatIsAcknowledgedTwiceInOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), kit.InVirtualTime(seb.Options{Batching: seb.Timed(time.Second, 1<<20)}))
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, b, 0, 2)
		ms := mustReceive(t, q, 2, 0)
		synctest.Wait() // who receives is told of a commit a moment before the status has it
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
