package state

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/commitlog"
)

// model is the fold written down plainly, for commits that are sound.
type model struct {
	topics []*modelTopic
}

type modelTopic struct {
	id         uint64
	name       string
	partitions [][]Location
}

func (m *model) topic(id uint64) *modelTopic {
	i := slices.IndexFunc(m.topics, func(t *modelTopic) bool { return t.id == id })
	return m.topics[i]
}

func (m *model) apply(c *commitlog.Commit) {
	for _, it := range c.Items {
		switch x := it.(type) {
		case *commitlog.TopicCreated:
			m.topics = append(m.topics, &modelTopic{x.ID, x.Name, make([][]Location, x.Partitions)})
		case *commitlog.TopicDeleted:
			m.topics = slices.DeleteFunc(m.topics, func(t *modelTopic) bool { return t.id == x.ID })
		case *commitlog.PartitionsAdded:
			t := m.topic(x.Topic)
			t.partitions = append(t.partitions, make([][]Location, int(x.Partitions)-len(t.partitions))...)
		case *commitlog.Batch:
			l := Location{Base: x.Base, Count: int64(x.Count), Size: x.Size, CRC: x.CRC}
			if x.Object == 0 {
				l.Object = Object{Seq: uint64(c.Seq), Tag: c.Nonce.Tag(), Size: uint32(c.Size())}
				l.Pos = c.PayloadStart + x.Pos
			} else {
				r := c.Data[x.Object-1]
				l.Object = Object{Data: true, Seq: uint64(r.Seq), Tag: r.ID, Size: r.Size}
				l.Pos = commitlog.DataPayloadStart + x.Pos
			}
			p := &m.topic(x.Topic).partitions[x.Partition]
			*p = append(*p, l)
		}
	}
}

// locate is what Locate should return.
func locate(batches []Location, offset, bytesMax int64, countMax int) (out []Location) {
	var bytes int64
	for _, l := range batches {
		if l.Base+l.Count <= offset || offset < 0 {
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

// compare asserts that the state holds what the model does, for every offset.
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
		for i, p := range want.partitions {
			batches += len(p)
			comparePartition(t, s, got, i, p)
		}
	}
	if s.Batches() != batches {
		t.Fatalf("%d batches, not %d", s.Batches(), batches)
	}
}

func comparePartition(t rapid.TB, s *State, topic *Topic, partition int, want []Location) {
	t.Helper()
	var end, bytes int64
	for _, l := range want {
		end, bytes = l.Base+l.Count, bytes+int64(l.Size)
	}
	p := &topic.Partitions[partition]
	if p.Start != 0 || p.End != end || p.Bytes != bytes {
		t.Fatalf("partition %d holds offsets %d to %d, %d bytes; not 0 to %d, %d bytes", partition, p.Start, p.End, p.Bytes, end, bytes)
	}
	for offset := int64(-1); offset <= end; offset++ {
		for _, bound := range []struct {
			bytes int64
			count int
		}{{0, 0}, {math.MaxInt64, 1}, {150, math.MaxInt}, {math.MaxInt64, 3}, {math.MaxInt64, math.MaxInt}} {
			got := s.Locate(nil, topic, int32(partition), offset, bound.bytes, bound.count)
			if diff := cmp.Diff(locate(want, offset, bound.bytes, bound.count), got); diff != "" {
				t.Fatalf("offset %d, bounds %+v (-want +got)\n%s", offset, bound, diff)
			}
		}
	}
}

// writer makes sound commits as a broker does, with a Draft.
type writer struct {
	*State
	tag uint64
}

// commit draws the commit that follows, and returns the draft it was made with.
func (w *writer) commit(t *rapid.T) (*commitlog.Commit, *Draft) {
	d := w.Draft()
	w.tag++
	c := &commitlog.Commit{Seq: w.Seq() + 1, Time: w.Time() + rapid.Int64Range(0, 3).Draw(t, "time"), Items: []commitlog.Item{}}
	c.Nonce[0], c.Nonce[1] = byte(w.tag), byte(w.tag>>8)
	for range rapid.IntRange(0, 2).Draw(t, "data objects") {
		w.tag++
		r := commitlog.DataRef{ID: w.tag, Size: 10_000}
		r.Seq = commitlog.Seq(rapid.Uint64Range(uint64(w.DataFloor()), uint64(w.Seq())).Draw(t, "seq"))
		c.Data = append(c.Data, r)
	}
	pos := make([]uint32, len(c.Data)+1)
	for range rapid.IntRange(0, 8).Draw(t, "items") {
		it := w.item(t, d, c, pos)
		if it == nil {
			continue
		}
		if err := d.Take(it); err != nil {
			t.Fatalf("take %+v: %v", it, err)
		}
		c.Items = append(c.Items, it)
	}
	c.PayloadSize = pos[0]
	decoded, err := commitlog.DecodeCommit(commitlog.EncodeCommit(c))
	if err != nil {
		t.Fatal(err)
	}
	return decoded, d
}

// item draws an item that is sound, nil if there is none of the kind drawn.
func (w *writer) item(t *rapid.T, d *Draft, c *commitlog.Commit, pos []uint32) commitlog.Item {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "topic")
	id, partitions, exists := d.TopicID(name)
	kind := rapid.IntRange(0, 15).Draw(t, "kind")
	switch {
	case kind == 0:
		return &commitlog.UnknownItem{Kind: 77, Body: []byte("new")}
	case kind == 1 && w.Seq() > 0:
		return &commitlog.DataFloor{Seq: commitlog.Seq(rapid.Uint64Range(uint64(d.dataFloor), uint64(max(w.Seq(), d.dataFloor))).Draw(t, "floor"))}
	case !exists:
		return &commitlog.TopicCreated{ID: d.NextTopicID(), Name: name, Partitions: rapid.Uint32Range(1, 3).Draw(t, "partitions")}
	case kind == 2:
		return &commitlog.TopicDeleted{ID: id}
	case kind == 3 && partitions < 6:
		return &commitlog.PartitionsAdded{Topic: id, Partitions: partitions + 1}
	}
	x := &commitlog.Batch{
		Topic:     id,
		Partition: rapid.Uint32Range(0, partitions-1).Draw(t, "partition"),
		Object:    uint32(rapid.IntRange(0, len(c.Data)).Draw(t, "object")),
		MaxTime:   rapid.Int64Range(-5, 1<<41).Draw(t, "max time"),
		Count:     rapid.Uint32Range(1, 4).Draw(t, "count"),
		Size:      rapid.Uint32Range(61, 100).Draw(t, "size"),
		CRC:       rapid.Uint32().Draw(t, "crc"),
	}
	x.Base, _ = d.End(id, x.Partition)
	x.Pos = pos[x.Object]
	pos[x.Object] += x.Size
	return x
}

// requireSame asserts that two states mean the same and have the same bytes.
func requireSame(t rapid.TB, got, want *State) {
	t.Helper()
	if string(got.View().Encode()) != string(want.View().Encode()) {
		t.Fatalf("the states' snapshots differ")
	}
	if got.Seq() != want.Seq() || got.Time() != want.Time() || got.DataFloor() != want.DataFloor() ||
		got.Batches() != want.Batches() || got.Objects() != want.Objects() || got.nextTopic != want.nextTopic {
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

func mustApply(t rapid.TB, s *State, cs ...*commitlog.Commit) {
	t.Helper()
	for _, c := range cs {
		if err := s.Apply(c); err != nil {
			t.Fatalf("apply slot %d: %v", c.Seq, err)
		}
	}
}

func mustDecode(t testing.TB, seq commitlog.Seq, b []byte) *State {
	t.Helper()
	s, err := Decode(seq, b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
