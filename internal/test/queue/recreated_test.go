package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/test/kit"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// Two workers receive, and the second one waits until the broker has read the records of the first.
// Meanwhile the topic is deleted and created again, with a queue of the same name. The second worker
// must receive from the new queue.
func TestReceiveGoesOnWithTheQueueThatHasTheNameNow(t *testing.T) {
	for _, order := range []seb.QueueOrder{seb.OrderNone, seb.OrderKey} {
		t.Run(string(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				other := open(t, memory, kit.InVirtualTime(immediate()))
				anew := func(records int) {
					mustCreateTopic(t, other, "t", 1)
					mustSet(t, other.Queue("t", "work"), seb.QueueUpdate{Order: &order})
					for range records {
						mustAppend(t, other, "t", large("record", 100_000)) // too large to be read together with the log
					}
				}
				anew(2)
				logs := keys(t, memory, "log/")
				b := open(t, faulty, kit.InVirtualTime(immediate()))
				q := b.Queue("t", "work")
				release := make(chan struct{})
				faulty.On(objstore.VerbGet, logs[len(logs)-1], storetest.Hold(release))
				first, second := waiting(t, q, time.Second), waiting(t, q, time.Second)
				if err := other.DeleteTopic(t.Context(), "t"); err != nil {
					t.Fatal(err)
				}
				anew(1)
				if _, _, err := q.Owner(t.Context()); err != nil { // this makes the broker learn of the new topic
					t.Fatal(err)
				}
				close(release)
				got := append(<-first, <-second...)
				if len(got) == 0 || q.Ack(t.Context(), got[len(got)-1].Token) != nil {
					t.Errorf("handed out %s; the last is not from the new queue", handed(got))
				}
			})
		})
	}
}
