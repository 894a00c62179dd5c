package state

import (
	"bytes"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// encoded applies commits of these entries to a new state, and returns it and its snapshot. After each commit the state must be the
// one that its snapshot has.
func encoded(t *testing.T, commits ...[]format.Entry) (*State, []byte) {
	t.Helper()
	s := New()
	var body []byte
	for i, entries := range commits {
		c := &format.Commit{Seq: format.Seq(i + 1), Time: int64(i + 1), Entries: entries}
		if err := s.Apply(c); err != nil {
			t.Fatalf("commit %d: %v", i+1, err)
		}
		body = s.View().Encode()
		got, err := Decode(s.Seq(), body)
		if err != nil {
			t.Fatalf("the snapshot of slot %d: %v", s.Seq(), err)
		}
		if again := got.View().Encode(); !bytes.Equal(again, body) {
			t.Fatalf("the snapshot of slot %d changes when it is loaded", s.Seq())
		}
		s = got // so that what follows applies to a state from a checkpoint
	}
	return s, body
}

func TestLimitsOfTopicsInTheFold(t *testing.T) {
	raise := &format.LevelRaised{Level: format.LevelSegments, DeleteDelay: time.Hour}
	created := func(id format.TopicID, name string) *format.TopicCreated {
		return &format.TopicCreated{ID: id, Name: name, Partitions: 1}
	}
	limits := func(id format.TopicID, ms int64) *format.TopicConfigured {
		return &format.TopicConfigured{Topic: id, Config: format.TopicConfig{RetentionMS: ms}}
	}
	past := func(id format.TopicID, past bool) *format.QueuesPassed {
		return &format.QueuesPassed{Topic: id, PastQueues: past}
	}
	want := func(s *State, name string, dormant, past bool) {
		t.Helper()
		if x := s.Topic(name); x.Dormant != dormant || x.Config.PastQueues != past {
			t.Errorf("topic %s is dormant: %v, passes queues: %v", name, x.Dormant, x.Config.PastQueues)
		}
	}

	s, _ := encoded(t, []format.Entry{created(1, "old"), limits(1, 9), created(2, "free"), created(3, "again"), limits(3, 9)},
		[]format.Entry{limits(3, 8), raise, limits(3, 9), created(4, "new"), limits(4, 9), past(2, true), past(1, true)},
		[]format.Entry{limits(2, 5), past(1, false)})
	want(s, "old", true, false)
	want(s, "free", false, true)
	want(s, "again", false, false)
	want(s, "new", false, false)
	if n := s.ShortestRetention(); n != 5*time.Millisecond {
		t.Errorf("the shortest retention is %v", n)
	}
	if err := s.Apply(&format.Commit{Seq: 4, Time: 4, Entries: []format.Entry{limits(1, 9)}}); err != nil {
		t.Fatal(err)
	}
	want(s, "old", false, false)

	// A new log that was raised by its first commit has no dormant limits.
	s, body := encoded(t, []format.Entry{raise, created(1, "new"), limits(1, 9)})
	want(s, "new", false, false)
	for _, flags := range []byte{0, 4, 7} {
		if _, err := Decode(1, append(bytes.Clone(body), 1, 1, flags)); err == nil {
			t.Errorf("a snapshot with the flags %d of a topic is read", flags)
		}
	}
	for _, list := range [][]byte{{0}, {1, 2, 1}, {2, 1, 1, 1, 1}, {1, 1}} {
		if _, err := Decode(1, append(bytes.Clone(body), list...)); err == nil {
			t.Errorf("a snapshot with the list %v of topics is read", list)
		}
	}

	low := New()
	if err := low.Apply(&format.Commit{Seq: 1, Time: 1, Entries: []format.Entry{created(1, "t"), past(1, true)}}); err == nil {
		t.Error("an entry of level 6 is accepted below it")
	}
}
