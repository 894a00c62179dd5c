package seb_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// An owner whose commits fail hands out no records beyond the dispatch limit in the log. So the records that
// the next owner hands out as first attempts are not those that the lost owner has handed out.
func TestNothingIsHandedOutBeyondTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 20_000
		memory, faulty := newFaulty()
		b, q := openQueueOn(t, faulty, 0, seb.QueueUpdate{})
		if _, err := b.Append(t.Context(), "t", batchOf(records, 1)); err != nil {
			t.Fatal(err)
		}
		var last seb.Offset
		for last < 1000 { // takes the queue over, and makes its dispatch limit grow
			ms := mustReceive(t, q, 1000, time.Second)
			last = ms[len(ms)-1].Offset
		}
		release := make(chan struct{})
		faulty.On(objstore.VerbCreate, "log/", storetest.Hold(release))
		for before := last; ; {
			if last >= before+5000 {
				t.Fatalf("without commits it has handed out from %d up to %d", before, last)
			}
			ms := mustReceive(t, q, 1000, 0)
			if len(ms) == 0 {
				break
			}
			last = ms[len(ms)-1].Offset
		}
		next := open(t, memory, kit.InVirtualTime(immediate())).Queue("t", "work")
		for _, m := range mustReceive(t, next, 1000, 0) {
			if m.Attempt != 1 || m.Offset <= last {
				t.Fatalf("offset %d is handed out as attempt %d, after %d was handed out", m.Offset, m.Attempt, last)
			}
		}
		close(release)
	})
}

// Before records of an added partition are handed out, the log must have a dispatch limit for it. Receivers
// that don't wait are delayed only briefly by that commit: several of them share the records, and the others
// soon get none. While nothing can be committed, no receiver gets records.
func TestReceiversThatDoNotWaitAreHeldUpByACommitForAShortTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b, q := openQueueOn(t, storetest.Slow(faulty, 50*time.Millisecond), 1, seb.QueueUpdate{})
		mustReceive(t, q, 1, 0)
		addPartition := func(n int32) {
			if _, err := b.UpdateTopic(t.Context(), "t", seb.TopicUpdate{Partitions: &n}); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Append(t.Context(), "t", batchOf(3, 1), seb.ToPartition(n-1)); err != nil {
				t.Fatal(err)
			}
		}
		receive := func(patience time.Duration) (n int, took time.Duration) {
			began := time.Now()
			var all, patient []<-chan []seb.Message
			for i := range 12 {
				if i < 3 || i > 8 {
					all = append(all, waiting(t, q, 0))
				} else { // these wait for longer than the others
					patient = append(patient, waiting(t, q, patience))
				}
			}
			for _, got := range all {
				n += len(<-got)
			}
			took = time.Since(began)
			for _, got := range patient {
				n += len(<-got)
			}
			return n, took
		}
		addPartition(2)
		if n, took := receive(10 * time.Second); n != 3 || took > time.Second {
			t.Errorf("%d of 3 records are handed out, in %v", n, took)
		}
		addPartition(3)
		release := make(chan struct{})
		faulty.On(objstore.VerbCreate, "log/", storetest.Hold(release))
		if n, took := receive(0); n != 0 || took > 10*time.Second {
			t.Errorf("without commits %d records are handed out, in %v", n, took)
		}
		close(release)
		synctest.Wait()
		if n, took := receive(10 * time.Second); n != 3 || took > time.Second {
			t.Errorf("then %d of 3 records are handed out, in %v", n, took)
		}
	})
}

// A commit to many partitions checks the dispatch limits of a queue only once, since a check goes through all
// partitions.
func TestCommitToManyPartitionsChecksAQueuesLimitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, q := openQueueOn(t, objstore.NewMemory(), 1, seb.QueueUpdate{})
		mustReceive(t, q, 1, 0)
		time.Sleep(time.Minute) // until the owner has committed its dispatch limit
		mustAppend(t, b, "t", "v")
		if n := seb.OwnersBehind(b, "t", 100); n != 1 {
			t.Errorf("the limits of one queue are checked %d times, want once", n)
		}
	})
}
