package state

import (
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
)

// The requests of a commit, also those of other brokers' bundles, are built on one draft. TopicBefore sees nothing of them.
func TestTopicBeforeIsThatOfTheSlotBefore(t *testing.T) {
	s := New()
	commit := func(entries ...format.Entry) {
		t.Helper()
		if err := s.Apply(&format.Commit{Seq: s.Seq() + 1, Time: s.Time() + 1, Entries: entries}); err != nil {
			t.Fatal(err)
		}
	}
	commit(&format.TopicCreated{ID: 1, Partitions: 1, Name: "t"}, &format.TopicCreated{ID: 2, Partitions: 1, Name: "gone"})
	commit(&format.Batch{Topic: 1, Count: 3, Size: 1})
	d := s.Draft(s.Time() + 1)
	entries := []format.Entry{
		&format.Batch{Topic: 1, Base: 3, Count: 2, Size: 1},
		&format.PartitionsAdded{Topic: 1, Partitions: 2},
		&format.TopicDeleted{ID: 2},
		&format.TopicCreated{ID: 3, Partitions: 1, Name: "new"},
	}
	for _, e := range entries {
		if err := d.Take(e); err != nil {
			t.Fatal(err)
		}
	}
	if x := d.TopicBefore("t"); x == nil || x.ID != 1 || len(x.Partitions) != 1 || x.Partitions[0].End != 3 {
		t.Errorf("t was %+v", x)
	}
	if x := d.TopicBefore("gone"); x == nil || x.ID != 2 {
		t.Errorf("gone was %+v", x)
	}
	if x := d.TopicBefore("new"); x != nil {
		t.Errorf("new was %+v", x)
	}

	commit(entries...)
	d = s.Draft(s.Time() + 1)
	if x := d.TopicBefore("t"); len(x.Partitions) != 2 || x.Partitions[0].End != 5 {
		t.Errorf("t was %+v in the next slot", x)
	}
	if d.TopicBefore("gone") != nil || d.TopicBefore("new") == nil {
		t.Error("the next slot has the topics of the one before")
	}
}
