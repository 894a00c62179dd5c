package state

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb/internal/format"
)

func spent(cause format.Cause, use format.StoreUse) *format.Spent {
	return &format.Spent{Causes: []format.CauseUse{{Cause: cause, StoreUse: use}}}
}

// raisedState has applied a commit that raises the level of the log.
func raisedState(t testing.TB) *State {
	s := New()
	mustApply(t, s, &format.Commit{Seq: 1, Time: 1, Entries: []format.Entry{
		&format.LevelRaised{Level: format.LevelSegments, DeleteDelay: time.Hour}, &format.TopicCreated{ID: 1, Name: "t", Partitions: 1},
	}})
	return s
}

// spendAt applies a commit at that time, and goes on from its snapshot.
func spendAt(t testing.TB, s *State, at time.Time, entries ...format.Entry) *State {
	t.Helper()
	before := s.Memory()
	grown := s.Draft(at.UnixMicro()).Measure().Growth(entries...)
	mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: at.UnixMicro(), Entries: entries})
	if s.Memory() > before+grown {
		t.Errorf("the state grew by %d bytes, and the draft said %d", s.Memory()-before, grown)
	}
	got := mustDecode(t, s.Seq(), s.View().Encode())
	requireSame(t, got, s)
	if got.Memory() != s.Memory() || !cmp.Equal(got.Spending(), s.Spending()) {
		t.Errorf("the decoded state has %d bytes and %+v, not %d and %+v", got.Memory(), got.Spending(), s.Memory(), s.Spending())
	}
	return got
}

func TestSpendingIsSummedByMonthAndCause(t *testing.T) {
	s := raisedState(t)
	put, get := format.StoreUse{Creates: 2, SentBytes: 100}, format.StoreUse{Gets: 3, ReceivedBytes: 1000}
	october := time.Date(2026, 10, 31, 23, 59, 59, 999_999_000, time.UTC)
	november := october.Add(time.Microsecond)
	view := s.View()
	s = spendAt(t, s, october.Add(-time.Hour), spent(format.CauseRead, get))
	s = spendAt(t, s, october, spent(format.CauseAppend, put), spent(format.CauseRead, get))
	s = spendAt(t, s, november, spent(format.CauseRead, get))
	want := []Spending{
		{MonthOf(october.UnixMicro()), october.Add(-time.Hour).UnixMicro(), []format.CauseUse{{Cause: format.CauseAppend, StoreUse: put}, {Cause: format.CauseRead, StoreUse: get.Plus(get)}}},
		{MonthOf(november.UnixMicro()), november.UnixMicro(), []format.CauseUse{{Cause: format.CauseRead, StoreUse: get}}},
	}
	if !cmp.Equal(s.Spending(), want) {
		t.Errorf("brokers have spent %+v, not %+v", s.Spending(), want)
	}
	if sum := s.Spending()[0].Sum(); sum != (format.StoreUse{Creates: 2, Gets: 6, SentBytes: 100, ReceivedBytes: 2000}) {
		t.Errorf("the sum of October is %+v", sum)
	}
	if start := MonthOf(november.UnixMicro()).Start(); !start.Equal(november) {
		t.Errorf("November starts at %v", start)
	}
	if len(view.spending) != 0 {
		t.Error("an earlier view has changed")
	}
	view = s.View()
	s = spendAt(t, s, november.Add(time.Hour), spent(format.CauseRead, format.StoreUse{Gets: math.MaxInt64}))
	if got := s.Spending()[1].Causes[0].Gets; got != math.MaxInt64 || view.spending[1].Causes[0].Gets != 3 {
		t.Errorf("the sum beyond the largest number is %d; an earlier view says %d", got, view.spending[1].Causes[0].Gets)
	}
}

func TestOldMonthsOfSpendingGo(t *testing.T) {
	s := raisedState(t)
	one := format.StoreUse{Lists: 1}
	first := time.Date(2025, 1, 15, 0, 0, 0, 0, time.UTC)
	var all []format.CauseUse
	for c := format.CauseStart; c <= format.CausesMax; c++ {
		all = append(all, format.CauseUse{Cause: c, StoreUse: one})
	}
	most := int64(0)
	for i := range 40 {
		s = spendAt(t, s, first.AddDate(0, i, 0), &format.Spent{Causes: all})
		if n := len(s.Spending()); n != min(i+1, MonthsKept) {
			t.Fatalf("after %d months the state has %d", i+1, n)
		}
		if i < MonthsKept {
			most = s.Memory()
		} else if s.Memory() != most {
			t.Fatalf("after %d months the state takes %d bytes, after 13 it took %d", i+1, s.Memory(), most)
		}
	}
	s = spendAt(t, s, first.AddDate(9, 0, 0), spent(format.CauseRead, one))
	if len(s.Spending()) != 1 {
		t.Errorf("years later the state has %d months", len(s.Spending()))
	}
}

func TestSpendingNeedsLevel6(t *testing.T) {
	s := New()
	mustApply(t, s, &format.Commit{Seq: 1, Time: 1, Entries: []format.Entry{&format.TopicCreated{ID: 1, Name: "t", Partitions: 1}}})
	if err := s.Apply(&format.Commit{Seq: 2, Time: 2, Entries: []format.Entry{spent(format.CauseRead, format.StoreUse{Gets: 1})}}); !errors.Is(err, ErrNonsense) {
		t.Errorf("below level 6: %v", err)
	}
}

// A snapshot of version 6 that an earlier version of Seb has written ends before the section.
func TestSectionsAtTheEndOfASnapshot(t *testing.T) {
	s := raisedState(t)
	plain := s.View().Encode()
	withSpending := spendAt(t, s, time.UnixMicro(2), spent(format.CauseRead, format.StoreUse{Gets: 7}))
	requireSame(t, mustDecode(t, 1, plain), raisedState(t))
	tail := withSpending.View().Encode()
	section := []byte{0, 1, 0xd8, 0xb8, 1, 2, 1, 4, 0, 7, 0, 0, 0, 0} // no flags; January 1970
	if !bytes.HasSuffix(tail, section) {
		t.Fatalf("the snapshot ends in %v, not in %v", tail[len(tail)-len(section):], section)
	}
	body := tail[:len(tail)-len(section)]
	if got := mustDecode(t, 2, body); len(got.Spending()) != 0 || got.TopicCount() != 1 {
		t.Error("a snapshot without the sections is not read")
	}
	for name, bad := range map[string][]byte{
		"an empty section of flags":     {0},
		"two empty sections":            {0, 0},
		"a section too many":            append(slices.Clone(section), 0),
		"the month is another":          {0, 1, 0xd9, 0xb8, 1, 2, 1, 4, 0, 7, 0, 0, 0, 0},
		"after the log's time":          {0, 1, 0xd8, 0xb8, 1, 3, 1, 4, 0, 7, 0, 0, 0, 0},
		"no causes":                     {0, 1, 0xd8, 0xb8, 1, 2, 0},
		"no requests":                   {0, 1, 0xd8, 0xb8, 1, 2, 1, 4, 0, 0, 0, 0, 0, 0},
		"cause 0":                       {0, 1, 0xd8, 0xb8, 1, 2, 1, 0, 0, 7, 0, 0, 0, 0},
		"cause 32":                      {0, 1, 0xd8, 0xb8, 1, 2, 1, 32, 0, 7, 0, 0, 0, 0},
		"a cause twice":                 {0, 1, 0xd8, 0xb8, 1, 2, 2, 4, 0, 7, 0, 0, 0, 0, 4, 0, 7, 0, 0, 0, 0},
		"a month twice":                 {0, 2, 0xd8, 0xb8, 1, 2, 1, 4, 0, 7, 0, 0, 0, 0, 0xd8, 0xb8, 1, 2, 1, 4, 0, 7, 0, 0, 0, 0},
		"more months than there can be": {0, 0x7f, 0xd8, 0xb8, 1},
	} {
		if _, err := Decode(2, append(slices.Clone(body), bad...)); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := 1; n < len(section); n++ {
		if _, err := Decode(2, tail[:len(body)+n]); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("the first %d bytes of the sections: %v", n, err)
		}
	}
}

func TestSpendingOfAnotherHistoryDoesNotContinue(t *testing.T) {
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	of := func(at time.Time, cause format.Cause, gets int64) *State {
		return spendAt(t, raisedState(t), at, spent(cause, format.StoreUse{Gets: gets}))
	}
	old := of(at, format.CauseRead, 7)
	for name, later := range map[string]*State{
		"less":          of(at, format.CauseRead, 6),
		"another cause": of(at, format.CauseFollow, 9),
		"nothing":       spendAt(t, raisedState(t), at, &format.TopicCreated{ID: 2, Name: "u", Partitions: 1}),
	} {
		if err := later.Continues(old); !errors.Is(err, ErrDiscontinued) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, later := range []*State{of(at, format.CauseRead, 7), of(at.Add(time.Hour), format.CauseRead, 8), of(at.AddDate(2, 0, 0), format.CauseAppend, 1)} {
		if err := later.Continues(old); err != nil {
			t.Error(err)
		}
	}
}
