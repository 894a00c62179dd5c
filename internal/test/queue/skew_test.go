package queue_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// The clock of a lost owner was ahead, so it handed out records that are not due yet by the next
// owner's clock. With order by key, the next owner recognizes such a record when it reads it.
func TestDelayedRecordThatWasHandedOutAlreadyIsNotFresh(t *testing.T) {
	tests := map[string]struct {
		attempts int
		want     string
	}{
		"put back": {2, "[1#2]"},
		"parked":   {1, "[]"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := objstore.NewMemory()
				b := openOnly(t, store, kit.InVirtualTime(immediate()))
				mustCreateTopic(t, b, "t", 1)
				q := b.Queue("t", "work")
				mustSet(t, q, seb.QueueUpdate{MaxAttempts: &test.attempts, Order: ptr(seb.OrderKey)})
				appendTo(t, b, 0, 1)
				if _, err := b.Append(t.Context(), "t", []seb.Record{{Key: []byte("k"), Value: []byte("later")}}, seb.Delay(time.Minute)); err != nil {
					t.Fatal(err)
				}
				first := mustReceive(t, q, 10, 0)
				wantHanded(t, first, "[0#1]")
				ahead := strings.Replace(first[0].Token, ":0.1", ":1.1", 1) // token of a delivery by an owner with another clock
				if err := q.Nack(t.Context(), seb.NackOptions{Delay: ptr(time.Duration(0))}, ahead); err != nil {
					t.Fatal(err)
				}
				mustAck(t, q, first...)
				if err := kit.End(b); err != nil {
					t.Fatal(err)
				}
				next := open(t, store, kit.InVirtualTime(immediate())).Queue("t", "work")
				wantHanded(t, mustReceive(t, next, 10, 59*time.Second), "[]")
				wantHanded(t, mustReceive(t, next, 10, 10*time.Minute), test.want)
			})
		})
	}
}

// How long an owner has been silent is measured by one clock, the store's. By their own clocks, two
// brokers would take a queue from each other with each receive.
func TestClocksAheadOfTheStoresTakeNoQueuesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		var queues []*seb.Queue
		for range 2 {
			store := storetest.NewFaulty(memory)
			for _, verb := range []objstore.Verb{objstore.VerbCreate, objstore.VerbGet, objstore.VerbList} {
				store.On(verb, "", storetest.ShiftTime(func() time.Duration { return -time.Minute }))
			}
			b := open(t, store, kit.InVirtualTime(immediate()))
			if queues == nil {
				queueOf(t, b, 0, 0)
			}
			queues = append(queues, b.Queue("t", "work"))
		}
		for i := range 8 {
			time.Sleep(2 * time.Second)
			if _, err := queues[i%2].Receive(t.Context(), seb.ReceiveOptions{}); err != nil {
				wantCode(t, err, seb.CodeQueueElsewhere)
			}
		}
		if _, epoch, err := queues[0].Owner(t.Context()); err != nil || epoch != 2 {
			t.Errorf("the owner is %d, %v", epoch, err)
		}
		time.Sleep(time.Minute) // the owner is silent meanwhile
		if _, err := queues[0].Receive(t.Context(), seb.ReceiveOptions{}); err != nil {
			t.Error(err)
		}
	})
}
