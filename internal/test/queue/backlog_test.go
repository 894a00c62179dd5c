package queue_test

import (
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// TestBacklogCostsNoMemory checks that a queue takes as much memory with a million records as with a
// thousand.
func TestBacklogCostsNoMemory(t *testing.T) {
	taken := func(backlog int) int64 {
		store, err := objstore.OpenDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		opts := immediate()
		opts.Memory = 16 << 20 // the cache's share is full in both cases
		b := open(t, store, opts)
		mustCreateTopic(t, b, "t", 1)
		records := batchOf(min(backlog, 50_000), 8)
		for n := 0; n < backlog; n += len(records) {
			if _, err := b.Append(t.Context(), "t", records); err != nil {
				t.Fatal(err)
			}
		}
		before := heap()
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		for range 50 {
			mustAck(t, q, mustReceive(t, q, 10, 0)[1:]...) // one of ten stays with the worker
		}
		wantLeft(t, q, int64(backlog)-450)
		return heap() - before
	}
	few, many := taken(1000), taken(1_000_000)
	t.Logf("of a thousand records it takes %d bytes, of a million %d", few, many)
	if many > few+4<<20 {
		t.Errorf("a queue takes %d bytes of a thousand records, and %d of a million", few, many)
	}
}
