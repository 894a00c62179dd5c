package state

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/format"
)

// model is a simple implementation of the fold, for valid commits.
type model struct {
	topics []*modelTopic
	time   int64
	keyed  []Keyed
	// consumers has the position of each consumer in partition 0, by id.
	consumers      map[format.ConsumerID]format.Offset
	consumerTopics map[format.ConsumerID]format.TopicID
	queues         modelQueues
}

type modelTopic struct {
	id         format.TopicID
	name       string
	config     format.TopicConfig
	partitions []modelPartition
}

type modelPartition struct {
	start, end format.Offset
	batches    []Location
}

func (m *model) topic(id format.TopicID) *modelTopic {
	i := slices.IndexFunc(m.topics, func(t *modelTopic) bool { return t.id == id })
	return m.topics[i]
}

func (m *model) apply(c *format.Commit) {
	m.time = c.Time
	m.queues.expire(c.Time)
	m.keyed = slices.DeleteFunc(m.keyed, func(k Keyed) bool { return m.time-k.Time >= KeyedFor.Microseconds() })
	for _, it := range c.Entries {
		m.queues.apply(it, m, c.Time)
		switch x := it.(type) {
		case *format.TopicCreated:
			m.topics = append(m.topics, &modelTopic{id: x.ID, name: x.Name, partitions: make([]modelPartition, x.Partitions)})
		case *format.TopicDeleted:
			m.topics = slices.DeleteFunc(m.topics, func(t *modelTopic) bool { return t.id == x.ID })
			for id, topic := range m.consumerTopics {
				if topic == x.ID {
					delete(m.consumers, id)
				}
			}
		case *format.PartitionsAdded:
			t := m.topic(x.Topic)
			t.partitions = append(t.partitions, make([]modelPartition, int(x.Partitions)-len(t.partitions))...)
		case *format.TopicConfigured:
			m.topic(x.Topic).config = x.Config
		case *format.StartMoved:
			p := &m.topic(x.Topic).partitions[x.Partition]
			p.start = x.Start
			p.batches = slices.DeleteFunc(p.batches, func(l Location) bool { return l.End() <= x.Start })
		case *format.ConsumerCreated:
			if m.consumers == nil {
				m.consumers, m.consumerTopics = map[format.ConsumerID]format.Offset{}, map[format.ConsumerID]format.TopicID{}
			}
			m.consumers[x.ID], m.consumerTopics[x.ID] = 0, x.Topic
		case *format.PositionsMoved:
			m.consumers[x.Consumer] = x.Positions[0].Offset
		case *format.ConsumerDeleted:
			delete(m.consumers, x.ID)
		case *format.AppendKeyed:
			m.keyed = append(m.keyed, Keyed{Key: x.Key, Print: x.Print, Time: c.Time, Ranges: x.Ranges})
		case *format.Batch:
			l := Location{Base: x.Base, Span: int64(x.Count), Records: int64(x.Count), Size: x.Size, CRC: x.CRC}
			if x.Object == 0 {
				l.Object = Object{Seq: uint64(c.Seq), Tag: c.Nonce.Tag(), Size: uint32(c.Size())}
				l.Pos = c.PayloadStart + x.Pos
				l.Commit.Seq = c.Seq
			} else {
				r := c.Data[x.Object-1]
				l.Object = Object{Data: true, Seq: uint64(r.Seq), Tag: r.ID, Size: r.Size}
				l.Pos = format.DataPayloadStart + x.Pos
			}
			p := &m.topic(x.Topic).partitions[x.Partition]
			p.batches = append(p.batches, l)
			p.end = x.Base + format.Offset(x.Count)
		}
	}
}

// locate returns what Locate should return.
func locate(p modelPartition, offset format.Offset, bytesMax int64, countMax int) (out []Location) {
	var bytes int64
	for _, l := range p.batches {
		if l.End() <= offset || offset < p.start {
			continue
		}
		if len(out) > 0 && (bytes >= bytesMax || len(out) >= countMax) {
			break
		}
		out = append(out, l)
		bytes += int64(l.Size)
	}
	return out
}

// compare asserts that state and model are the same for every offset.
func (m *model) compare(t rapid.TB, s *State) {
	t.Helper()
	if len(m.topics) != s.TopicCount() || len(s.Topics()) != s.TopicCount() {
		t.Fatalf("%d topics, not %d", s.TopicCount(), len(m.topics))
	}
	if !slices.IsSortedFunc(s.Topics(), func(a, b *Topic) int { return strings.Compare(a.Name, b.Name) }) {
		t.Fatal("topics are not in order")
	}
	batches := 0
	for _, want := range m.topics {
		got := s.Topic(want.name)
		if got == nil || got != s.TopicByID(want.id) || got.ID != want.id || len(got.Partitions) != len(want.partitions) {
			t.Fatalf("topic %+v, not %+v", got, want)
		}
		if got.Config != want.config {
			t.Fatalf("config %+v, not %+v", got.Config, want.config)
		}
		for i, p := range want.partitions {
			batches += len(p.batches)
			comparePartition(t, s, got, i, p)
		}
	}
	if s.Batches() != batches {
		t.Fatalf("%d batches, not %d", s.Batches(), batches)
	}
	if s.KeyedCount(m.time) != len(m.keyed) {
		t.Fatalf("%d appends are remembered, not %d", s.KeyedCount(m.time), len(m.keyed))
	}
	m.queues.compare(t, s)
	if took := recount(s); s.Memory() != took {
		t.Fatalf("memory is %d, but a new count gives %d", s.Memory(), took)
	}
	keyed := int64(0)
	for i := range s.keyed.list {
		keyed += s.keyed.list[i].memory()
	}
	if s.Memory()-s.LastingMemory() != keyed {
		t.Fatalf("idempotency keys take %d bytes, not %d", keyed, s.Memory()-s.LastingMemory())
	}
	for id, c := range s.consumers.byID {
		if at, ok := m.consumers[id]; !ok || c.Position(0) != at {
			t.Fatalf("consumer %d is at %d, not %d, %v", id, c.Position(0), at, ok)
		}
	}
	for id := range m.consumers {
		if c := s.consumers.byID[id]; c == nil || s.Consumer(c.Topic, c.Name) != c {
			t.Fatalf("consumer %d is not there", id)
		}
	}
	for _, want := range m.keyed {
		if got, ok := s.Keyed(want.Key, m.time); !ok || !cmp.Equal(got, want) {
			t.Fatalf("remembered is %+v, %v; not %+v", got, ok, want)
		}
		if _, ok := s.Keyed(want.Key, want.Time+KeyedFor.Microseconds()); ok {
			t.Fatalf("an append is remembered for too long: %+v", want)
		}
	}
}

func comparePartition(t rapid.TB, s *State, topic *Topic, partition int, want modelPartition) {
	t.Helper()
	var bytes int64
	for _, l := range want.batches {
		bytes += int64(l.Size)
	}
	p := &topic.Partitions[partition]
	if p.Start != want.start || p.End != want.end || p.Bytes != bytes {
		t.Fatalf("partition %d holds offsets %d to %d, %d bytes; not %d to %d, %d bytes", partition, p.Start, p.End, p.Bytes, want.start, want.end, bytes)
	}
	for offset := format.Offset(-1); offset <= want.end; offset++ {
		for _, bound := range []struct {
			bytes int64
			count int
		}{{0, 0}, {math.MaxInt64, 1}, {150, math.MaxInt}, {math.MaxInt64, 3}, {math.MaxInt64, math.MaxInt}} {
			got := s.Locate(nil, topic, format.Partition(partition), offset, bound.bytes, bound.count)
			if want := locate(want, offset, bound.bytes, bound.count); !slices.Equal(got, want) {
				t.Fatalf("offset %d, bounds %+v (-want +got)\n%s", offset, bound, cmp.Diff(want, got))
			}
		}
	}
}

// writer makes valid commits with a Draft, as a broker does.
type writer struct {
	*State
	tag    uint64
	queues bool // most entries are about queues
}

// commit draws the next commit, and returns the draft by which it was made.
func (w *writer) commit(t *rapid.T) (*format.Commit, *Draft) {
	w.tag++
	c := &format.Commit{Seq: w.Seq() + 1, Time: w.Time() + rapid.SampledFrom([]int64{0, 1, 3, KeyedFor.Microseconds() / 2, KeyedFor.Microseconds()}).Draw(t, "time"), Entries: []format.Entry{}}
	if w.Level() >= format.LevelSegments {
		c.Time = max(c.Time, w.Time()+1)
	}
	d := w.Draft(c.Time).Measure()
	c.Nonce[0], c.Nonce[1] = byte(w.tag), byte(w.tag>>8)
	for range rapid.IntRange(0, 2).Draw(t, "data objects") {
		w.tag++
		r := format.DataRef{ID: w.tag, Size: 10_000}
		r.Seq = format.Seq(rapid.Uint64Range(uint64(w.DataFloor()), uint64(w.Seq())).Draw(t, "seq"))
		c.Data = append(c.Data, r)
	}
	pos := make([]uint32, len(c.Data)+1)
	for range rapid.IntRange(0, 8).Draw(t, "entries") {
		it := w.entry(t, d, c, pos)
		if it == nil {
			continue
		}
		if err := d.Take(it); err != nil {
			t.Fatalf("take %+v: %v", it, err)
		}
		c.Entries = append(c.Entries, it)
	}
	c.PayloadSize = pos[0]
	decoded, err := format.DecodeCommit(format.EncodeCommit(c))
	if err != nil {
		t.Fatal(err)
	}
	return decoded, d
}

// entry draws a valid entry; nil if no entry of the drawn kind would be valid.
func (w *writer) entry(t *rapid.T, d *Draft, c *format.Commit, pos []uint32) format.Entry {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "topic")
	id, partitions, exists := d.TopicID(name)
	kind := rapid.IntRange(0, 28).Draw(t, "kind")
	switch {
	case kind == 16 || kind == 17:
		return w.keyEntry(t, d)
	case kind == 0:
		return &format.UnknownEntry{Kind: 77, Body: []byte("new")}
	case kind == 1 && w.Seq() > 0:
		return &format.DataFloor{Seq: format.Seq(rapid.Uint64Range(uint64(d.dataFloor), uint64(max(w.Seq(), d.dataFloor))).Draw(t, "floor"))}
	case !exists:
		return &format.TopicCreated{ID: d.NextTopicID(), Name: name, Partitions: rapid.Uint32Range(1, 3).Draw(t, "partitions")}
	case kind >= 21 || w.queues && kind >= 12:
		return w.queueEntry(t, d, id, partitions)
	case kind >= 18:
		return w.consumerEntry(t, d, id, partitions)
	case kind == 2:
		return &format.TopicDeleted{ID: id}
	case kind == 3 && partitions < 6:
		return &format.PartitionsAdded{Topic: id, Partitions: partitions + 1}
	case kind == 4:
		return &format.TopicConfigured{Topic: id, Config: format.TopicConfig{RetentionMS: rapid.Int64Range(0, 9).Draw(t, "retention")}}
	}
	partition := format.Partition(rapid.Uint32Range(0, partitions-1).Draw(t, "partition"))
	start, end := d.Start(id, partition), format.Offset(0)
	end, _ = d.End(id, partition)
	switch {
	case kind == 5:
		return &format.StartMoved{Topic: id, Partition: partition, Start: format.Offset(rapid.Int64Range(int64(start), int64(end)).Draw(t, "start"))}
	case kind <= 7 && end > 0:
		return w.appendKeyed(t, d, uint64(id), format.KeyedRange{Partition: partition, Count: 1, Base: end - 1})
	}
	x := &format.Batch{
		Topic:     id,
		Partition: partition,
		Object:    uint32(rapid.IntRange(0, len(c.Data)).Draw(t, "object")),
		MaxTime:   rapid.Int64Range(-5, 1<<41).Draw(t, "max time"),
		Count:     rapid.Uint32Range(1, 4).Draw(t, "count"),
		Size:      rapid.Uint32Range(61, 100).Draw(t, "size"),
		CRC:       rapid.Uint32().Draw(t, "crc"),
		Base:      end,
	}
	x.Pos = pos[x.Object]
	pos[x.Object] += x.Size
	return x
}

// appendKeyed returns an entry for an append with one of a few keys; nil if the key is taken.
func (w *writer) appendKeyed(t *rapid.T, d *Draft, topic uint64, r format.KeyedRange) format.Entry {
	x := &format.AppendKeyed{Topic: format.TopicID(topic), Ranges: []format.KeyedRange{r}, Print: format.Digest{byte(w.tag)}}
	if rapid.IntRange(0, 4).Draw(t, "without records") == 0 {
		x.Topic, x.Ranges = 0, nil
	}
	x.Key[0] = rapid.Byte().Draw(t, "key") % 8
	if _, taken := w.Keyed(x.Key, d.time); taken || d.keyed[x.Key] {
		return nil
	}
	return x
}

// requireSame asserts that two states have the same content and encode to the same bytes.
func requireSame(t rapid.TB, got, want *State) {
	t.Helper()
	if string(got.View().Encode()) != string(want.View().Encode()) {
		t.Fatalf("the states' snapshots differ")
	}
	if got.Seq() != want.Seq() || got.Time() != want.Time() || got.DataFloor() != want.DataFloor() ||
		got.Batches() != want.Batches() || got.Objects() != want.Objects() || got.ObjectBytes() != want.ObjectBytes() || got.topics.next != want.topics.next ||
		!cmp.Equal(got.View().consumers, want.View().consumers, cmp.AllowUnexported(Consumer{}), cmpopts.EquateEmpty()) ||
		got.consumers.next != want.consumers.next || len(got.consumers.byName) != len(want.consumers.byName) ||
		!cmp.Equal(got.View().queues, want.View().queues, cmp.AllowUnexported(Queue{}, queuePartition{}, done{}, span{}, sorted[format.Offset]{}), cmpopts.EquateEmpty()) ||
		got.queues.next != want.queues.next || len(got.queues.byName) != len(want.queues.byName) || got.queues.list.count != want.queues.list.count ||
		!slices.Equal(got.Delayed(), want.Delayed()) || !slices.Equal(got.sessions, want.sessions) || queuesTake(got) != queuesTake(want) ||
		got.NextKeyID() != want.NextKeyID() || !cmp.Equal(got.Keys(), want.Keys()) ||
		!cmp.Equal(got.keyed.list, want.keyed.list, cmpopts.EquateEmpty()) || len(got.keyed.index) != len(want.keyed.index) {
		t.Fatalf("the states differ: %s and %s", summary(got), summary(want))
	}
	for i := range want.Objects() {
		if g, w := *got.objects.entry(got.objects.first + uint64(i)), *want.objects.entry(want.objects.first + uint64(i)); g != w {
			t.Fatalf("object %d is %+v, not %+v", i, g, w)
		}
	}
}

func summary(s *State) string {
	return fmt.Sprintf("slot %d, time %d, floor %d, %d topics, %d batches, %d objects", s.Seq(), s.Time(), s.DataFloor(), s.TopicCount(), s.Batches(), s.Objects())
}

func mustApply(t rapid.TB, s *State, cs ...*format.Commit) {
	t.Helper()
	for _, c := range cs {
		if err := s.Apply(c); err != nil {
			t.Fatalf("apply slot %d: %v", c.Seq, err)
		}
	}
}

func mustDecode(t testing.TB, seq format.Seq, b []byte) *State {
	t.Helper()
	s, err := Decode(seq, b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
