package state

import (
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
)

// zigzag returns a state with n batches of two records each, in several chunks, and the largest
// timestamps of the batches, which rise and fall.
func zigzag(t testing.TB, n int) (*State, []int64) {
	s := New()
	mustApply(t, s, &format.Commit{Seq: 1, Entries: []format.Entry{&format.TopicCreated{ID: 1, Partitions: 1, Name: "a"}}})
	times := make([]int64, n)
	for i := range times {
		times[i] = int64(i)/300*1000 - int64(i*37%101)
		mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, PayloadSize: 70, Entries: []format.Entry{
			&format.Batch{Topic: 1, Base: format.Offset(2 * i), Count: 2, Size: 70, MaxTime: times[i]},
		}})
	}
	return s, times
}

func TestLocateTimeFindsTheFirstBatchThatReachesIt(t *testing.T) {
	const n = 3*chunkBatches + 10
	applied, times := zigzag(t, n)
	for name, s := range map[string]*State{"applied": applied, "decoded": mustDecode(t, applied.Seq(), applied.View().Encode())} {
		for offset := format.Offset(-1); offset <= 2*n+1; offset += 3 {
			for ms := int64(-110); ms < 3100; ms += 49 {
				want := format.Offset(-1)
				for i, at := range times {
					if at >= ms && format.Offset(2*i+2) > offset {
						want = format.Offset(2 * i)
						break
					}
				}
				l, ok := s.LocateTime(s.TopicByID(1), 0, offset, ms)
				if ok != (want >= 0) || ok && (l.Base != want || l.Span != 2) {
					t.Fatalf("%s: time %d from offset %d on: batch at %d of %d, %v; want it at %d", name, ms, offset, l.Base, l.Span, ok, want)
				}
			}
		}
	}
	mustApply(t, applied, &format.Commit{Seq: applied.Seq() + 1, Entries: []format.Entry{&format.PartitionsAdded{Topic: 1, Partitions: 2}}})
	if l, ok := applied.LocateTime(applied.TopicByID(1), 1, 0, 0); ok {
		t.Errorf("an empty partition has a batch %+v", l)
	}
}
