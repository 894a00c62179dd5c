package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/test/kit"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// A broker that shuts down returns records that it has taken for waiting receivers. No worker got
// them, so this costs no attempt, and the next broker hands them out at once.
func TestMessagesThatAreReturnedBeforeABrokerGoesCostNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b := openOnly(t, store, kit.InVirtualTime(immediate()))
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(2)})
		appendTo(t, b, 0, 3)
		ms := mustReceive(t, q, 3, 0)
		if err := q.Return(ms[:2]); err != nil {
			t.Fatal(err)
		}
		wantHanded(t, mustReceive(t, q, 1, 0), "[0#1]")
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		next := open(t, store, kit.InVirtualTime(immediate())).Queue("t", "work")
		free := mustReceive(t, next, 4, 0)
		wantHanded(t, free, "[1#1]")
		mustAck(t, next, free...)
		time.Sleep(29 * time.Second) // the other records are with their workers
		wantHanded(t, mustReceive(t, next, 4, 2*time.Second), "[0#2 2#2]")
	})
}
