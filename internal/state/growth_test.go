package state

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/format"
)

// A state never takes more memory than its draft said.
func TestDraftNeverSaysTooLittleOfMemory(t *testing.T) {
	for _, queues := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) {
			w := &writer{State: New(), queues: queues}
			for range rapid.IntRange(1, 25).Draw(t, "commits") {
				before := w.Memory()
				c, d := w.commit(t)
				unused := int64(len(c.Data)) * objectMemory // brokers refer to no data objects without batches; this test does
				one := d.Memory() + unused
				all := w.Draft(c.Time).Measure()
				together := all.Memory() + all.Growth(c.Entries...) + unused
				if all.Memory() != before-w.Expiring(c.Time) {
					t.Fatalf("an empty draft takes %d of %d bytes", all.Memory(), before)
				}
				mustApply(t, w.State, c)
				if took := w.Memory(); took > one || took > together {
					t.Fatalf("%d bytes; the draft said %d entry by entry, %d of all", took, one, together)
				}
			}
		})
	}
}

// A commit may drop some of a partition's batches and append others.
func TestDraftNeverSaysTooLittleOfAPartitionWhoseStartMoves(t *testing.T) {
	append1 := func(base int) format.Entry {
		return &format.Batch{Topic: 1, Count: 1, Size: 61, Base: format.Offset(base)}
	}
	for held := range 20 {
		for gone := range held + 1 {
			for more := range 20 {
				s := New()
				mustApply(t, s, &format.Commit{Seq: 1, Entries: []format.Entry{&format.TopicCreated{ID: 1, Partitions: 1, Name: "a"}}})
				for i := range held {
					mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, PayloadSize: 61, Entries: []format.Entry{append1(i)}})
				}
				entries := []format.Entry{&format.StartMoved{Topic: 1, Start: format.Offset(gone)}}
				for i := range more {
					entries = append(entries, append1(held+i))
				}
				d := s.Draft(0).Measure()
				said := s.Memory() + d.Growth(entries...)
				mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, PayloadSize: 61, Entries: entries})
				if s.Memory() > said {
					t.Fatalf("%d of %d batches go and %d come: %d bytes; the draft said %d", gone, held, more, s.Memory(), said)
				}
			}
		}
	}
}

// An entry alone in its commit grows the state by exactly Growth, so no append is refused
// although it would fit.
func TestGrowthIsExactForWhatComesAlone(t *testing.T) {
	s := New()
	seq := format.Seq(0)
	apply := func(name string, at int64, entries ...format.Entry) {
		t.Helper()
		seq++
		d := s.Draft(at).Measure()
		want := s.Memory() - s.Expiring(at) + d.Growth(entries...)
		for _, it := range entries {
			if err := d.Take(it); err != nil {
				t.Fatal(name, err)
			}
		}
		taken := d.Memory()
		mustApply(t, s, &format.Commit{Seq: seq, Time: at, PayloadSize: 61, Entries: entries})
		if s.Memory() != want || taken != want {
			t.Errorf("%s: %d bytes; said to be %d, and %d when taken", name, s.Memory(), want, taken)
		}
	}
	apply("topic", 1, &format.TopicCreated{ID: 1, Partitions: 3, Name: "a"})
	for i := range format.Offset(600) {
		apply("batch", 1, &format.Batch{Topic: 1, Count: 10, Size: 61, Base: 10 * i})
	}
	apply("partitions", 1, &format.PartitionsAdded{Topic: 1, Partitions: 5})
	apply("consumer", 1, &format.ConsumerCreated{ID: 1, Topic: 1, Name: "c"}, moved(1, 0, 5))
	apply("the same position", 1, moved(1, 0, 7))
	apply("queue", 1, queueSet(1, 1, "q"), &format.QueuePurged{Queue: 1, Partition: 0, Before: 10})
	apply("owner", 1, owned(1, 1, 8000))
	apply("done in order", 1, runs(1, 0, 10, 5, 1))
	apply("done with a gap", 1, runs(1, 0, 20, 5, 1))
	apply("done next to it", 1, runs(1, 0, 25, 5, 1))
	apply("put back", 1, back(1, 0, 17, 1, false))
	apply("parked", 1, back(1, 0, 18, 1, true))
	apply("delayed", 1, &format.Batch{Topic: 1, Count: 10, Size: 61, Base: 6000}, delayedRun(1, 0, 6000, 10, 50))
	apply("keyed", 1, &format.AppendKeyed{Key: format.Digest{1}, Topic: 1, Ranges: []format.KeyedRange{{Count: 10}}})
	apply("what is due goes", 100, &format.TopicConfigured{Topic: 1})
	apply("what is old goes", 100+KeyedFor.Microseconds(), &format.TopicConfigured{Topic: 1})
}
