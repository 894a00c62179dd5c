package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// Records that come again are not adjacent, and may have to be read one by one. A worker that asks for
// many at once must not get them after their leases have ended, when another worker may have them.
func TestMessagesAreHandedOutWithTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 200
		store := objstore.NewMemory()
		b := openOnly(t, store, kit.InVirtualTime(immediate()))
		q := queueOf(t, b, records, 20_000) // too large to be read together with the log
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(2)})
		mustReceive(t, q, 1, 0)
		kill(t, b)
		q = open(t, storetest.Slow(store, 200*time.Millisecond), kit.InVirtualTime(immediate())).Queue("t", "work")
		mustReceive(t, q, 1, 0)
		time.Sleep(31 * time.Second) // all of the records may have been with workers
		seen := 0
		for range 20 {
			ms, err := q.Receive(t.Context(), seb.ReceiveOptions{Max: records, MaxBytes: 1 << 30, Wait: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range ms {
				if left := time.Until(m.LeasedUntil); left < 10*time.Second {
					t.Fatalf("the worker has %v for offset %d", left, m.Offset)
				}
			}
			if len(ms) > 0 {
				mustAck(t, q, ms...)
			}
			if seen += len(ms); seen == records {
				return
			}
		}
		info, err := q.Describe(t.Context())
		t.Errorf("%d of %d records were handed out; %+v, %v", seen, records, info, err)
	})
}
