package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// Beyond a bound, records that are with workers hold up fresh records until some of them are done.
func TestQueueHasABoundOfRecordsOut(t *testing.T) {
	const bound = 65536
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{Lease: new(12 * time.Hour)})
		for range 7 {
			appendTo(t, b, 0, 10_000)
		}
		var out []seb.Message
		for {
			got := mustReceive(t, q, 1000, 30*time.Second)
			if len(got) == 0 {
				break
			}
			out = append(out, got...)
		}
		if len(out) != bound {
			t.Errorf("%d records are out", len(out))
		}
		mustAck(t, q, out[:1000]...)
		if got := mustReceive(t, q, 1000, 30*time.Second); len(got) != 1000 {
			t.Errorf("%d come when 1,000 are done", len(got))
		}
	})
}

// The owner reads ahead beyond the waiting records of a key, so that other keys go on, but only up to
// a bound.
func TestKeyThatWaitsHoldsUpOthersAfterManyOfItsOwn(t *testing.T) {
	for behind, want := range map[int]string{4000: "[0#1 4000#1]", 5000: "[0#1]"} {
		synctest.Test(t, func(t *testing.T) {
			b := open(t, objstore.NewMemory(), immediate())
			mustCreateTopic(t, b, "t", 1)
			q := b.Queue("t", "work")
			mustSet(t, q, seb.QueueUpdate{Order: new(seb.OrderKey)})
			records := make([]seb.Record, behind+1)
			for i := range records {
				records[i].Key = []byte("a")
			}
			records[behind].Key = []byte("b")
			if _, err := b.Append(t.Context(), "t", records); err != nil {
				t.Fatal(err)
			}
			out := mustReceive(t, q, 10, 30*time.Second)
			out = append(out, mustReceive(t, q, 10, 0)...)
			wantHanded(t, out, want)
		})
	}
}

// A record that the store has lost is tried as often as other records that fail, and then becomes a
// dead letter. In a queue with order by key, a lost record stops the queue until the record is
// deleted, since nobody can know its key.
func TestRecordThatIsLost(t *testing.T) {
	for _, order := range []seb.QueueOrder{seb.OrderNone, seb.OrderKey} {
		t.Run(string(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewBucket()
				first := openOnly(t, store, immediate())
				mustAppend(t, first, "t", large("in a data object", 5<<20))
				mustAppend(t, first, "t", "behind it")
				if err := first.Close(); err != nil {
					t.Fatal(err)
				}
				key := store.Keys(format.DataPrefix)[0]
				store.Put(key, store.Body(key)[:format.DataPayloadStart])
				b := open(t, store, immediate())
				q := b.Queue("t", "work")
				mustSet(t, q, seb.QueueUpdate{Order: &order, MaxAttempts: new(2)})
				_, err := q.Receive(t.Context(), seb.ReceiveOptions{})
				wantCode(t, err, seb.CodeDataLost)
				if order == seb.OrderKey {
					_, err := q.Receive(t.Context(), seb.ReceiveOptions{})
					wantCode(t, err, seb.CodeDataLost)
					if _, err := b.DeleteRecords(t.Context(), "t", 0, 1); err != nil {
						t.Fatal(err)
					}
					wantHanded(t, mustReceive(t, q, 1, 0), "[1#1]")
					return
				}
				for range 4 {
					time.Sleep(time.Hour)
					got, err := q.Receive(t.Context(), seb.ReceiveOptions{Wait: time.Minute})
					if err != nil {
						wantCode(t, err, seb.CodeDataLost)
					}
					if len(got) > 0 {
						mustAck(t, q, got...)
					}
				}
				info, err := q.Describe(t.Context())
				if err != nil || info.Dead != 1 || info.Ready+info.Held+info.Leased+info.Delayed != 0 {
					t.Errorf("%+v, %v", info, err)
				}
			})
		})
	}
}
