package state

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/format"
)

// Each state of a log continues every earlier one.
func TestLaterStatesContinueEarlierOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &writer{State: New()}
		states := []*State{New()}
		for range rapid.IntRange(1, 12).Draw(t, "commits") {
			c, _ := w.commit(t)
			mustApply(t, w.State, c)
			s, err := Decode(c.Seq, w.View().Encode())
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, s)
		}
		for i, old := range states {
			for _, later := range states[i:] {
				if err := later.Continues(old); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// A state does not continue one of another log, even if the two logs differ only in their last
// commits.
func TestStateOfAnotherHistoryDoesNotContinue(t *testing.T) {
	topic := &format.TopicCreated{ID: 1, Name: "t", Partitions: 2}
	row := func(base format.Offset, count, crc uint32) *format.Batch {
		return &format.Batch{Topic: 1, Partition: 1, Base: base, Count: count, Size: 70, CRC: crc}
	}
	fold := func(rows ...*format.Batch) *State {
		s := New()
		if err := s.Apply(&format.Commit{Seq: 1, Entries: []format.Entry{topic}}); err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			if err := s.Apply(&format.Commit{Seq: format.Seq(2 + i), PayloadSize: 70, Entries: []format.Entry{r}}); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	old := fold(row(0, 2, 7), row(2, 2, 8))
	apply := func(s *State, seq format.Seq, entry format.Entry) {
		if err := s.Apply(&format.Commit{Seq: seq, Entries: []format.Entry{entry}}); err != nil {
			t.Fatal(err)
		}
	}
	deleted, never := fold(row(0, 2, 7), row(2, 2, 8)), New()
	apply(deleted, 4, &format.TopicDeleted{ID: 1})
	for seq := range format.Seq(4) {
		apply(never, seq+1, &format.UnknownEntry{Kind: 999})
	}
	tests := map[string]struct {
		now  *State
		fork bool
	}{
		"the same, and more":      {fold(row(0, 2, 7), row(2, 2, 8), row(4, 1, 9)), false},
		"another batch, and more": {fold(row(0, 2, 7), row(2, 2, 5), row(4, 1, 9)), true},
		"cut in other places":     {fold(row(0, 1, 7), row(1, 3, 8), row(4, 1, 9)), true},
		"shorter":                 {fold(row(0, 2, 7), row(2, 1, 8)), true},
		"of an earlier slot":      {fold(row(0, 2, 7)), true},
		"nothing where there was": {fold(), true},
		"the topic deleted":       {deleted, false},
		"the topic never created": {never, true},
	}
	for name, test := range tests {
		if err := test.now.Continues(old); (err != nil) != test.fork || err != nil && !errors.Is(err, ErrDiscontinued) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
