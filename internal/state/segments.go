package state

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// Segment is an object with batches of many commits. Code outside of this package must not change a Segment.
type Segment struct {
	// Number identifies the segment in this log. A later segment has a higher number. The first one has 1.
	Number uint64
	Ref    format.DataRef
	Level  uint32
	// Through is the number of the last segment of batches of the tail whose batches are in this segment or in another one of the
	// same group; a segment of batches of the tail names itself.
	Through     uint64
	Table       format.TableRef
	First, Last format.CommitTime // of the commits that appended the segment's records
	// Bytes is the size of the batches that were live when the segment was added.
	Bytes int64

	live  int64 // size of the batches of the parts that are in the segment
	parts int   // how many parts are in the segment
}

func (x *Segment) object() Object {
	return Object{Data: true, Seq: uint64(x.Ref.Seq), Tag: x.Ref.ID, Size: x.Ref.Size}
}

// Live returns the size in bytes of the segment's batches that the state still has.
func (x *Segment) Live() int64 { return x.live }

// part is a range of a partition that is in a segment, or a batch that stays in the object in which it came, because
// compaction could not read it. The part ends where the next part or the tail begins.
type part struct {
	base    format.Offset
	maxTime int64 // largest timestamp in ms
	segment uint64
	bytes   int64 // size of the batches
}

// segmented is what a partition has in front of its tail. It never changes: a View shares it.
type segmented struct {
	parts []part     // by offset
	stays []Location // the batches that stay in their objects: of the parts whose segment is 0, by offset
}

func (p *Partition) parts() []part {
	if p.segmented == nil {
		return nil
	}
	return p.segmented.parts
}

func (p *Partition) stays() []Location {
	if p.segmented == nil {
		return nil
	}
	return p.segmented.stays
}

// setParts replaces what a partition has in front of its tail.
func (s *State) setParts(p *Partition, parts []part, stays []Location) {
	s.partChanges++
	s.memory -= p.segmented.memory()
	p.segmented = nil
	if len(parts)+len(stays) > 0 {
		p.segmented = &segmented{slices.Clip(parts), slices.Clip(stays)}
	}
	s.memory += p.segmented.memory()
}

// memory returns about how many bytes x takes.
func (x *segmented) memory() int64 {
	if x == nil {
		return 0
	}
	return int64(unsafe.Sizeof(*x)) + int64(len(x.parts))*partMemory + int64(len(x.stays))*stayMemory
}

// Dead is an object that has no batches in the state any longer. It may still be in the store.
type Dead struct {
	Object
	// Slot is the slot whose commit took the last batch of the object out of the state.
	Slot format.Seq
}

const (
	segmentMemory = int64(unsafe.Sizeof(Segment{})) + 8
	partMemory    = int64(unsafe.Sizeof(part{}))
	stayMemory    = int64(unsafe.Sizeof(Location{}))
	deadMemory    = int64(unsafe.Sizeof(Dead{}))
)

// Level returns the level of the log: which version of the format holds for the next commit.
func (s *State) Level() uint32 { return s.level }

// Segments returns the segments, by number. The caller must not change the list.
func (s *State) Segments() []*Segment { return s.segments }

// SegmentsAdded returns how many segments the log ever had.
func (s *State) SegmentsAdded() int { return int(s.nextSegment - 1) }

// PartChanges returns how often it has changed which records are in which segments, since this State came about. As long as it stays
// the same, so does the answer of [State.PlanMerge].
func (s *State) PartChanges() uint64 { return s.partChanges }

// Dead returns the objects that have no batches in the state any longer, in the order in which they died. They don't
// include commits below the bottom that died before the bottom passed them. The caller must not change the list.
func (s *State) Dead() []Dead { return s.dead }

// DeadBytes returns the size of the objects that have no batches in the state any longer and are not deleted yet, as far as
// [State.Dead] has them; and the size of the batches in segments that have no place in the state any longer.
func (s *State) DeadBytes() (objects, inSegments int64) {
	for _, d := range s.dead {
		objects += int64(d.Size)
	}
	for _, n := range s.segments {
		inSegments += n.Bytes - n.live
	}
	return objects, inSegments
}

// Bottom returns the lowest slot that brokers may need below the applied one because of its batches: all batches of
// commits below it are in segments, are deleted, or stay where they are (see [State.AllObjects]).
func (s *State) Bottom() format.Seq { return s.bottom }

// DeadInTail reports whether objects without batches stay because of an older one that has some.
func (s *State) DeadInTail() bool {
	return s.level >= format.LevelSegments && s.objects.live < s.objects.count
}

func (s *State) segment(number uint64) *Segment {
	i, ok := slices.BinarySearchFunc(s.segments, number, func(x *Segment, n uint64) int { return cmp.Compare(x.Number, n) })
	if !ok {
		return nil
	}
	return s.segments[i]
}

// tailBase returns the first offset of the tail, or End if the tail is empty.
func (p *Partition) tailBase() format.Offset {
	if len(p.chunks) == 0 {
		return p.End
	}
	return p.chunks[0].batches[0].base
}

// partEnd returns the offset after part i.
func (p *Partition) partEnd(i int) format.Offset {
	if i+1 < len(p.parts()) {
		return p.parts()[i+1].base
	}
	return p.tailBase()
}

// partOf returns the index of the part that has an offset below the tail; -1 if no part has it.
func (p *Partition) partOf(offset format.Offset) int {
	return sort.Search(len(p.parts()), func(i int) bool { return p.parts()[i].base > offset }) - 1
}

// takeLevel checks that a level is the next one.
func (d *Draft) takeLevel(x *format.LevelRaised) error {
	if x.Level != d.s.level+1 || x.Level > format.LevelSegments || d.raised {
		return fmt.Errorf("%w: the level of the log is %d, and can't be raised to %d", ErrNonsense, d.s.level, x.Level)
	}
	d.raised = true
	return nil
}

func (d *Draft) takeSegment(x *format.SegmentAdded) error {
	err := d.CheckSegment(x)
	d.segment = d.segment || err == nil
	return err
}

// CheckSegment checks an entry that adds a segment, without adding the entry to the commit. The segment must fit to the
// state before the commit: of two brokers that compacted the same batches, the second one is refused here. The error
// wraps [ErrNonsense].
func (d *Draft) CheckSegment(x *format.SegmentAdded) error {
	switch {
	case d.s.level < format.LevelSegments:
		return fmt.Errorf("%w: a segment at level %d of the log", ErrNonsense, d.s.level)
	case d.segment:
		return fmt.Errorf("%w: a commit adds two segments", ErrNonsense)
	case x.Ref.Seq > d.s.seq || x.Slot > d.s.seq || x.Last.Seq > d.s.seq:
		return fmt.Errorf("%w: the segment %s has records of slot %d and is of slot %d, which come after slot %d", ErrNonsense, x.Ref.Key(), x.Last.Seq, x.Slot, d.s.seq)
	}
	if err := errors.Join(x.Check(), d.CheckData(x.Ref)); err != nil {
		return fmt.Errorf("%w: %w", ErrNonsense, err)
	}
	for _, n := range x.Inputs {
		if d.s.segment(n) == nil {
			return fmt.Errorf("%w: the segment %d is gone", ErrNonsense, n)
		}
	}
	fits, err := d.s.fit(x, func(topic format.TopicID) bool { return d.topic(topic) == nil })
	if err != nil {
		return err
	}
	if len(fits) == 0 {
		return fmt.Errorf("%w: none of the records of the segment %s are left", ErrNonsense, x.Ref.Key())
	}
	return nil
}

// fit is a range of a segment that takes the place of batches of a partition.
type fit struct {
	p *Partition
	r format.SegmentRange
	// Of a segment of level 1: how many batches at the beginning of the tail the range has. Otherwise the range has
	// the parts from index first to index last-1.
	batches, first, last int
}

// fit returns the ranges of a segment that take the place of its inputs. Ranges of topics that are gone, and below the
// start of a partition, are left out. It returns an error if a range does not have exactly batches of the tail, or
// parts in the inputs, from one boundary to another.
func (s *State) fit(x *format.SegmentAdded, gone func(format.TopicID) bool) (fits []fit, err error) {
	for i, r := range x.Ranges {
		t := s.topics.byID[r.Topic]
		if t == nil && r.Topic >= s.topics.next || t != nil && int(r.Partition) >= len(t.Partitions) {
			return nil, fmt.Errorf("%w: a segment has records of partition %d of topic %d, which does not exist", ErrNonsense, r.Partition, r.Topic)
		}
		if t == nil || gone(r.Topic) {
			continue
		}
		p := &t.Partitions[r.Partition]
		if r.End <= p.Start {
			continue
		}
		f := fit{p: p, r: r}
		ok := false
		if len(x.Inputs) > 0 {
			ok = s.fitParts(&f, x.Inputs)
		} else {
			skip := 0 // batches of the tail that an earlier range has
			if n := len(fits); i > 0 && n > 0 && fits[n-1].p == p {
				skip = fits[n-1].first + fits[n-1].batches
			}
			ok = fitTail(&f, skip)
		}
		if !ok {
			return nil, fmt.Errorf("%w: offsets %d to %d of partition %d of topic %d are not where the segment says that they were", ErrNonsense, r.Base, r.End-1, r.Partition, r.Topic)
		}
		fits = append(fits, f)
	}
	return fits, nil
}

// fitTail finds the batches of a range in the tail, behind the first skip ones. A range may begin below the first of
// them only if the records below are deleted.
func fitTail(f *fit, skip int) bool {
	p, at := f.p, 0
	f.first = skip
	for ci, c := range p.chunks {
		for bi, b := range c.batches {
			at++
			if at <= skip {
				continue
			}
			if f.batches == 0 && b.base != f.r.Base && (b.base < f.r.Base || b.base > p.Start || skip > 0) {
				return false
			}
			f.batches++
			if end := p.endOf(ci, bi); end >= f.r.End {
				return end == f.r.End
			}
		}
	}
	return false
}

// fitParts finds the parts of a range. A range may begin below the first of them only if the records below are deleted.
func (s *State) fitParts(f *fit, inputs []uint64) bool {
	p := f.p
	f.first = p.partOf(max(f.r.Base, p.Start))
	if f.first < 0 || p.parts()[f.first].base != f.r.Base && (p.parts()[f.first].base < f.r.Base || p.parts()[f.first].base > p.Start) {
		return false
	}
	for f.last = f.first; f.last < len(p.parts()) && p.parts()[f.last].base < f.r.End; f.last++ {
		if _, ok := slices.BinarySearch(inputs, p.parts()[f.last].segment); !ok {
			return false
		}
	}
	return f.last > f.first && p.partEnd(f.last-1) == f.r.End
}

// addSegment applies an entry that [Draft.Take] has accepted. Entries before it in the same commit may have deleted
// records, or topics.
func (s *State) addSegment(x *format.SegmentAdded) {
	fits, err := s.fit(x, func(format.TopicID) bool { return false })
	if err != nil {
		panic(fmt.Sprintf("state: a segment that was accepted does not fit: %v", err))
	}
	n := &Segment{
		Number: s.nextSegment, Ref: x.Ref, Level: x.Level, Through: x.Through,
		Table: x.Table, First: x.First, Last: x.Last,
	}
	ofTail := len(x.Inputs) == 0
	if ofTail {
		n.Through = n.Number
	}
	s.nextSegment++
	s.segments = append(slices.Clip(s.segments), n) // a View shares the list
	s.memory += segmentMemory
	if !ofTail {
		slices.Reverse(fits) // so that replacing parts does not move those of the other ranges of a partition
	}
	for _, f := range fits {
		now := []part{{base: f.r.Base, maxTime: f.r.MaxTime, segment: n.Number, bytes: f.r.Bytes}}
		if ofTail {
			if f.r.Stays {
				now = s.letStay(f)
			}
			s.cutTail(f.p, f.batches)
			f.first, f.last = len(f.p.parts()), len(f.p.parts())
		} else if f.r.Stays {
			continue
		}
		s.replaceParts(f.p, f.first, f.last, now)
	}
	n.Bytes = n.live
	if n.parts == 0 {
		s.dropSegment(n)
	}
}

// letStay returns the parts of batches of the tail that stay where they are.
func (s *State) letStay(f fit) (parts []part) {
	p := f.p
	left := f.batches
	stays := slices.Clone(p.stays())
	for ci, c := range p.chunks {
		for bi, b := range c.batches {
			if left == 0 {
				break
			}
			left--
			x := s.location(p, ci, bi)
			stays = append(stays, x)
			s.stayObjects[x.Object]++
			parts = append(parts, part{base: b.base, maxTime: b.maxTime, bytes: int64(b.size)})
		}
	}
	s.setParts(p, p.parts(), stays)
	return parts
}

// commitOf returns the commit that brought an object of the tail. Objects that are older than the level
// [format.LevelSegments] count as of the commit that raised the level, except that commits name themselves.
func (o *objects) commitOf(index uint64, raised format.CommitTime) format.CommitTime {
	c := o.commit(index)
	if c == (format.CommitTime{}) {
		c = raised
		if x := o.entry(index).Object(); !x.Data {
			c.Seq = format.Seq(x.Seq)
		}
	}
	return c
}

// replaceParts puts parts in the place of the parts from index first to index last-1.
func (s *State) replaceParts(p *Partition, first, last int, now []part) {
	for _, x := range p.parts()[first:last] {
		s.dropPart(p, x)
	}
	for _, x := range now {
		p.Bytes += x.bytes
		if n := s.segment(x.segment); n != nil {
			n.live, n.parts = n.live+x.bytes, n.parts+1
		}
	}
	s.setParts(p, slices.Concat(p.parts()[:first], now, p.parts()[last:]), p.stays())
}

// dropPart counts that a part is no longer in its segment, or that its batch no longer stays in its object.
func (s *State) dropPart(p *Partition, x part) {
	p.Bytes -= x.bytes
	if x.segment != 0 {
		n := s.segment(x.segment)
		n.live, n.parts = n.live-x.bytes, n.parts-1
		if n.parts == 0 {
			s.dropSegment(n)
		}
		return
	}
	i := slices.IndexFunc(p.stays(), func(y Location) bool { return y.Base == x.base })
	object := p.stays()[i].Object
	s.setParts(p, p.parts(), slices.Concat(p.stays()[:i], p.stays()[i+1:]))
	s.stayObjects[object]--
	if s.stayObjects[object] == 0 {
		delete(s.stayObjects, object)
		if !s.objects.lives(object) {
			s.died(object)
		}
	}
}

func (s *State) dropSegment(n *Segment) {
	i, _ := slices.BinarySearchFunc(s.segments, n.Number, func(x *Segment, number uint64) int { return cmp.Compare(x.Number, number) })
	s.segments = slices.Concat(s.segments[:i], s.segments[i+1:])
	s.memory -= segmentMemory
	s.died(n.object())
}

// died notes that the last batch of an object has left the state. Commits at or above the bottom are not noted: they are
// below the bottom of a later state, and all of them that have no batches there are dead.
func (s *State) died(o Object) {
	if !o.Data && format.Seq(o.Seq) >= s.bottom || s.stayObjects[o] > 0 {
		return
	}
	s.dead = append(s.dead, Dead{o, s.seq})
	s.memory += deadMemory
}

// noteDead notes which objects have died by the commit that was applied, and reports whether any has. A batch behind the entry
// that took the last one of an object may have brought it back.
func (s *State) noteDead() (died bool) {
	slices.Sort(s.dying)
	for _, index := range slices.Compact(s.dying) {
		if o := s.objects.entry(index); o.live == 0 {
			s.died(o.Object())
			died = true
		}
	}
	return died
}

// raiseBottom raises the bottom to the first commit whose batches are in the tail, or to the applied slot if the tail has none. So
// commits whose records were deleted can go, although no segment was added. Only commits that make an object die do that: if each
// commit did, then the one that says what is deleted would itself be the next thing to delete, and a log would never rest.
func (s *State) raiseBottom() {
	first := s.seq
	if s.objects.count > 0 {
		first = s.objects.commitOf(s.objects.first, s.raised).Seq
	}
	s.bottom = max(s.bottom, first)
}

// cutTail drops the first n batches of the tail.
func (s *State) cutTail(p *Partition, n int) {
	for n > 0 {
		c := &p.chunks[0]
		k := min(n, len(c.batches))
		n -= k
		if k < len(c.batches) {
			s.dropFront(p, k)
			return
		}
		s.dropChunk(p)
	}
}

// cutParts drops the parts of a partition that are wholly below its start.
func (s *State) cutParts(p *Partition) {
	n := 0
	for n < len(p.parts()) && p.partEnd(n) <= p.Start {
		n++
	}
	if n > 0 {
		s.replaceParts(p, 0, n, nil)
	}
}

// raise makes the log one with segments: all that the state has counts as of this commit.
func (s *State) raise(x *format.LevelRaised, c *format.Commit) {
	s.level = x.Level
	s.collecting.delay = x.DeleteDelay
	s.raised = format.CommitTime{Seq: c.Seq, Time: c.Time}
	for i := range s.objects.count {
		if o := s.objects.entry(s.objects.first + uint64(i)); o.live == 0 {
			s.died(o.Object())
		}
	}
	s.objects.cutDead()
	for _, t := range s.topics.byID {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if len(p.chunks) == 0 {
				continue
			}
			last := &p.chunks[len(p.chunks)-1]
			b := last.batches[len(last.batches)-1]
			p.appended = appended{records: int64(p.End - b.base), crc: b.crc}
		}
	}
}

// appended is the batch that was appended to a partition last, wherever its records are now.
type appended struct {
	records int64 // 0 if none was appended since the level was raised
	crc     uint32
}
