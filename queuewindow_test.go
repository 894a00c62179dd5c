package seb_test

import (
	"testing"
	"testing/synctest"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// TestNothingIsHandedOutBeyondTheWindow has an owner whose commits don't get through stop where
// the log says that it may be: so the next one hands out nothing for the first time again.
func TestNothingIsHandedOutBeyondTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 20_000
		memory, faulty := newFaulty()
		b, q := openQueueOn(t, faulty, 0, seb.QueueUpdate{})
		if _, err := b.Append(t.Context(), "t", batchOf(records, 1)); err != nil {
			t.Fatal(err)
		}
		mustReceive(t, q, 1, 0) // which takes the queue over
		release := make(chan struct{})
		faulty.On(objstore.VerbCreate, "log/", storetest.Hold(release))
		var last seb.Offset
		for {
			ms := mustReceive(t, q, 1000, 0)
			if len(ms) == 0 {
				break
			}
			last = ms[len(ms)-1].Offset
		}
		if last < 1000 || last >= records-1000 {
			t.Fatalf("without commits it has handed out up to %d", last)
		}
		next := open(t, memory, seb.InVirtualTime(immediate())).Queue("t", "work")
		for _, m := range mustReceive(t, next, 1000, 0) {
			if m.Attempt != 1 || m.Offset <= last {
				t.Fatalf("offset %d is handed out as attempt %d, after %d was handed out", m.Offset, m.Attempt, last)
			}
		}
		close(release)
	})
}
