package state

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/format"
)

func created(id format.ConsumerID, topic format.TopicID, name string) *format.ConsumerCreated {
	return &format.ConsumerCreated{ID: id, Topic: topic, Name: name}
}

// moved returns an entry that sets positions: partition, offset, partition, offset and so on.
func moved(consumer format.ConsumerID, positions ...format.Offset) *format.PositionsMoved {
	x := &format.PositionsMoved{Consumer: consumer}
	for ; len(positions) > 0; positions = positions[2:] {
		x.Positions = append(x.Positions, format.Position{Partition: format.Partition(positions[0]), Offset: positions[1]})
	}
	return x
}

// withConsumers adds two topics with consumers to the state; one of the consumers was deleted.
func withConsumers(t rapid.TB, s *State) {
	t.Helper()
	id := s.topics.next
	mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: s.Time(), PayloadSize: 122, Entries: []format.Entry{
		&format.TopicCreated{ID: id, Partitions: 3, Name: "read"}, &format.TopicCreated{ID: id + 1, Partitions: 1, Name: "read.too"},
		&format.Batch{Topic: id, Partition: 1, Count: 7, Size: 61}, &format.Batch{Topic: id + 1, Count: 2, Pos: 61, Size: 61},
		created(1, id, "billing"), created(2, id, "gone"), created(3, id+1, "billing"),
	}})
	mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: s.Time() + 5, Entries: []format.Entry{
		moved(1, 0, 0, 1, 4), moved(1, 1, 5), &format.ConsumerDeleted{ID: 2}, moved(3, 0, 2),
	}})
}

func consumerState(t testing.TB) *State {
	s := New()
	withConsumers(t, s)
	return s
}

// consumerEntry draws a valid entry about the consumers of an existing topic.
func (w *writer) consumerEntry(t *rapid.T, d *Draft, topic format.TopicID, partitions uint32) format.Entry {
	name := rapid.SampledFrom([]string{"p", "q"}).Draw(t, "consumer")
	id, ok := d.ConsumerID(topic, name)
	if !ok {
		return created(d.NextConsumerID(), topic, name)
	}
	if rapid.IntRange(0, 4).Draw(t, "deleted") == 0 {
		return &format.ConsumerDeleted{ID: id}
	}
	x := &format.PositionsMoved{Consumer: id}
	for p := range format.Partition(partitions) {
		if end, _ := d.End(topic, p); p == 0 || rapid.Bool().Draw(t, "moves") {
			x.Positions = append(x.Positions, format.Position{Partition: p, Offset: format.Offset(rapid.Int64Range(0, int64(end)).Draw(t, "position"))})
		}
	}
	return x
}

func TestConsumersKeepTheirPositionsUntilTheyOrTheirTopicsAreDeleted(t *testing.T) {
	s := New()
	before := s.Memory()
	withConsumers(t, s)
	c := s.Consumer(1, "billing")
	if c == nil || c.Position(0) != 0 || c.Position(1) != 5 || c.Position(2) != 0 || c.Position(99) != 0 || c.Version != 2 || c.Created != 0 || c.Moved != 5 {
		t.Fatalf("the consumer is %+v", c)
	}
	if other := s.Consumer(2, "billing"); other == nil || other.Position(0) != 2 || s.Consumer(1, "gone") != nil {
		t.Fatalf("the other topic's is %+v", other)
	}
	if cs := s.Consumers(1); len(cs) != 1 || cs[0] != c {
		t.Fatalf("the topic's consumers are %+v", cs)
	}
	requireSame(t, mustDecode(t, s.Seq(), s.View().Encode()), s)
	mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 5, Entries: []format.Entry{
		&format.TopicDeleted{ID: 1}, &format.TopicCreated{ID: 3, Partitions: 1, Name: "read"}, created(4, 3, "billing"),
	}})
	if c := s.Consumer(3, "billing"); s.Consumer(1, "billing") != nil || c == nil || c.Position(1) != 0 {
		t.Fatalf("the consumer of the topic that came after is %+v", c)
	}
	mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 5, Entries: []format.Entry{
		&format.ConsumerDeleted{ID: 4}, &format.TopicDeleted{ID: 2}, &format.TopicDeleted{ID: 3},
	}})
	if left := s.Memory() - before - int64(s.Objects())*objectMemory; left != 0 || len(s.consumers.byName) != 0 {
		t.Fatalf("%d bytes are left", left)
	}
	requireSame(t, mustDecode(t, s.Seq(), s.View().Encode()), s)
}

func TestViewKeepsPositionsThatMoveOn(t *testing.T) {
	s := consumerState(t)
	view, want := s.View(), s.View().Encode()
	mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 9, Entries: []format.Entry{moved(1, 1, 7), &format.ConsumerDeleted{ID: 3}}})
	if string(view.Encode()) != string(want) {
		t.Fatal("the view has changed")
	}
}

// A position that is set back to 0 leaves no trace, so that equal states encode to equal bytes.
func TestPositionBackAtTheBeginningIsNoPosition(t *testing.T) {
	s := consumerState(t)
	mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 9, Entries: []format.Entry{moved(1, 1, 0)}})
	if c := s.Consumer(1, "billing"); len(c.positions) != 0 {
		t.Fatalf("the positions are %v", c.positions)
	}
	requireSame(t, mustDecode(t, s.Seq(), s.View().Encode()), s)
}

func TestNonsenseAboutConsumersIsRefusedAndChangesNothing(t *testing.T) {
	fine := []format.Entry{created(4, 1, "d"), moved(4, 1, 7), &format.ConsumerDeleted{ID: 3}}
	for name, it := range map[string]format.Entry{
		"id again":                   created(1, 1, "e"),
		"id of a deleted one":        created(2, 1, "e"),
		"id left out":                created(6, 1, "e"),
		"name that is taken":         created(5, 1, "billing"),
		"name that this commit took": created(5, 1, "d"),
		"no name":                    created(5, 1, ""),
		"long name":                  created(5, 1, strings.Repeat("n", ConsumerNameBytesMax+1)),
		"topic that isn't there":     created(5, 3, "e"),
		"beyond the end":             moved(1, 1, 8),
		"before the beginning":       moved(1, 1, -1),
		"partition that isn't there": moved(1, 3, 0),
		"nowhere":                    moved(1),
		"deleted one moves":          moved(2, 1, 1),
		"one deleted here moves":     moved(3, 0, 1),
		"unknown one moves":          moved(9, 1, 1),
		"deleted again":              &format.ConsumerDeleted{ID: 2},
		"deleted here again":         &format.ConsumerDeleted{ID: 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := consumerState(t)
			before, memory := s.View().Encode(), s.Memory()
			err := s.Apply(&format.Commit{Seq: s.Seq() + 1, Time: 30, Entries: append(slices.Clone(fine), it)})
			if !errors.Is(err, ErrNonsense) {
				t.Fatalf("the error is %v", err)
			}
			if string(s.View().Encode()) != string(before) || s.Memory() != memory {
				t.Fatal("the state has changed")
			}
			mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 30, Entries: fine})
		})
	}
	s := consumerState(t)
	gone := []format.Entry{&format.TopicDeleted{ID: 1}, moved(1, 1, 1)}
	if err := s.Apply(&format.Commit{Seq: s.Seq() + 1, Time: 30, Entries: gone}); !errors.Is(err, ErrNonsense) {
		t.Fatalf("a consumer moved after its topic was deleted: %v", err)
	}
}

// A draft shows the changes of the entries taken so far, so that a broker can decide by them.
func TestDraftShowsConsumers(t *testing.T) {
	s := consumerState(t)
	d := s.Draft(9)
	take := func(it format.Entry) {
		t.Helper()
		if err := d.Take(it); err != nil {
			t.Fatal(err)
		}
	}
	want := func(topic format.TopicID, name string, id format.ConsumerID, version uint64, position format.Offset) {
		t.Helper()
		got, ok := d.ConsumerID(topic, name)
		if !ok || got != id || d.ConsumerVersion(id) != version || d.ConsumerPosition(id, 1) != position {
			t.Fatalf("%s is %d, %v", name, got, ok)
		}
	}
	want(1, "billing", 1, 2, 5)
	take(moved(1, 0, 0))
	want(1, "billing", 1, 3, 5)
	take(moved(1, 1, 6))
	want(1, "billing", 1, 4, 6)
	take(created(4, 1, "new"))
	want(1, "new", 4, 0, 0)
	take(moved(4, 1, 7))
	want(1, "new", 4, 1, 7)
	if d.NextConsumerID() != 5 || d.ConsumerCount() != 3 {
		t.Fatalf("the next is %d, there would be %d", d.NextConsumerID(), d.ConsumerCount())
	}
	take(&format.ConsumerDeleted{ID: 4})
	take(&format.TopicDeleted{ID: 1})
	for _, name := range []string{"new", "billing"} {
		if id, ok := d.ConsumerID(1, name); ok {
			t.Fatalf("%s is still there as %d", name, id)
		}
	}
}

func TestConsumersContinue(t *testing.T) {
	fold := func(entries ...format.Entry) *State {
		s := New()
		first := []format.Entry{&format.TopicCreated{ID: 1, Partitions: 1, Name: "a"}, &format.Batch{Topic: 1, Count: 3, Size: 61}}
		mustApply(t, s, &format.Commit{Seq: 1, PayloadSize: 61, Entries: append(first, entries...)})
		return s
	}
	gone := &format.ConsumerDeleted{ID: 2}
	old := fold(created(1, 1, "a"), created(2, 1, "b"), gone, moved(1, 0, 2))
	for name, test := range map[string]struct {
		now  *State
		fork bool
	}{
		"the same":           {fold(created(1, 1, "a"), created(2, 1, "b"), gone, moved(1, 0, 2)), false},
		"moved back":         {fold(created(1, 1, "a"), created(2, 1, "b"), gone, moved(1, 0, 2), moved(1, 0, 1)), false},
		"deleted since":      {fold(created(1, 1, "a"), created(2, 1, "b"), gone, &format.ConsumerDeleted{ID: 1}), false},
		"one more":           {fold(created(1, 1, "a"), created(2, 1, "b"), gone, moved(1, 0, 2), created(3, 1, "c")), false},
		"never moved":        {fold(created(1, 1, "a"), created(2, 1, "b"), gone), true},
		"came back":          {fold(created(1, 1, "a"), created(2, 1, "b"), moved(1, 0, 2)), true},
		"never created":      {fold(created(1, 1, "a"), moved(1, 0, 2)), true},
		"under another name": {fold(created(1, 1, "z"), created(2, 1, "b"), gone, moved(1, 0, 2)), true},
	} {
		if err := test.now.Continues(old); (err != nil) != test.fork || err != nil && !errors.Is(err, ErrDiscontinued) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSnapshotWhoseConsumersContradictThemselvesIsRefused(t *testing.T) {
	good := []byte{
		snapshotVersion, 0, 2, 0, 0, 1, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 100,
		1, 1, 1, 'a', 0, 0, 0, 1, 0, 2, 0, 1, 0, 2, 0, 0, 32, 61, 1, 2, 3, 4, // a topic of one partition that ends at 2
		0, 1, 0, // no appends with a key, no API keys
		9, 2, // the next consumer is number 9, there are two
		1, 1, 1, 'p', 0, 0, 1, 1, 2, // number 1, at 2
		2, 1, 1, 'q', 0, 0, 0, 0, // number 2, at the beginning
		1, 0, 0, // no queues, no delayed records
		0, 0, // no sessions
	}
	if _, err := Decode(1, good); err != nil {
		t.Fatal(err)
	}
	const at = 42
	for name, bend := range map[string]struct {
		at int
		to byte
	}{
		"next id zero":               {at, 0},
		"next id that is used":       {at, 2},
		"fewer than there are":       {at + 1, 1},
		"id zero":                    {at + 2, 0},
		"topic that isn't there":     {at + 3, 2},
		"no name":                    {at + 4, 0},
		"position beyond the end":    {at + 10, 3},
		"position that is none":      {at + 10, 0},
		"id out of order":            {at + 11, 1},
		"name twice":                 {at + 14, 'p'},
		"more positions than things": {at + 18, 1},
	} {
		bent := slices.Clone(good)
		bent[bend.at] = bend.to
		if _, err := Decode(1, bent); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	many := slices.Concat(good[:at+9], []byte{2, 2, 1}, good[at+11:])
	if _, err := Decode(1, many); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("more positions than partitions: %v", err)
	}
}

// If only some of many consumers are shown, they must be the same ones each time.
func TestOldestConsumersAreThoseWithTheSmallestIDs(t *testing.T) {
	s := consumerState(t)
	var entries []format.Entry
	for id := format.ConsumerID(4); id < 30; id++ {
		entries = append(entries, created(id, 1, strings.Repeat("x", int(id))))
	}
	mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: s.Time(), Entries: append(entries, &format.ConsumerDeleted{ID: 5})})
	ids := func(most int) (ids []format.ConsumerID) {
		for _, c := range s.OldestConsumers(most) {
			ids = append(ids, c.ID)
		}
		return ids
	}
	if got := ids(4); !slices.Equal(got, []format.ConsumerID{1, 3, 4, 6}) {
		t.Errorf("the oldest are %v", got)
	}
	if got := ids(1000); len(got) != 27 || s.ConsumerCount() != 27 || !slices.IsSorted(got) {
		t.Errorf("there are %d: %v", s.ConsumerCount(), got)
	}
}
