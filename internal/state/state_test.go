package state

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/commitlog"
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
				for p := range uint32(7) {
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

// sound returns a state with topics 1 ("a", 2 partitions) and 3 ("c", 1), and
// with the commits that led there; topic 2 was deleted, the data floor is 2.
func sound(t rapid.TB) *State {
	t.Helper()
	s := New()
	for _, c := range []*commitlog.Commit{
		{Seq: 1, Time: 10, Nonce: commitlog.Nonce{1, 2, 3, 4, 5, 6, 7, 8}, PayloadSize: 131, Items: []commitlog.Item{
			&commitlog.TopicCreated{ID: 1, Partitions: 2, Name: "a"},
			&commitlog.TopicCreated{ID: 2, Partitions: 1, Name: "b"},
			&commitlog.TopicCreated{ID: 3, Partitions: 1, Name: "c"},
			&commitlog.Batch{Topic: 2, Count: 1, Size: 61},
			&commitlog.Batch{Topic: 3, Count: 2, Size: 70, Pos: 61, MaxTime: 1_790_000_000_000, CRC: 0x01020304},
		}},
		{Seq: 2, Time: 10, Data: []commitlog.DataRef{{Seq: 1, ID: 1, Size: 1000}}, Items: []commitlog.Item{
			&commitlog.Batch{Topic: 1, Partition: 1, Count: 10, Size: 100, Object: 1, MaxTime: -1},
			&commitlog.TopicDeleted{ID: 2},
		}},
		{Seq: 3, Time: 20, Items: []commitlog.Item{&commitlog.DataFloor{Seq: 2}}},
	} {
		commitlog.EncodeCommit(c) // places its payload
		mustApply(t, s, c)
	}
	return s
}

// keyedItem remembers under a key that the record before end was appended.
func keyedItem(key byte, topic uint64, end int64) *commitlog.AppendKeyed {
	partition := uint32(0)
	if topic == 1 {
		partition = 1
	}
	return &commitlog.AppendKeyed{Topic: topic, Key: commitlog.Digest{key}, Print: commitlog.Digest{9}, Ranges: []commitlog.KeyedRange{{Partition: partition, Count: 1, Base: end - 1}}}
}

// keyedCommit follows the commits of sound.
func keyedCommit() *commitlog.Commit {
	return &commitlog.Commit{Seq: 4, Time: 20, Items: []commitlog.Item{
		keyedItem(1, 1, 10),
		&commitlog.StartMoved{Topic: 1, Partition: 1, Start: 4},
		&commitlog.TopicConfigured{Topic: 3, Config: commitlog.TopicConfig{RetentionMS: 3_600_000, RetentionBytes: 1 << 20}},
	}}
}

func TestNonsenseIsRefusedAndChangesNothing(t *testing.T) {
	fine := []commitlog.Item{
		&commitlog.TopicCreated{ID: 4, Partitions: 1, Name: "d"},
		&commitlog.Batch{Topic: 4, Count: 3, Size: 61},
		&commitlog.Batch{Topic: 1, Partition: 1, Base: 10, Count: 3, Size: 61},
		&commitlog.DataFloor{Seq: 3},
		keyedItem(2, 4, 3),
		&commitlog.StartMoved{Topic: 1, Partition: 1, Start: 13},
		&commitlog.StartMoved{Topic: 4, Start: 1},
		&commitlog.TopicConfigured{Topic: 4, Config: commitlog.TopicConfig{RetentionMS: 5}},
	}
	one := func(it commitlog.Item) func(c *commitlog.Commit) {
		return func(c *commitlog.Commit) { c.Items = append(c.Items, it) }
	}
	for _, c := range []struct {
		name string
		bend func(c *commitlog.Commit)
	}{
		{"slot again", func(c *commitlog.Commit) { c.Seq = 4 }},
		{"slot left out", func(c *commitlog.Commit) { c.Seq = 6 }},
		{"time that falls", func(c *commitlog.Commit) { c.Time = 19 }},
		{"data object below the floor", func(c *commitlog.Commit) { c.Data = []commitlog.DataRef{{Seq: 1, ID: 9, Size: 100}} }},
		{"data object from the future", func(c *commitlog.Commit) { c.Data = []commitlog.DataRef{{Seq: 5, ID: 9, Size: 100}} }},
		{"offset again", one(&commitlog.Batch{Topic: 1, Partition: 1, Base: 10, Count: 1, Size: 61})},
		{"hole in the offsets", one(&commitlog.Batch{Topic: 1, Partition: 1, Base: 14, Count: 1, Size: 61})},
		{"first offset of an empty partition", one(&commitlog.Batch{Topic: 1, Base: 1, Count: 1, Size: 61})},
		{"partition that is not there", one(&commitlog.Batch{Topic: 1, Partition: 2, Count: 1, Size: 61})},
		{"topic that is not there", one(&commitlog.Batch{Topic: 9, Count: 1, Size: 61})},
		{"topic zero", one(&commitlog.Batch{Count: 1, Size: 61})},
		{"topic that was deleted", one(&commitlog.Batch{Topic: 2, Base: 1, Count: 1, Size: 61})},
		{"topic id again", one(&commitlog.TopicCreated{ID: 3, Partitions: 1, Name: "e"})},
		{"topic id of a deleted one", one(&commitlog.TopicCreated{ID: 2, Partitions: 1, Name: "e"})},
		{"topic id left out", one(&commitlog.TopicCreated{ID: 6, Partitions: 1, Name: "e"})},
		{"topic name that is taken", one(&commitlog.TopicCreated{ID: 5, Partitions: 1, Name: "a"})},
		{"topic name that this commit took", one(&commitlog.TopicCreated{ID: 5, Partitions: 1, Name: "d"})},
		{"topic without a name", one(&commitlog.TopicCreated{ID: 5, Partitions: 1})},
		{"topic without partitions", one(&commitlog.TopicCreated{ID: 5, Name: "e"})},
		{"topic with too many partitions", one(&commitlog.TopicCreated{ID: 5, Partitions: PartitionsMax + 1, Name: "e"})},
		{"deletion of nothing", one(&commitlog.TopicDeleted{ID: 9})},
		{"deletion again", one(&commitlog.TopicDeleted{ID: 2})},
		{"partitions of nothing", one(&commitlog.PartitionsAdded{Topic: 2, Partitions: 5})},
		{"partitions that are there", one(&commitlog.PartitionsAdded{Topic: 1, Partitions: 2})},
		{"fewer partitions", one(&commitlog.PartitionsAdded{Topic: 1, Partitions: 1})},
		{"too many partitions", one(&commitlog.PartitionsAdded{Topic: 1, Partitions: PartitionsMax + 1})},
		{"floor that falls", one(&commitlog.DataFloor{Seq: 1})},
		{"floor that falls within the commit", one(&commitlog.DataFloor{Seq: 2})},
		{"start behind the end", one(&commitlog.StartMoved{Topic: 1, Partition: 1, Start: 14})},
		{"start that falls", one(&commitlog.StartMoved{Topic: 1, Partition: 1, Start: 3})},
		{"start that falls within the commit", one(&commitlog.StartMoved{Topic: 4, Start: 0})},
		{"start of a partition that is not there", one(&commitlog.StartMoved{Topic: 4, Partition: 1})},
		{"config of nothing", one(&commitlog.TopicConfigured{Topic: 2})},
		{"config of a negative retention", one(&commitlog.TopicConfigured{Topic: 1, Config: commitlog.TopicConfig{RetentionMS: -1}})},
		{"config of negative bytes", one(&commitlog.TopicConfigured{Topic: 1, Config: commitlog.TopicConfig{RetentionBytes: -1}})},
		{"key that is taken", one(keyedItem(1, 1, 10))},
		{"key that this commit took", one(keyedItem(2, 1, 10))},
		{"key of records to come", one(keyedItem(3, 4, 10))},
		{"key of a partition that is not there", one(&commitlog.AppendKeyed{Topic: 4, Ranges: []commitlog.KeyedRange{{Partition: 1, Count: 1}}})},
		{"no item at all", one(nil)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sound(t)
			mustApply(t, s, keyedCommit())
			before, memory := s.View().Encode(), s.Memory()
			bent := &commitlog.Commit{Seq: 5, Time: 20, Items: slices.Clone(fine)}
			c.bend(bent)
			if err := s.Apply(bent); !errors.Is(err, ErrNonsense) {
				t.Fatalf("the error is %v", err)
			}
			if string(s.View().Encode()) != string(before) || s.Memory() != memory {
				t.Fatalf("the state has changed: %s", summary(s))
			}
			mustApply(t, s, &commitlog.Commit{Seq: 5, Time: 20, Items: fine})
		})
	}
}

func TestTopicOfTheSameNameSharesNothing(t *testing.T) {
	s, m := New(), &model{}
	create := func(id uint64) *commitlog.TopicCreated {
		return &commitlog.TopicCreated{ID: id, Partitions: 1, Name: "again"}
	}
	for _, items := range [][]commitlog.Item{
		{create(1), &commitlog.Batch{Topic: 1, Count: 5, Size: 61}},
		{&commitlog.TopicDeleted{ID: 1}},
		{create(2), &commitlog.Batch{Topic: 2, Count: 2, Size: 62}},
		// In one commit, with a batch for each.
		{&commitlog.Batch{Topic: 2, Base: 2, Count: 1, Size: 63}, &commitlog.TopicDeleted{ID: 2}, create(3), &commitlog.Batch{Topic: 3, Count: 1, Size: 64}},
	} {
		c := &commitlog.Commit{Seq: s.Seq() + 1, Items: items}
		commitlog.EncodeCommit(c)
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
	mustApply(t, s, &commitlog.Commit{Seq: 1, Items: []commitlog.Item{&commitlog.TopicCreated{ID: 1, Partitions: 3, Name: "kept"}}})
	before := s.Memory()
	items := []commitlog.Item{
		&commitlog.TopicCreated{ID: 2, Partitions: 3, Name: "deleted"},
		&commitlog.PartitionsAdded{Topic: 2, Partitions: 5},
	}
	for i := range int64(1000) {
		items = append(items, &commitlog.Batch{Topic: 2, Partition: 4, Base: i, Count: 1, Size: 61})
	}
	mustApply(t, s, &commitlog.Commit{Seq: 2, Items: items})
	if s.Memory() < before+1000*batchMemory {
		t.Fatalf("1000 batches take %d bytes", s.Memory()-before)
	}
	mustApply(t, s, &commitlog.Commit{Seq: 3, Items: []commitlog.Item{&commitlog.TopicDeleted{ID: 2}}})
	if s.Memory() != before+objectMemory || s.Batches() != 0 {
		t.Fatalf("%d bytes and %d batches are left of it", s.Memory()-before-objectMemory, s.Batches())
	}
}

// long returns a state with one partition of so many batches, which hold 1, 2,
// 3, 1, 2, 3, … records, and the model of it.
func long(t rapid.TB, batches int) (*State, *model) {
	t.Helper()
	s, m := New(), &model{}
	items := []commitlog.Item{&commitlog.TopicCreated{ID: 1, Partitions: 1, Name: "a"}}
	var base int64
	for i := range batches {
		x := &commitlog.Batch{Topic: 1, Base: base, Count: uint32(i%3 + 1), Size: uint32(61 + i%7), CRC: uint32(i), MaxTime: int64(i)}
		base += int64(x.Count)
		items = append(items, x)
		if i%10 == 9 || i == batches-1 {
			c := &commitlog.Commit{Seq: s.Seq() + 1, Items: items}
			c.Nonce[0] = byte(i)
			commitlog.EncodeCommit(c)
			mustApply(t, s, c)
			m.apply(c)
			items = nil
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
			for _, offset := range []int64{l.Base, l.Base + l.Count - 1} {
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

// A writer may use its data objects in any order, so that indexes fall.
func TestObjectsInAnyOrder(t *testing.T) {
	s, m := New(), &model{}
	c := &commitlog.Commit{Seq: 1, PayloadSize: 100, Items: []commitlog.Item{&commitlog.TopicCreated{ID: 1, Partitions: 1, Name: "a"}}}
	for i := range uint64(4) {
		c.Data = append(c.Data, commitlog.DataRef{ID: i, Size: 1000})
	}
	for i, object := range []uint32{4, 2, 0, 3, 1, 0} {
		c.Items = append(c.Items, &commitlog.Batch{Topic: 1, Base: int64(i), Count: 1, Size: 61, Object: object})
	}
	commitlog.EncodeCommit(c)
	mustApply(t, s, c)
	m.apply(c)
	m.compare(t, s)
	again := mustDecode(t, 1, s.View().Encode())
	m.compare(t, again)
	requireSame(t, again, s)
}

// An object's index may outgrow what a chunk counts with.
func TestObjectIndexBeyond32BitsBeginsAChunk(t *testing.T) {
	s := New()
	s.objects.first = 1 << 32
	for i := range uint64(3) {
		s.objects.add(Object{Seq: i, Tag: i})
	}
	near, far := s.objects.first, s.objects.first+1
	p := Partition{End: 3, chunks: []chunk{{object: 1, batches: []batch{{base: 0}}}}}
	s.push(&p, near, batch{base: 1}) // 2^32 - 1 further
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

func TestAllObjectsTellsTheLiveFromTheDead(t *testing.T) {
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
	mustApply(t, s, &commitlog.Commit{Seq: 4, Time: 20, Items: []commitlog.Item{&commitlog.TopicDeleted{ID: 1}}})
	if got := walk(); !slices.Equal(got, []entry{{false, true, 1}, {true, false, 1}}) {
		t.Errorf("after a topic was deleted they are %v", got)
	}
	for range s.AllObjects() {
		break // a walk may end early
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
	for _, start := range []int64{0, 1, 2, 3, 500, 511, 512, 513, 1024, 1535, 1536} {
		c := &commitlog.Commit{Seq: s.Seq() + 1, Items: []commitlog.Item{&commitlog.StartMoved{Topic: 1, Start: start}}}
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
	next := &commitlog.Commit{Seq: s.Seq() + 1, Items: []commitlog.Item{&commitlog.Batch{Topic: 1, Base: 1536, Count: 2, Size: 61}}}
	commitlog.EncodeCommit(next)
	mustApply(t, s, next)
	m.apply(next)
	m.compare(t, s)
}

func TestStartAtTheEndGivesAllMemoryBack(t *testing.T) {
	s := oneEach(t, 0)
	before := s.Memory()
	const batches = 5 // whose list has room for more
	applyOneEach(t, s, batches)
	c := &commitlog.Commit{Seq: s.Seq() + 1, Time: s.Time(), Items: []commitlog.Item{&commitlog.StartMoved{Topic: 1, Start: s.TopicByID(1).Partitions[0].End}}}
	mustApply(t, s, c)
	if left := s.Memory() - before; left != batches*objectMemory {
		t.Fatalf("%d bytes are left, want %d", left, batches*objectMemory)
	}
}

func TestExpiredKeysGiveMemoryBack(t *testing.T) {
	s := sound(t)
	before := s.Memory()
	var items []commitlog.Item
	for i := range 1000 {
		k := keyedItem(1, 1, 10)
		k.Key[1], k.Key[2] = byte(i), byte(i>>8)
		items = append(items, k)
	}
	mustApply(t, s, &commitlog.Commit{Seq: 4, Time: 20, Items: items})
	if s.KeyedCount(20) != 1000 || s.Memory() < before+1000*keyedMemory {
		t.Fatalf("%d appends take %d bytes", s.KeyedCount(20), s.Memory()-before)
	}
	if _, ok := s.Keyed(commitlog.Digest{1}, 20+KeyedFor.Microseconds()-1); !ok {
		t.Fatal("an append is forgotten too early")
	}
	mustApply(t, s, &commitlog.Commit{Seq: 5, Time: 20 + KeyedFor.Microseconds(), Items: items[:1]})
	if s.KeyedCount(s.Time()) != 1 || s.Memory() != before+s.keyed.list[0].memory() {
		t.Fatalf("%d appends are left, and %d bytes", s.KeyedCount(s.Time()), s.Memory()-before)
	}
}
