package change_test

import (
	"testing"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/format"
)

func ends(offsets ...format.Offset) (ps []format.Position) {
	for p, o := range offsets {
		ps = append(ps, format.Position{Partition: format.Partition(p), Offset: o})
	}
	return ps
}

// ifEnds returns a commit with conditions, and a change that makes an entry.
func ifEnds(all ...change.CommitEnds) *change.Commit {
	x := &change.Commit{Ends: all, Moves: []change.CommitMove{{MoveConsumer: change.MoveConsumer{
		ConsumerName: change.ConsumerName{Topic: "t", Consumer: "c"}, To: []format.Position{{Offset: 7}},
	}}}}
	return x
}

func TestCommitConditions(t *testing.T) {
	const changed = "; the log has changed since you read it: take another cut, read up to it, then decide again"
	moved := entries{&format.PositionsMoved{Consumer: 1, Positions: []format.Position{{Offset: 7}}}}
	after := func(us int64) *change.Commit {
		x := ifEnds(change.CommitEnds{Topic: "t", ID: 1, Ends: ends(12, 0)})
		x.After = us
		return x
	}
	cases{
		{"they hold", ifEnds(change.CommitEnds{Topic: "t", ID: 1, Ends: ends(12, 0)}, change.CommitEnds{Topic: "dead", ID: 2, Ends: ends(0)}), moved, ""},
		{"a record came", ifEnds(change.CommitEnds{Part: "ends/0", Topic: "t", ID: 1, Ends: ends(11, 0)}), nil,
			`ends_conflict: ends/0: partition 0 of topic "t" ended at offset 12 before the commit, not at 11` + changed},
		{"a record is yet to come", ifEnds(change.CommitEnds{Part: "ends/0", Topic: "t", ID: 1, Ends: ends(12, 1)}), nil,
			`ends_conflict: ends/0: partition 1 of topic "t" ended at offset 0 before the commit, not at 1` + changed},
		{"the second of two", ifEnds(change.CommitEnds{Part: "ends/0", Topic: "t", ID: 1, Ends: ends(12, 0)}, change.CommitEnds{Part: "ends/1", Topic: "dead", ID: 2, Ends: ends(1)}), nil,
			`ends_conflict: ends/1: partition 0 of topic "dead" ended at offset 0 before the commit, not at 1` + changed},
		{"a partition was added", ifEnds(change.CommitEnds{Part: "ends/0", Topic: "t", ID: 1, Ends: ends(12)}), nil,
			`ends_conflict: ends/0: topic "t" has 2 partitions, and the condition names only 1 of them` + changed},
		{"no partition", ifEnds(change.CommitEnds{Part: "ends/0", Topic: "t", ID: 1}), nil,
			`ends_conflict: ends/0: topic "t" has 2 partitions, and the condition names only 0 of them` + changed},
		{"a partition too many", ifEnds(change.CommitEnds{Part: "ends/0", Topic: "t", ID: 1, Ends: ends(12, 0, 0)}), nil,
			`ends_conflict: ends/0: topic "t" has 2 partitions, from 0 on; the condition names partition 2` + changed},
		{"another partition", ifEnds(change.CommitEnds{Part: "ends/0", Topic: "t", ID: 1, Ends: []format.Position{{Offset: 12}, {Partition: 2}}}), nil,
			`ends_conflict: ends/0: topic "t" has 2 partitions, from 0 on; the condition names partition 2` + changed},
		{"another topic of that name", ifEnds(change.CommitEnds{Part: "ends/0", Topic: "t", ID: 2, Ends: ends(12, 0)}), nil,
			`ends_conflict: ends/0: topic "t" has another id: it was deleted and created again, or the id is from another log` + changed},
		{"a topic of another log", ifEnds(change.CommitEnds{Part: "ends/0", Topic: "t", Ends: ends(12, 0)}), nil,
			`ends_conflict: ends/0: topic "t" has another id: it was deleted and created again, or the id is from another log` + changed},
		{"a deleted topic", ifEnds(change.CommitEnds{Part: "ends/0", Topic: "none", ID: 3, Ends: ends(0)}), nil,
			`ends_conflict: ends/0: there is no topic "none"` + changed},
		{"one microsecond before the commit", after(logTime - 1), moved, ""},
		{"the time of the commit", after(logTime), nil,
			`too_early: after: the log time of the commit would be 1970-01-01T00:00:01.000000Z; it must be later than 1970-01-01T00:00:01.000000Z; wait, then send the commit again`},
		{"later than the commit", after(logTime + 1), nil,
			`too_early: after: the log time of the commit would be 1970-01-01T00:00:01.000000Z; it must be later than 1970-01-01T00:00:01.000001Z; wait, then send the commit again`},
		{"conditions alone", &change.Commit{Ends: []change.CommitEnds{{Topic: "t", ID: 1, Ends: ends(12, 0)}}, After: 1}, nil, ""},
	}.run(t)
}

// Earlier requests of the same commit change nothing in the slot before it: their records have the log time of the commit.
func TestEndsAreThoseOfTheSlotBefore(t *testing.T) {
	s := logState(t)
	d := s.Draft(logTime + 1)
	for _, e := range []format.Entry{
		&format.Batch{Topic: 1, Partition: 1, Count: 3, Size: 1},
		&format.PartitionsAdded{Topic: 2, Partitions: 2},
		&format.TopicCreated{ID: 3, Partitions: 1, Name: "new"},
	} {
		if err := d.Take(e); err != nil {
			t.Fatal(err)
		}
	}
	x := ifEnds(change.CommitEnds{Topic: "t", ID: 1, Ends: ends(12, 0)}, change.CommitEnds{Topic: "dead", ID: 2, Ends: ends(0)})
	x.After = logTime
	if _, err := x.Apply(d); err != nil {
		t.Error(err)
	}
	for _, e := range []change.CommitEnds{
		{Topic: "t", ID: 1, Ends: ends(12, 3)},
		{Topic: "dead", ID: 2, Ends: ends(0, 0)},
		{Topic: "new", ID: 3, Ends: ends(0)},
	} {
		if _, err := ifEnds(e).Apply(d); code(err) != change.CodeEndsConflict {
			t.Errorf("%+v: %v", e, err)
		}
	}

	if err := s.Apply(&format.Commit{Seq: 2, Time: logTime + 1, Entries: []format.Entry{&format.Batch{Topic: 1, Partition: 1, Count: 3, Size: 1}}}); err != nil {
		t.Fatal(err)
	}
	next := s.Draft(logTime + 2)
	if _, err := x.Apply(next); code(err) != change.CodeEndsConflict {
		t.Errorf("one slot later: %v", err)
	}
	if _, err := ifEnds(change.CommitEnds{Topic: "t", ID: 1, Ends: ends(12, 3)}).Apply(next); err != nil {
		t.Error(err)
	}
}

// A topic that was deleted and created again has ends that are equal, and another id.
func TestEndsOfARecreatedTopic(t *testing.T) {
	s := logState(t)
	x := ifEnds(change.CommitEnds{Topic: "dead", ID: 2, Ends: ends(0)})
	if _, err := x.Apply(s.Draft(logTime + 1)); err != nil {
		t.Fatal(err)
	}
	err := s.Apply(&format.Commit{Seq: 2, Time: logTime + 1, Entries: []format.Entry{
		&format.TopicDeleted{ID: 2}, &format.TopicCreated{ID: 3, Partitions: 1, Name: "dead"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Apply(s.Draft(logTime + 2)); code(err) != change.CodeEndsConflict {
		t.Error(err)
	}
	x.Ends[0].ID = 3
	if _, err := x.Apply(s.Draft(logTime + 2)); err != nil {
		t.Error(err)
	}
}

func code(err error) string {
	if r, ok := err.(*change.Refusal); ok { //nolint:errorlint // Apply returns it as it is
		return r.Code
	}
	return ""
}
