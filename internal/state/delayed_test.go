package state

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
)

// delayedState has ten records in the one partition of topic 1.
func delayedState(t testing.TB) *State {
	s := New()
	mustApply(t, s, &format.Commit{Seq: 1, Time: 10, PayloadSize: 61, Entries: []format.Entry{
		&format.TopicCreated{ID: 1, Partitions: 1, Name: "a"}, &format.Batch{Topic: 1, Count: 10, Size: 61},
	}})
	return s
}

// delaying returns a commit that appends ten records and delays some of them.
func delaying(s *State, at int64, delays ...format.Entry) *format.Commit {
	entries := []format.Entry{&format.Batch{Topic: 1, Base: s.end(1, 0), Count: 10, Size: 61}}
	return &format.Commit{Seq: s.Seq() + 1, Time: at, PayloadSize: 61, Entries: append(entries, delays...)}
}

func TestRecordsAreDelayedUntilTheFoldIsAtTheirTime(t *testing.T) {
	s := delayedState(t)
	memory := s.Memory()
	mustApply(t, s, delaying(s, 20, // some due at the same time, some not in order, one already due
		delayedRun(1, 0, 17, 1, 40), delayedRun(1, 0, 10, 2, 40), delayedRun(1, 0, 12, 1, 30), delayedRun(1, 0, 14, 1, 20), delayedRun(1, 0, 13, 1, 40)))
	starts := func() (offsets []format.Offset) {
		for _, x := range s.Delayed() {
			offsets = append(offsets, x.Offset)
		}
		return offsets
	}
	for _, step := range []struct {
		at   int64
		left []format.Offset
	}{{20, []format.Offset{12, 10, 13, 17}}, {29, []format.Offset{12, 10, 13, 17}}, {30, []format.Offset{10, 13, 17}}, {39, []format.Offset{10, 13, 17}}, {40, nil}} {
		if n := s.Draft(step.at).DelayedCount(); n != len(step.left) {
			t.Errorf("at %d a draft tells of %d runs, not %d", step.at, n, len(step.left))
		}
		mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: step.at, Entries: []format.Entry{&format.UnknownEntry{Kind: 99}}})
		if got := starts(); !slices.Equal(got, step.left) {
			t.Errorf("at %d the runs begin at %v, not %v", step.at, got, step.left)
		}
		requireSame(t, mustDecode(t, s.Seq(), s.View().Encode()), s)
	}
	if left := s.Memory() - memory; left > objectMemory+batchMemory*4 {
		t.Errorf("%d bytes are left", left)
	}
}

// Runs that are due don't count against the bound, even if no later commit removes them.
func TestWhatIsDueDoesNotCountAsDelayed(t *testing.T) {
	s := delayedState(t)
	var entries []format.Entry
	for i := range format.Offset(10) {
		entries = append(entries, delayedRun(1, 0, 10+i, 1, 100+i))
	}
	mustApply(t, s, delaying(s, 20, entries...))
	for at := format.Offset(95); at < 115; at++ {
		d := s.Draft(int64(at))
		want := int(min(10, max(0, 109-at)))
		if n := d.DelayedCount(); n != want {
			t.Errorf("at %d there are %d, not %d", at, n, want)
		}
		for _, it := range delaying(s, int64(at), delayedRun(1, 0, 20, 1, at), delayedRun(1, 0, 21, 1, at+1)).Entries {
			if err := d.Take(it); err != nil {
				t.Fatal(err)
			}
		}
		if n := d.DelayedCount(); n != want+1 {
			t.Errorf("at %d there are %d with one more, not %d", at, n, want+1)
		}
	}
}

func TestNonsenseAboutDelaysIsRefused(t *testing.T) {
	fine := []format.Entry{delayedRun(1, 0, 14, 2, 50), delayedRun(1, 0, 11, 2, 50), delayedRun(1, 0, 13, 1, 50)}
	for name, it := range map[string]format.Entry{
		"that was there before":    delayedRun(1, 0, 9, 2, 50),
		"twice":                    delayedRun(1, 0, 11, 1, 50),
		"twice in part":            delayedRun(1, 0, 15, 2, 60),
		"over another":             delayedRun(1, 0, 10, 9, 60),
		"beyond the end":           delayedRun(1, 0, 19, 2, 50),
		"far beyond the end":       delayedRun(1, 0, math.MaxInt64-1, 2, 50),
		"billions":                 delayedRun(1, 0, 16, math.MaxUint32, 50),
		"none":                     delayedRun(1, 0, 16, 0, 50),
		"before 0":                 delayedRun(1, 0, -1, 1, 50),
		"until before time begins": delayedRun(1, 0, 16, 1, -1),
		"in no partition":          delayedRun(1, 1, 16, 1, 50),
		"in no topic":              delayedRun(2, 0, 16, 1, 50),
	} {
		s := delayedState(t)
		before, memory := s.View().Encode(), s.Memory()
		if err := s.Apply(delaying(s, 30, append(slices.Clone(fine), it)...)); !errors.Is(err, ErrNonsense) {
			t.Errorf("%s: %v", name, err)
		}
		if string(s.View().Encode()) != string(before) || s.Memory() != memory {
			t.Errorf("%s: the state has changed", name)
		}
		mustApply(t, s, delaying(s, 30, fine...))
	}
}

func TestDelaysHaveABound(t *testing.T) {
	s := delayedState(t)
	s.delayed = make(delayed, DelayedMax)
	s.delayed[0].Due = 99 // the first run is not due, so due must not visit the others
	d := s.Draft(30)
	if err := d.Take(delaying(s, 30).Entries[0]); err != nil {
		t.Fatal(err)
	}
	if err := d.Take(delayedRun(1, 0, 10, 1, 500)); !errors.Is(err, ErrNonsense) {
		t.Error(err)
	}
}

func TestDelaysContinue(t *testing.T) {
	fold := func(upTo int64, delays ...format.Entry) *State {
		s := delayedState(t)
		mustApply(t, s, delaying(s, 20, delays...))
		mustApply(t, s, delaying(s, upTo, delayedRun(1, 0, 25, 1, 99)))
		return s
	}
	deleted := fold(20, delayedRun(1, 0, 10, 1, 50))
	mustApply(t, deleted, &format.Commit{Seq: 4, Time: 20, Entries: []format.Entry{&format.TopicDeleted{ID: 1}}})
	old := delayedState(t)
	mustApply(t, old, delaying(old, 20, delayedRun(1, 0, 10, 1, 50), delayedRun(1, 0, 11, 1, 60)))
	for name, test := range map[string]struct {
		now  *State
		fork bool
	}{
		"the same and more":  {fold(20, delayedRun(1, 0, 11, 1, 60), delayedRun(1, 0, 10, 1, 50)), false},
		"one is due":         {fold(50, delayedRun(1, 0, 10, 1, 50), delayedRun(1, 0, 11, 1, 60)), false},
		"the topic is gone":  {deleted, false},
		"one is not there":   {fold(20, delayedRun(1, 0, 10, 1, 50)), true},
		"one has other time": {fold(20, delayedRun(1, 0, 10, 1, 50), delayedRun(1, 0, 11, 1, 61)), true},
		"one is too many":    {fold(20, delayedRun(1, 0, 10, 1, 50), delayedRun(1, 0, 11, 1, 60), delayedRun(1, 0, 12, 1, 60)), true},
	} {
		if err := test.now.Continues(old); (err != nil) != test.fork || err != nil && !errors.Is(err, ErrDiscontinued) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// BenchmarkDelay delays a record and lets another become due, in a state with many delayed
// records.
func BenchmarkDelay(b *testing.B) {
	for name, n := range map[string]int{"1e3": 1e3, "1e6": 1e6} {
		b.Run(name, func(b *testing.B) {
			s := delayedState(b)
			for i := range n {
				s.delay(delayedRun(1, 0, format.Offset(i), 1, 100+format.Offset(i*7919%n)))
			}
			s.time = 99
			b.ReportAllocs()
			for b.Loop() {
				s.time++
				s.expireDelayed()
				s.delay(delayedRun(1, 0, format.Offset(s.time), 1, format.Offset(s.time+int64(n))))
			}
		})
	}
}
