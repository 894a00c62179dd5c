package state

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/format"
)

func TestFoldMeansWhatTheModelMeans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, m := &writer{State: New()}, &model{}
		for range rapid.IntRange(1, 25).Draw(t, "commits") {
			c, _ := w.commit(t)
			mustApply(t, w.State, c)
			m.apply(c)
		}
		m.compare(t, w.State)
	})
}

func TestDraftAndApplyAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &writer{State: New()}
		for range rapid.IntRange(1, 15).Draw(t, "commits") {
			c, d := w.commit(t)
			mustApply(t, w.State, c)
			after := w.Draft(w.Time())
			if d.TopicCount() != w.TopicCount() || d.NextTopicID() != after.NextTopicID() {
				t.Fatalf("the draft has %d topics, the next %d; the state %d, %d", d.TopicCount(), d.NextTopicID(), w.TopicCount(), after.NextTopicID())
			}
			for _, name := range []string{"a", "b", "c", "nobody's"} {
				id, partitions, ok := d.TopicID(name)
				topic := w.Topic(name)
				if ok != (topic != nil) || ok && (topic.ID != id || len(topic.Partitions) != int(partitions)) {
					t.Fatalf("topic %s is %d with %d partitions, %v in the draft, and %+v in the state", name, id, partitions, ok, topic)
				}
			}
			for id := range after.NextTopicID() + 1 {
				for p := range format.Partition(7) {
					got, ok := d.End(id, p)
					want, wantOK := after.End(id, p)
					if got != want || ok != wantOK {
						t.Fatalf("topic %d, partition %d ends at %d, %v in the draft, and at %d, %v in the state", id, p, got, ok, want, wantOK)
					}
				}
			}
		}
	})
}

// sound returns a state with topics 1 ("a", 2 partitions) and 3 ("c", 1 partition). Topic 2 was
// deleted, and the data floor is 2.
func sound(t rapid.TB) *State {
	t.Helper()
	s := New()
	for _, c := range []*format.Commit{
		{Seq: 1, Time: 10, Nonce: format.Nonce{1, 2, 3, 4, 5, 6, 7, 8}, PayloadSize: 131, Entries: []format.Entry{
			&format.TopicCreated{ID: 1, Partitions: 2, Name: "a"},
			&format.TopicCreated{ID: 2, Partitions: 1, Name: "b"},
			&format.TopicCreated{ID: 3, Partitions: 1, Name: "c"},
			&format.Batch{Topic: 2, Count: 1, Size: 61},
			&format.Batch{Topic: 3, Count: 2, Size: 70, Pos: 61, MaxTime: 1_790_000_000_000, CRC: 0x01020304},
		}},
		{Seq: 2, Time: 10, Data: []format.DataRef{{Seq: 1, ID: 1, Size: 1000}}, Entries: []format.Entry{
			&format.Batch{Topic: 1, Partition: 1, Count: 10, Size: 100, Object: 1, MaxTime: -1},
			&format.TopicDeleted{ID: 2},
		}},
		{Seq: 3, Time: 20, Entries: []format.Entry{&format.DataFloor{Seq: 2}}},
	} {
		format.EncodeCommit(c) // sets PayloadStart
		mustApply(t, s, c)
	}
	return s
}

// keyedEntry returns the entry of an append with a key, whose one record is the last before end.
func keyedEntry(key byte, topic format.TopicID, end format.Offset) *format.AppendKeyed {
	partition := format.Partition(0)
	if topic == 1 {
		partition = 1
	}
	return &format.AppendKeyed{Topic: topic, Key: format.Digest{key}, Print: format.Digest{9}, Ranges: []format.KeyedRange{{Partition: partition, Count: 1, Base: end - 1}}}
}

// keyedCommit returns a commit that follows those of sound.
func keyedCommit() *format.Commit {
	return &format.Commit{Seq: 4, Time: 20, Entries: []format.Entry{
		keyedEntry(1, 1, 10),
		&format.StartMoved{Topic: 1, Partition: 1, Start: 4},
		&format.TopicConfigured{Topic: 3, Config: format.TopicConfig{RetentionMS: 3_600_000, RetentionBytes: 1 << 20}},
	}}
}

func TestNonsenseIsRefusedAndChangesNothing(t *testing.T) {
	fine := []format.Entry{
		&format.TopicCreated{ID: 4, Partitions: 1, Name: "d"},
		&format.Batch{Topic: 4, Count: 3, Size: 61},
		&format.Batch{Topic: 1, Partition: 1, Base: 10, Count: 3, Size: 61},
		&format.DataFloor{Seq: 3},
		keyedEntry(2, 4, 3),
		&format.StartMoved{Topic: 1, Partition: 1, Start: 13},
		&format.StartMoved{Topic: 4, Start: 1},
		&format.TopicConfigured{Topic: 4, Config: format.TopicConfig{RetentionMS: 5}},
	}
	one := func(it format.Entry) func(c *format.Commit) {
		return func(c *format.Commit) { c.Entries = append(c.Entries, it) }
	}
	for _, c := range []struct {
		name string
		bend func(c *format.Commit)
	}{
		{"slot again", func(c *format.Commit) { c.Seq = 4 }},
		{"slot left out", func(c *format.Commit) { c.Seq = 6 }},
		{"time that falls", func(c *format.Commit) { c.Time = 19 }},
		{"data object below the floor", func(c *format.Commit) { c.Data = []format.DataRef{{Seq: 1, ID: 9, Size: 100}} }},
		{"data object from the future", func(c *format.Commit) { c.Data = []format.DataRef{{Seq: 5, ID: 9, Size: 100}} }},
		{"offset again", one(&format.Batch{Topic: 1, Partition: 1, Base: 10, Count: 1, Size: 61})},
		{"hole in the offsets", one(&format.Batch{Topic: 1, Partition: 1, Base: 14, Count: 1, Size: 61})},
		{"first offset of an empty partition", one(&format.Batch{Topic: 1, Base: 1, Count: 1, Size: 61})},
		{"partition that is not there", one(&format.Batch{Topic: 1, Partition: 2, Count: 1, Size: 61})},
		{"topic that is not there", one(&format.Batch{Topic: 9, Count: 1, Size: 61})},
		{"topic zero", one(&format.Batch{Count: 1, Size: 61})},
		{"topic that was deleted", one(&format.Batch{Topic: 2, Base: 1, Count: 1, Size: 61})},
		{"topic id again", one(&format.TopicCreated{ID: 3, Partitions: 1, Name: "e"})},
		{"topic id of a deleted one", one(&format.TopicCreated{ID: 2, Partitions: 1, Name: "e"})},
		{"topic id left out", one(&format.TopicCreated{ID: 6, Partitions: 1, Name: "e"})},
		{"topic name that is taken", one(&format.TopicCreated{ID: 5, Partitions: 1, Name: "a"})},
		{"topic name that this commit took", one(&format.TopicCreated{ID: 5, Partitions: 1, Name: "d"})},
		{"topic without a name", one(&format.TopicCreated{ID: 5, Partitions: 1})},
		{"topic without partitions", one(&format.TopicCreated{ID: 5, Name: "e"})},
		{"topic with too many partitions", one(&format.TopicCreated{ID: 5, Partitions: PartitionsMax + 1, Name: "e"})},
		{"deletion of nothing", one(&format.TopicDeleted{ID: 9})},
		{"deletion again", one(&format.TopicDeleted{ID: 2})},
		{"partitions of nothing", one(&format.PartitionsAdded{Topic: 2, Partitions: 5})},
		{"partitions that are there", one(&format.PartitionsAdded{Topic: 1, Partitions: 2})},
		{"fewer partitions", one(&format.PartitionsAdded{Topic: 1, Partitions: 1})},
		{"too many partitions", one(&format.PartitionsAdded{Topic: 1, Partitions: PartitionsMax + 1})},
		{"floor that falls", one(&format.DataFloor{Seq: 1})},
		{"floor that falls within the commit", one(&format.DataFloor{Seq: 2})},
		{"start behind the end", one(&format.StartMoved{Topic: 1, Partition: 1, Start: 14})},
		{"start that falls", one(&format.StartMoved{Topic: 1, Partition: 1, Start: 3})},
		{"start that falls within the commit", one(&format.StartMoved{Topic: 4, Start: 0})},
		{"start of a partition that is not there", one(&format.StartMoved{Topic: 4, Partition: 1})},
		{"config of nothing", one(&format.TopicConfigured{Topic: 2})},
		{"config of a negative retention", one(&format.TopicConfigured{Topic: 1, Config: format.TopicConfig{RetentionMS: -1}})},
		{"config of negative bytes", one(&format.TopicConfigured{Topic: 1, Config: format.TopicConfig{RetentionBytes: -1}})},
		{"key that is taken", one(keyedEntry(1, 1, 10))},
		{"key that this commit took", one(keyedEntry(2, 1, 10))},
		{"key of records to come", one(keyedEntry(3, 4, 10))},
		{"key of a partition that is not there", one(&format.AppendKeyed{Topic: 4, Ranges: []format.KeyedRange{{Partition: 1, Count: 1}}})},
		{"no entry at all", one(nil)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sound(t)
			mustApply(t, s, keyedCommit())
			before, memory := s.View().Encode(), s.Memory()
			bent := &format.Commit{Seq: 5, Time: 20, Entries: slices.Clone(fine)}
			c.bend(bent)
			if err := s.Apply(bent); !errors.Is(err, ErrNonsense) {
				t.Fatalf("the error is %v", err)
			}
			if string(s.View().Encode()) != string(before) || s.Memory() != memory {
				t.Fatalf("the state has changed: %s", summary(s))
			}
			mustApply(t, s, &format.Commit{Seq: 5, Time: 20, Entries: fine})
		})
	}
}

func TestTopicOfTheSameNameSharesNothing(t *testing.T) {
	s, m := New(), &model{}
	create := func(id format.TopicID) *format.TopicCreated {
		return &format.TopicCreated{ID: id, Partitions: 1, Name: "again"}
	}
	for _, entries := range [][]format.Entry{
		{create(1), &format.Batch{Topic: 1, Count: 5, Size: 61}},
		{&format.TopicDeleted{ID: 1}},
		{create(2), &format.Batch{Topic: 2, Count: 2, Size: 62}},
		// One commit deletes a topic and creates another, with a batch for each.
		{&format.Batch{Topic: 2, Base: 2, Count: 1, Size: 63}, &format.TopicDeleted{ID: 2}, create(3), &format.Batch{Topic: 3, Count: 1, Size: 64}},
	} {
		c := &format.Commit{Seq: s.Seq() + 1, Entries: entries}
		format.EncodeCommit(c)
		mustApply(t, s, c)
		m.apply(c)
		m.compare(t, s)
	}
	if s.TopicByID(1) != nil || s.TopicByID(2) != nil || s.Topic("again").ID != 3 {
		t.Fatalf("topics: %+v", s.Topics())
	}
	if live := s.objects.entry(0).live; live != 0 {
		t.Fatalf("%d batches point into the first commit", live)
	}
	if live := s.objects.entry(2).live; live != 1 {
		t.Fatalf("%d batches point into the last commit", live)
	}
	requireSame(t, mustDecode(t, s.Seq(), s.View().Encode()), s)
}

func TestDeletionGivesMemoryBack(t *testing.T) {
	s := New()
	mustApply(t, s, &format.Commit{Seq: 1, Entries: []format.Entry{&format.TopicCreated{ID: 1, Partitions: 3, Name: "kept"}}})
	before := s.Memory()
	entries := []format.Entry{
		&format.TopicCreated{ID: 2, Partitions: 3, Name: "deleted"},
		&format.PartitionsAdded{Topic: 2, Partitions: 5},
	}
	for i := range int64(1000) {
		entries = append(entries, &format.Batch{Topic: 2, Partition: 4, Base: format.Offset(i), Count: 1, Size: 61})
	}
	mustApply(t, s, &format.Commit{Seq: 2, Entries: entries})
	if s.Memory() < before+1000*batchMemory {
		t.Fatalf("1000 batches take %d bytes", s.Memory()-before)
	}
	mustApply(t, s, &format.Commit{Seq: 3, Entries: []format.Entry{&format.TopicDeleted{ID: 2}}})
	if s.Memory() != before+objectMemory || s.Batches() != 0 {
		t.Fatalf("%d bytes and %d batches are left of it", s.Memory()-before-objectMemory, s.Batches())
	}
}

// long returns a state with one partition of that many batches, which have 1, 2, 3, 1, 2, 3, …
// records, and its model.
func long(t rapid.TB, batches int) (*State, *model) {
	t.Helper()
	s, m := New(), &model{}
	entries := []format.Entry{&format.TopicCreated{ID: 1, Partitions: 1, Name: "a"}}
	var base format.Offset
	for i := range batches {
		x := &format.Batch{Topic: 1, Base: base, Count: uint32(i%3 + 1), Size: uint32(61 + i%7), CRC: uint32(i), MaxTime: int64(i)}
		base += format.Offset(x.Count)
		entries = append(entries, x)
		if i%10 == 9 || i == batches-1 {
			c := &format.Commit{Seq: s.Seq() + 1, Entries: entries}
			c.Nonce[0] = byte(i)
			format.EncodeCommit(c)
			mustApply(t, s, c)
			m.apply(c)
			entries = nil
		}
	}
	return s, m
}

func TestLocateAcrossChunks(t *testing.T) {
	for _, batches := range []int{1, chunkBatches - 1, chunkBatches, chunkBatches + 1, 2*chunkBatches + 1} {
		s, m := long(t, batches)
		if n := len(s.Topic("a").Partitions[0].chunks); n != (batches+chunkBatches-1)/chunkBatches {
			t.Fatalf("%d batches lie in %d chunks", batches, n)
		}
		want := m.topics[0].partitions[0]
		for i, l := range want.batches {
			for _, offset := range []format.Offset{l.Base, l.End() - 1} {
				got := s.Locate(nil, s.Topic("a"), 0, offset, math.MaxInt64, 3)
				if !slices.Equal(got, want.batches[i:min(i+3, batches)]) {
					t.Fatalf("offset %d: got %+v", offset, got)
				}
			}
		}
		if got := s.Locate(nil, s.Topic("a"), 0, 0, math.MaxInt64, math.MaxInt); !slices.Equal(got, want.batches) {
			t.Fatalf("%d of %d batches", len(got), batches)
		}
		requireSame(t, mustDecode(t, s.Seq(), s.View().Encode()), s)
	}
}

func TestLocateAppends(t *testing.T) {
	s, m := long(t, 5)
	first := Location{Base: -7}
	got := s.Locate([]Location{first}, s.Topic("a"), 0, 0, 1, 1)
	if !slices.Equal(got, []Location{first, m.topics[0].partitions[0].batches[0]}) {
		t.Fatalf("got %+v", got)
	}
	if got := s.Locate(nil, s.Topic("a"), 0, s.Topic("a").Partitions[0].End, 1, 1); got != nil {
		t.Fatalf("at the end: %+v", got)
	}
}

// A commit may refer to its data objects in any order, so the indexes of a partition's batches
// may fall.
func TestObjectsInAnyOrder(t *testing.T) {
	s, m := New(), &model{}
	c := &format.Commit{Seq: 1, PayloadSize: 100, Entries: []format.Entry{&format.TopicCreated{ID: 1, Partitions: 1, Name: "a"}}}
	for i := range uint64(4) {
		c.Data = append(c.Data, format.DataRef{ID: i, Size: 1000})
	}
	for i, object := range []uint32{4, 2, 0, 3, 1, 0} {
		c.Entries = append(c.Entries, &format.Batch{Topic: 1, Base: format.Offset(i), Count: 1, Size: 61, Object: object})
	}
	format.EncodeCommit(c)
	mustApply(t, s, c)
	m.apply(c)
	m.compare(t, s)
	again := mustDecode(t, 1, s.View().Encode())
	m.compare(t, again)
	requireSame(t, again, s)
}

// The index of an object may be too large for a chunk's 32 bits.
func TestObjectIndexBeyond32BitsBeginsAChunk(t *testing.T) {
	s := New()
	s.objects.first = 1 << 32
	for i := range uint64(3) {
		s.objects.add(Object{Seq: i, Tag: i}, format.CommitTime{})
	}
	near, far := s.objects.first, s.objects.first+1
	p := Partition{End: 3, chunks: []chunk{{object: 1, batches: []batch{{base: 0}}}}}
	s.push(&p, near, batch{base: 1}) // 2^32 - 1 above the chunk's first object
	s.push(&p, far, batch{base: 2})
	if len(p.chunks) != 2 || len(p.chunks[0].batches) != 2 || p.chunks[0].batches[1].object != math.MaxUint32 || p.chunks[1].object != far {
		t.Fatalf("chunks: %+v", p.chunks)
	}
	topic := &Topic{Partitions: []Partition{p}}
	if got := s.Locate(nil, topic, 0, 1, 0, 1); got[0].Object.Tag != 0 {
		t.Fatalf("got %+v", got)
	}
	if got := s.Locate(nil, topic, 0, 2, 0, 1); got[0].Object.Tag != 1 {
		t.Fatalf("got %+v", got)
	}
}

func TestAllObjectsSeparatesLiveFromUnused(t *testing.T) {
	s := sound(t)
	type entry struct {
		data, live bool
		seq        uint64
	}
	walk := func() (out []entry) {
		for o, live := range s.AllObjects() {
			out = append(out, entry{o.Data, live, o.Seq})
		}
		return out
	}
	if got := walk(); !slices.Equal(got, []entry{{false, true, 1}, {true, true, 1}}) {
		t.Errorf("objects are %v", got)
	}
	mustApply(t, s, &format.Commit{Seq: 4, Time: 20, Entries: []format.Entry{&format.TopicDeleted{ID: 1}}})
	if got := walk(); !slices.Equal(got, []entry{{false, true, 1}, {true, false, 1}}) {
		t.Errorf("after a topic was deleted they are %v", got)
	}
	for range s.AllObjects() {
		break // a caller may stop iterating early
	}
	bytes := int64(0)
	for o := range s.AllObjects() {
		bytes += int64(o.Size)
	}
	if got := s.ObjectBytes(); got != bytes || got == 0 {
		t.Errorf("all objects have %d bytes together, and are said to have %d", bytes, got)
	}
}

func TestMovedStartGivesBatchesBack(t *testing.T) {
	s, m := long(t, 3*chunkBatches)
	before := s.Memory()
	for _, start := range []format.Offset{0, 1, 2, 3, 500, 511, 512, 513, 1024, 1535, 1536} {
		c := &format.Commit{Seq: s.Seq() + 1, Entries: []format.Entry{&format.StartMoved{Topic: 1, Start: start}}}
		mustApply(t, s, c)
		m.apply(c)
		m.compare(t, s)
		requireSame(t, mustDecode(t, s.Seq(), s.View().Encode()), s)
	}
	if s.Batches() != 0 || s.Memory() > before-3*chunkBatches*batchMemory {
		t.Fatalf("%d batches are left; memory went from %d to %d", s.Batches(), before, s.Memory())
	}
	for i := range s.Objects() {
		if live := s.objects.entry(uint64(i)).live; live != 0 {
			t.Fatalf("%d batches point into object %d", live, i)
		}
	}
	next := &format.Commit{Seq: s.Seq() + 1, Entries: []format.Entry{&format.Batch{Topic: 1, Base: 1536, Count: 2, Size: 61}}}
	format.EncodeCommit(next)
	mustApply(t, s, next)
	m.apply(next)
	m.compare(t, s)
}

func TestStartAtTheEndGivesAllMemoryBack(t *testing.T) {
	s := oneEach(t, 0)
	before := s.Memory()
	const batches = 5 // the capacity of their list is larger
	applyOneEach(t, s, batches)
	c := &format.Commit{Seq: s.Seq() + 1, Time: s.Time(), Entries: []format.Entry{&format.StartMoved{Topic: 1, Start: s.TopicByID(1).Partitions[0].End}}}
	mustApply(t, s, c)
	if left := s.Memory() - before; left != batches*objectMemory {
		t.Fatalf("%d bytes are left, want %d", left, batches*objectMemory)
	}
}

func TestExpiredKeysGiveMemoryBack(t *testing.T) {
	s := sound(t)
	before := s.Memory()
	var entries []format.Entry
	for i := range 1000 {
		k := keyedEntry(1, 1, 10)
		k.Key[1], k.Key[2] = byte(i), byte(i>>8)
		entries = append(entries, k)
	}
	mustApply(t, s, &format.Commit{Seq: 4, Time: 20, Entries: entries})
	if s.KeyedCount(20) != 1000 || s.Memory() < before+1000*keyedMemory {
		t.Fatalf("%d appends take %d bytes", s.KeyedCount(20), s.Memory()-before)
	}
	if _, ok := s.Keyed(format.Digest{1}, 20+KeyedFor.Microseconds()-1); !ok {
		t.Fatal("an append is forgotten too early")
	}
	mustApply(t, s, &format.Commit{Seq: 5, Time: 20 + KeyedFor.Microseconds(), Entries: entries[:1]})
	if s.KeyedCount(s.Time()) != 1 || s.Memory() != before+s.keyed.list[0].memory() {
		t.Fatalf("%d appends are left, and %d bytes", s.KeyedCount(s.Time()), s.Memory()-before)
	}
}
