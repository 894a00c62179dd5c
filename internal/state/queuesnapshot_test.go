package state

import (
	"errors"
	"slices"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
)

// aQueue returns a snapshot with one queue, up to the number of the queue's partitions.
func aQueue() []byte {
	return []byte{
		snapshotVersion, 0, 9, 0, 0, 0, 1, 1, 1, 't', 0, 0, 0, 1, 0, 0, 0, 0, // a topic of one partition
		0, 1, 0, 1, 0, 9, 1, // no appends with a key, no API keys, no consumers, one queue
		1, 1, 1, 'q', 0, 1, 0, 0, 1, 0, 0, 0, 0, 0,
	}
}

// field is a byte of a snapshot, with a name if tests change it.
type field struct {
	name string
	is   byte
}

// queueFields returns a snapshot with two queues; the one partition of their topic ends at 9.
func queueFields() (all []field) {
	for _, b := range []byte{
		snapshotVersion, 4, 2, 0, 0, 1, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 100,
		1, 1, 1, 'a', 0, 0, 0, 1, 0, 9, 0, 1, 0, 9, 0, 0, 32, 61, 1, 2, 3, 4,
		0, 1, 0, 1, 0,
	} {
		all = append(all, field{is: b})
	}
	return append(all, []field{
		{"next", 9}, {"count", 2},
		{"id", 1}, {"topic", 1}, {"name size", 1}, {"name", 'p'}, {"created", 0},
		{"lease", 1}, {"least", 1}, {"longest", 2}, {"most", 1}, {"flags", 7}, {"dead", 0},
		{"epoch", 1}, {"address size", 1}, {"address", 'x'}, {"seen", 0}, {"partitions", 1},
		{"floor", 1}, {"spans", 2}, {"gap", 1}, {"records", 1}, {"gap 2", 1}, {"records 2", 1}, {"window", 7}, {"doubt", 6}, {"attempts", 2},
		{"offset", 1}, {"number", 2}, {"redriven", 1}, {"not before", 0}, {"parked", 1}, {"reason size", 1}, {"reason", 'r'},
		{"offset 2", 3}, {"number 2", 1}, {"redriven 2", 1}, {"not before 2", 0}, {"parked 2", 0}, {"reason size 2", 0},
		{"id 2", 2}, {"topic 2", 1}, {"name size 2", 1}, {"name 2", 'q'}, {"created 2", 0},
		{"lease 2", 1}, {"least 2", 0}, {"longest 2", 0}, {"most 2", 1}, {"flags 2", 0}, {"dead 2", 0},
		{"epoch 2", 0}, {"address size 2", 0}, {"seen 2", 0}, {"partitions 2", 1},
		{"floor 3", 0}, {"spans 3", 0}, {"window 3", 0}, {"doubt 3", 1}, {"attempts 3", 0},
		{"delayed", 2},
		{"due", 5}, {"of topic", 1}, {"of partition", 0}, {"delayed offset", 6}, {"delayed records", 1},
		{"due later", 0}, {"of topic 2", 1}, {"of partition 2", 0}, {"delayed offset 2", 7}, {"delayed records 2", 2},
		{"sessions", 0}, {"owners", 0},
	}...)
}

// bytesOf returns the snapshot with some fields changed.
func bytesOf(t *testing.T, all []field, bends map[string]byte) (b []byte) {
	left := len(bends)
	for _, f := range all {
		if to, ok := bends[f.name]; ok && f.name != "" {
			f.is = to
			left--
		}
		b = append(b, f.is)
	}
	if left != 0 {
		t.Fatalf("there are no fields %v", bends)
	}
	return b
}

func TestSnapshotWhoseQueuesContradictThemselvesIsRefused(t *testing.T) {
	good := bytesOf(t, queueFields(), nil)
	s, err := Decode(1, good)
	if err != nil {
		t.Fatal(err)
	}
	if again := s.View().Encode(); !slices.Equal(again, good) {
		t.Fatalf("it is written again as\n%x\nand was\n%x", again, good)
	}
	for name, bends := range map[string]map[string]byte{
		"next id zero":                {"next": 0},
		"next id that is used":        {"next": 2},
		"fewer than there are":        {"count": 1},
		"id zero":                     {"id": 0},
		"id out of order":             {"id 2": 1},
		"topic that isn't there":      {"topic": 2},
		"no name":                     {"name size": 0},
		"name twice":                  {"name 2": 'p'},
		"no lease":                    {"lease": 0},
		"backoff that falls":          {"longest": 0},
		"no attempts allowed":         {"most": 0},
		"flag that is unknown":        {"flags": 16 + 7},
		"owner without an epoch":      {"epoch": 0},
		"address of no owner":         {"flags": 3, "window": 0},
		"window where nobody owns":    {"window 3": 1},
		"more partitions":             {"partitions": 2},
		"partition that is untouched": {"doubt 3": 0},
		"done beyond the end":         {"floor": 9, "spans": 0},
		"span that touches the floor": {"gap": 0},
		"span of nothing":             {"records": 0},
		"span that touches another":   {"gap 2": 0},
		"span beyond the end":         {"records 2": 6},
		"doubt beyond the end":        {"doubt": 10},
		"attempt of what is done":     {"offset": 0},
		"attempt in a span":           {"offset": 2},
		"attempt beyond the end":      {"offset 2": 9},
		"attempts out of order":       {"offset 2": 1},
		"attempt number zero":         {"number 2": 0, "redriven 2": 0},
		"redriven in the future":      {"redriven": 3},
		"parked by an unknown flag":   {"parked": 2},
		"more delayed than there are": {"delayed": 3},
		"fewer delayed":               {"delayed": 1},
		"delayed until now":           {"due": 4},
		"delayed in no topic":         {"of topic": 2},
		"delayed in no partition":     {"of partition": 1},
		"delayed beyond the end":      {"delayed records 2": 3},
		"delayed at the end":          {"delayed offset 2": 9},
		"none delayed":                {"delayed records": 0},
		"delayed out of order":        {"delayed offset 2": 5},
		"delayed twice":               {"delayed offset 2": 6},
	} {
		if _, err := Decode(1, bytesOf(t, queueFields(), bends)); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

// Decode refuses numbers whose sum overflows.
func TestSnapshotWithHugeSpansIsRefused(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f} // the largest int64
	all := bytesOf(t, queueFields(), nil)
	at := func(name string) int {
		return slices.IndexFunc(queueFields(), func(f field) bool { return f.name == name })
	}
	for _, name := range []string{"floor", "gap", "records", "gap 2", "records 2", "doubt", "offset", "offset 2", "lease", "longest", "delayed offset", "delayed offset 2", "due later"} {
		bent := slices.Concat(all[:at(name)], huge, all[at(name)+1:])
		if _, err := Decode(1, bent); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	far := slices.Concat(all[:at("window")], huge, all[at("window")+1:]) // a dispatch limit has no upper bound
	if _, err := Decode(1, far); err != nil {
		t.Error(err)
	}
}

func TestQueuesContinue(t *testing.T) {
	fold := func(entries ...format.Entry) *State {
		s := New()
		first := []format.Entry{
			&format.TopicCreated{ID: 1, Partitions: 2, Name: "a"}, &format.Batch{Topic: 1, Count: 9, Size: 61},
			queueSet(1, 1, "a"), queueSet(2, 1, "b"), &format.QueueDeleted{ID: 2}, owned(1, 1, 9),
		}
		mustApply(t, s, &format.Commit{Seq: 1, PayloadSize: 61, Entries: append(first, entries...)})
		return s
	}
	bare := func(entries ...format.Entry) *State {
		s := New()
		mustApply(t, s, &format.Commit{Seq: 1, PayloadSize: 61, Entries: append([]format.Entry{
			&format.TopicCreated{ID: 1, Partitions: 2, Name: "a"}, &format.Batch{Topic: 1, Count: 9, Size: 61},
		}, entries...)})
		return s
	}
	worked := []format.Entry{runs(1, 0, 0, 2, 1, 4, 2, 1, 8, 1, 1), back(1, 0, 3, 1, true)}
	old := fold(worked...)
	more := func(entries ...format.Entry) *State { return fold(append(slices.Clone(worked), entries...)...) }
	for name, test := range map[string]struct {
		now  *State
		fork bool
	}{
		"the same":             {more(), false},
		"more is done":         {more(runs(1, 0, 6, 1, 1)), false},
		"a gap is filled":      {more(runs(1, 0, 6, 2, 1)), false},
		"all is purged":        {more(&format.QueuePurged{Queue: 1, Before: 9}), false},
		"another owner":        {more(owned(1, 2)), false},
		"redriven":             {more(redriven(1, 0, 3)), false},
		"one more queue":       {more(queueSet(3, 1, "c")), false},
		"deleted since":        {fold(&format.QueueDeleted{ID: 1}), false},
		"the floor has fallen": {fold(runs(1, 0, 0, 1, 1, 4, 2, 1, 8, 1, 1)), true},
		"a span is smaller":    {fold(runs(1, 0, 0, 2, 1, 4, 1, 1, 8, 1, 1)), true},
		"a span is not there":  {fold(runs(1, 0, 0, 2, 1, 8, 1, 1)), true},
		"nothing is done":      {fold(), true},
		"came back":            {bare(queueSet(1, 1, "a"), queueSet(2, 1, "b"), owned(1, 1, 9), worked[0]), true},
		"the epoch has fallen": {bare(queueSet(1, 1, "a"), queueSet(2, 1, "b"), &format.QueueDeleted{ID: 2}), true},
		"under another name":   {bare(queueSet(1, 1, "z"), queueSet(2, 1, "b"), &format.QueueDeleted{ID: 2}, owned(1, 1, 9), worked[0]), true},
		"never created":        {bare(queueSet(1, 1, "a"), owned(1, 1, 9), worked[0]), true},
	} {
		if err := test.now.Continues(old); (err != nil) != test.fork || err != nil && !errors.Is(err, ErrDiscontinued) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
