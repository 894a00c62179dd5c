package seb_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// The bytes that a broker prefetches are bounded, however many queues there are from which a worker has
// received one record. Nevertheless each queue hands out all of its records.
func TestReadAheadOfManyQueuesIsBounded(t *testing.T) {
	for _, order := range []seb.QueueOrder{seb.OrderNone, seb.OrderKey} {
		t.Run(string(order), func(t *testing.T) {
			const queues, records = 20, 30
			opts := immediate()
			opts.Memory = 16 << 20
			b := open(t, objstore.NewMemory(), opts)
			var qs []*seb.Queue
			for i := range queues {
				topic := fmt.Sprintf("t%d", i)
				mustCreateTopic(t, b, topic, 1)
				qs = append(qs, b.Queue(topic, "work"))
				mustSet(t, qs[i], seb.QueueUpdate{Order: &order})
				rs := make([]seb.Record, records)
				for j := range rs {
					rs[j] = seb.Record{Key: fmt.Append(nil, j), Value: []byte(fmt.Sprint(j) + strings.Repeat("-", 10_000))}
				}
				if _, err := b.Append(t.Context(), topic, rs); err != nil {
					t.Fatal(err)
				}
			}
			for n := range records {
				for _, q := range qs {
					ms := mustReceive(t, q, 1, 0)
					if len(ms) != 1 || int(ms[0].Offset) != n || !strings.HasPrefix(string(ms[0].Value), fmt.Sprint(n)+"-") || string(ms[0].Key) != fmt.Sprint(n) {
						t.Fatalf("received %s, and not %d", handed(ms), n)
					}
				}
				if kept, counted := seb.ReadAhead(b); kept > opts.Memory/16 || counted < kept {
					t.Fatalf("keeps %d bytes, and counts them as %d", kept, counted)
				}
			}
			for _, q := range qs {
				if err := q.Delete(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if kept, counted := seb.ReadAhead(b); kept != 0 || counted != 0 {
				t.Errorf("keeps %d bytes of queues that are gone, and counts them as %d", kept, counted)
			}
		})
	}
}
