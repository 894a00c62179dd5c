package state

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/format"
)

// compacted is a log that is compacted, beside the same log at the level before segments.
type compacted struct {
	t     *rapid.T
	w     writer // compacted
	plain *State // the same commits, without entries about segments
	// has says which offsets of a partition each segment has.
	has map[uint64]map[batchKey][]format.SegmentRange
	// deadAt is the slot in which each object died.
	deadAt map[Object]format.Seq
	ids    uint64
	// sections has the section of each page, by the page's place.
	sections map[format.Page][]byte
	// appended has the commit of each batch that was appended since the level was raised.
	appended map[appendedAt]format.CommitTime
	kinds    map[string]int // what happened how often
}

type appendedAt struct {
	batchKey
	base format.Offset
}

func newCompacted(t *rapid.T, kinds map[string]int) *compacted {
	return &compacted{t: t, w: writer{State: New()}, plain: New(), has: map[uint64]map[batchKey][]format.SegmentRange{}, deadAt: map[Object]format.Seq{}, appended: map[appendedAt]format.CommitTime{}, sections: map[format.Page][]byte{}, kinds: kinds}
}

// liveObjects returns the objects that have batches, and for each how many; and pages.
func liveObjects(s *State) map[Object]int {
	live := map[Object]int{}
	for i := range s.keyed.pages {
		live[s.keyed.pages[i].object()]++
	}
	for _, t := range s.topics.byID {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			for offset := p.Start; offset < p.End; {
				for _, l := range s.Locate(nil, t, format.Partition(i), offset, 1<<62, 1<<30) {
					live[l.Object]++
					offset = l.End()
				}
			}
		}
	}
	return live
}

// step applies a commit to both logs.
func (x *compacted) step() {
	c, d := x.w.commit(x.t)
	if x.w.Level() < format.LevelSegments {
		if rapid.IntRange(0, 9).Draw(x.t, "raise") == 0 {
			x.take(c, d, &format.LevelRaised{Level: format.LevelSegments, DeleteDelay: time.Hour})
		}
	} else if rapid.Bool().Draw(x.t, "compact") {
		x.compact(c, d)
	}
	if x.w.Level() >= format.LevelSegments && rapid.Bool().Draw(x.t, "page") {
		x.page(c, d)
	}
	before := liveObjects(x.w.State)
	known := slices.Collect(maps.Keys(before))
	for _, it := range c.Entries {
		if b, ok := it.(*format.Batch); ok && x.w.Level() >= format.LevelSegments {
			x.appended[appendedAt{batchKey{b.Topic, b.Partition}, b.Base}] = format.CommitTime{Seq: c.Seq, Time: c.Time}
		}
	}
	mustApply(x.t, x.w.State, c)
	if took, bound := x.w.Memory(), d.Memory(); took > bound {
		x.t.Fatalf("the state takes %d bytes, the draft said %d: %+v", took, bound, c.Entries)
	}
	plain := *c
	plain.Entries = slices.DeleteFunc(slices.Clone(c.Entries), func(it format.Entry) bool {
		switch it.(type) {
		case *format.SegmentAdded, *format.LevelRaised, *format.PageStored:
			return true
		}
		return false
	})
	mustApply(x.t, x.plain, &plain)
	x.noteDead(c, known)
	x.compare()
}

// noteDead notes which objects died with a commit.
func (x *compacted) noteDead(c *format.Commit, known []Object) {
	live := liveObjects(x.w.State)
	if x.w.raised.Seq == c.Seq {
		for o, lives := range x.plain.AllObjects() {
			if !lives {
				known = append(known, o)
			}
		}
	}
	for _, r := range c.Data {
		known = append(known, Object{Data: true, Seq: uint64(r.Seq), Tag: r.ID, Size: r.Size})
	}
	for _, it := range c.Entries {
		switch n := it.(type) {
		case *format.SegmentAdded:
			known = append(known, Object{Data: true, Seq: uint64(n.Ref.Seq), Tag: n.Ref.ID, Size: n.Ref.Size})
		case *format.PageStored:
			known = append(known, Object{Data: true, Seq: uint64(n.Ref.Seq), Tag: n.Ref.ID, Size: n.Ref.Size})
		}
	}
	if x.w.Level() < format.LevelSegments {
		return
	}
	for _, o := range known {
		if _, dead := x.deadAt[o]; live[o] == 0 && !dead && (o.Data || format.Seq(o.Seq) < x.w.Bottom()) {
			x.deadAt[o] = c.Seq
		}
	}
}

// take adds an entry to a commit if the draft accepts it.
func (x *compacted) take(c *format.Commit, d *Draft, it format.Entry) bool {
	if err := d.Take(it); err != nil {
		if !errors.Is(err, ErrNonsense) {
			x.t.Fatal(err)
		}
		x.kinds["refused"]++
		return false
	}
	c.Entries = append(c.Entries, it)
	decoded, err := format.DecodeCommit(format.EncodeCommit(c))
	if err != nil {
		x.t.Fatalf("%+v: %v", it, err)
	}
	*c = *decoded
	return true
}

// compact adds an entry about a segment to a commit.
func (x *compacted) compact(c *format.Commit, d *Draft) {
	s := x.w.State
	x.ids++
	n := &format.SegmentAdded{
		Ref:   format.DataRef{Seq: max(s.DataFloor(), d.dataFloor), ID: 1<<32 + x.ids, Size: 1000},
		Table: format.TableRef{Pos: 900, IndexSize: 50}, First: format.CommitTime{Seq: 1}, Last: format.CommitTime{Seq: s.Seq(), Time: 5},
	}
	if s.Seq() == 0 || n.Ref.Seq > s.Seq() {
		return
	}
	if len(s.segments) > 0 && rapid.Bool().Draw(x.t, "merge") {
		x.merge(n)
	} else {
		x.cutTail(n)
	}
	if len(n.Ranges) == 0 || !x.take(c, d, n) {
		return
	}
	x.kinds["level "+string(rune('0'+n.Level))]++
	has := map[batchKey][]format.SegmentRange{}
	for _, r := range n.Ranges {
		if r.Stays {
			x.kinds["stays"]++
			continue
		}
		key := batchKey{r.Topic, r.Partition}
		has[key] = append(has[key], r)
	}
	x.has[s.nextSegment] = has
}

// cutTail makes a segment of the batches of commits up to a slot.
func (x *compacted) cutTail(n *format.SegmentAdded) {
	s := x.w.State
	n.Level, n.Slot = 1, format.Seq(rapid.Uint64Range(1, uint64(s.Seq())).Draw(x.t, "slot"))
	for _, t := range s.oldestTopics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			for ci := range p.chunks {
				for bi := range p.chunks[ci].batches {
					l := s.location(p, ci, bi)
					if s.objects.commitOf(p.chunks[ci].object+uint64(p.chunks[ci].batches[bi].object), s.raised).Seq > n.Slot {
						break
					}
					n.Ranges = x.extend(n.Ranges, format.SegmentRange{
						Topic: t.ID, Partition: format.Partition(i), Base: l.Base, End: l.End(), Records: l.Records, Bytes: int64(l.Size)/2 + 1, MaxTime: p.chunks[ci].batches[bi].maxTime,
					})
				}
			}
		}
	}
}

// extend adds a batch to the ranges of a segment: to the last one, as a range of its own, or as one that stays.
func (x *compacted) extend(ranges []format.SegmentRange, r format.SegmentRange) []format.SegmentRange {
	switch how := rapid.IntRange(0, 9).Draw(x.t, "extend"); {
	case how == 0:
		return append(ranges, format.SegmentRange{Topic: r.Topic, Partition: r.Partition, Base: r.Base, End: r.End, Stays: true})
	case how < 7 && len(ranges) > 0:
		last := &ranges[len(ranges)-1]
		if last.Topic == r.Topic && last.Partition == r.Partition && last.End == r.Base && !last.Stays {
			last.End, last.Records, last.Bytes, last.MaxTime = r.End, last.Records+r.Records, last.Bytes+r.Bytes, max(last.MaxTime, r.MaxTime)
			return ranges
		}
	}
	return append(ranges, r)
}

// merge makes a segment of what other segments have of some partitions.
func (x *compacted) merge(n *format.SegmentAdded) {
	s := x.w.State
	n.Level, n.Through = 2, s.segments[len(s.segments)-1].Number
	for _, in := range s.segments {
		if rapid.IntRange(0, 3).Draw(x.t, "input") > 0 {
			n.Inputs = append(n.Inputs, in.Number)
		}
	}
	if len(n.Inputs) == 0 {
		return
	}
	for _, t := range s.oldestTopics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			for k, y := range p.parts() {
				if _, ok := slices.BinarySearch(n.Inputs, y.segment); !ok {
					continue
				}
				r := format.SegmentRange{Topic: t.ID, Partition: format.Partition(i), Base: y.base, End: p.partEnd(k), Records: 1, Bytes: y.bytes, MaxTime: y.maxTime}
				if ranges := x.extend(n.Ranges, r); !ranges[len(ranges)-1].Stays {
					n.Ranges = ranges
				}
			}
		}
	}
}

// page adds an entry about a page to a commit.
func (x *compacted) page(c *format.Commit, d *Draft) {
	s := x.w.State
	list := s.keyed.list[s.keyed.paged():]
	if len(list) == 0 {
		return
	}
	x.ids++
	n := rapid.IntRange(1, len(list)).Draw(x.t, "keys")
	ref := format.DataRef{Seq: max(s.DataFloor(), d.dataFloor), ID: 1<<33 + x.ids}
	if ref.Seq > s.Seq() {
		return
	}
	section := EncodeKeyed(list[:n])
	_, p := format.EncodePage(format.ClusterID{}, ref, 0, section, uint32(n))
	if x.take(c, d, &format.PageStored{Page: p, First: list[0].Key}) {
		x.sections[p] = section
		x.kinds["page"]++
	}
}

// decode returns the state that the snapshot of the log and its pages give.
func (x *compacted) decode() *State {
	again := mustDecodeRapid(x.t, x.w.State)
	if again.Unread() != (len(again.Pages()) > 0) {
		x.t.Fatalf("the state of %d pages is unread: %v", len(again.Pages()), again.Unread())
	}
	if !x.w.View().Is(again.View().Encode()) {
		x.t.Fatal("the snapshot is not that of the state")
	}
	var sections [][]byte
	for _, p := range again.Pages() {
		sections = append(sections, x.sections[p])
	}
	if err := again.ReadPages(sections); err != nil {
		x.t.Fatal(err)
	}
	return again
}

// comparePages compares what the compacted log remembers of idempotency keys with what the other one does.
func (x *compacted) comparePages(s *State) {
	if diff := cmp.Diff(x.plain.keyed.list, s.keyed.list, cmpopts.EquateEmpty()); diff != "" {
		x.t.Fatalf("remembered keys (-want +got): %s", diff)
	}
	unpaged, end := int64(0), s.keyed.first
	for _, k := range s.keyed.list[s.keyed.paged():] {
		unpaged += k.snapshotBytes()
	}
	if unpaged != s.keyed.unpaged {
		x.t.Fatalf("the keys that are in no page take %d bytes, not %d", s.keyed.unpaged, unpaged)
	}
	for _, p := range s.keyed.pages {
		if p.end <= end {
			x.t.Fatalf("page %+v ends before number %d", p, end)
		}
		end = p.end
	}
	for _, d := range s.dead {
		if d.Tag>>33 == 1 {
			x.kinds["dead page"]++
		}
	}
}

func (s *State) oldestTopics() []*Topic { return s.topics.oldest(s.TopicCount()) }

// compare compares the compacted log with the other one.
func (x *compacted) compare() {
	t, s := x.t, x.w.State
	for _, want := range x.plain.oldestTopics() {
		got := s.TopicByID(want.ID)
		for i := range want.Partitions {
			p, q := &got.Partitions[i], &want.Partitions[i]
			if p.Start != q.Start || p.End != q.End || p.MaxTime != q.MaxTime {
				t.Fatalf("the partition goes from %d to %d, not %d to %d", p.Start, p.End, q.Start, q.End)
			}
			for o := q.Start; o < q.End; o++ {
				x.compareAt(got, want, format.Partition(i), o)
			}
		}
	}
	if s.TopicCount() != x.plain.TopicCount() || s.KeyedCount(s.time) != x.plain.KeyedCount(s.time) {
		t.Fatal("the logs differ")
	}
	if took := recount(s); s.Memory() != took {
		t.Fatalf("memory is %d, but a new count gives %d", s.Memory(), took)
	}
	x.compareObjects()
	x.comparePages(s)
	again := x.decode()
	x.comparePages(again)
	if diff := cmp.Diff(s.View().Encode(), again.View().Encode()); diff != "" {
		t.Fatal(diff)
	}
	if took := recount(again); again.Memory() != took {
		t.Fatalf("memory of the decoded state is %d, but a new count gives %d", again.Memory(), took)
	}
	if err := again.Continues(s); err != nil {
		t.Fatal(err)
	}
	if rapid.IntRange(0, 4).Draw(t, "go on from the snapshot") == 0 {
		x.w.State = again
	}
}

// compareAt compares where the two logs have an offset.
func (x *compacted) compareAt(got, want *Topic, partition format.Partition, o format.Offset) {
	s := x.w.State
	is, was := s.Locate(nil, got, partition, o, 1, 1)[0], x.plain.Locate(nil, want, partition, o, 1, 1)[0]
	if is.Segment == nil {
		since, ok := x.appended[appendedAt{batchKey{want.ID, partition}, was.Base}]
		switch {
		case ok:
			was.Commit = since
		case was.Object.Data:
			was.Commit = s.raised
		default:
			was.Commit.Time = s.raised.Time
		}
		if is != was {
			x.t.Fatalf("offset %d is in %+v, not %+v", o, is, was)
		}
		return
	}
	in := x.has[is.Segment.Number][batchKey{want.ID, partition}]
	if !slices.ContainsFunc(in, func(r format.SegmentRange) bool { return r.Base <= o && o < r.End }) {
		x.t.Fatalf("offset %d should be in segment %d, which has %+v", o, is.Segment.Number, in)
	}
	if is.Base > o || is.End() <= o {
		x.t.Fatalf("offset %d is in %+v", o, is)
	}
	for _, ms := range []int64{0, 1, 3} {
		a, ok := s.LocateTime(got, partition, o, ms)
		b, should := x.plain.LocateTime(want, partition, o, ms)
		if should && (!ok || a.Base > b.Base) {
			x.t.Fatalf("time %d from offset %d: %+v %v, not %+v", ms, o, a, ok, b)
		}
	}
}

// compareObjects checks that the log knows which objects have batches, and which have lost their last one, and when.
func (x *compacted) compareObjects() {
	s := x.w.State
	if s.Level() < format.LevelSegments {
		return
	}
	live := liveObjects(s)
	for o, lives := range s.AllObjects() {
		if lives != (live[o] > 0) {
			x.t.Fatalf("%+v is live: %v, and has %d batches", o, lives, live[o])
		}
		if !lives {
			continue
		}
		delete(live, o)
	}
	if len(live) > 0 {
		x.t.Fatalf("the state does not list %+v", live)
	}
	dead := map[Object]format.Seq{}
	for _, d := range s.Dead() {
		if _, twice := dead[d.Object]; twice {
			x.t.Fatalf("%+v is dead twice", d)
		}
		dead[d.Object] = d.Slot
		if !d.Data {
			x.kinds["dead commit"]++
		}
	}
	want := maps.Clone(x.deadAt)
	for o := range want {
		// A commit that died above the bottom is not noted, and the bottom may pass it later.
		if _, noted := dead[o]; !o.Data && !noted {
			delete(want, o)
		}
	}
	if diff := cmp.Diff(want, dead); diff != "" {
		x.t.Fatalf("the dead (-want +got): %s\nlive: %v; stays: %v", diff, liveObjects(s), s.stayObjects)
	}
	for _, t := range s.oldestTopics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			for _, c := range p.chunks {
				for _, b := range c.batches {
					if at := s.objects.commitOf(c.object+uint64(b.object), s.raised); at.Seq < s.bottom && s.raised.Seq < at.Seq {
						x.kinds["left below the bottom"]++
					}
				}
			}
		}
	}
}

// Appends change no parts: so whoever knows that no merge is due need not ask again after each of them.
func TestPartChanges(t *testing.T) {
	x := newCollectedLog(t)
	x.append()
	if n := x.PartChanges(); n != 0 {
		t.Fatalf("%d changes before the first segment", n)
	}
	x.segment(1)
	added := x.PartChanges()
	x.append()
	x.wait(1)
	if n := x.PartChanges(); added == 0 || n != added {
		t.Fatalf("%d changes by a segment, %d after an append", added, n)
	}
	x.apply(&format.StartMoved{Topic: 1, Start: 1})
	if n := x.PartChanges(); n == added {
		t.Fatal("the records of a segment are deleted, and no part has changed")
	}
	x.segment(2)
	before := x.PartChanges()
	x.apply(&format.TopicDeleted{ID: 1})
	if n := x.PartChanges(); n == before {
		t.Fatal("a topic with a segment is deleted, and no part has changed")
	}
}

func TestSegmentsInTheFold(t *testing.T) {
	kinds := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		x := newCompacted(t, kinds)
		for range rapid.IntRange(1, 25).Draw(t, "commits") {
			x.step()
		}
	})
	t.Log(kinds)
	for _, kind := range []string{"level 1", "level 2", "refused", "stays", "dead commit", "page", "dead page"} {
		if kinds[kind] == 0 && !testing.Short() {
			t.Errorf("%s: never", kind)
		}
	}
}
