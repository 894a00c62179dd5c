package state

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// A snapshot of version 6 differs from version 5 in these parts (see snapshot.go):
//
//	1 byte   version: 6
//	u        level of the log
//	u u u    the log's time, id of the next topic, data floor: as before
//	u u      slot and time of the commit that raised the level to 6
//	u        bottom
//	u        number of the next segment
//	u        number of segments; then for each, by number
//	           u        its number, minus the previous one
//	           u        seq of its object
//	           8 bytes  id of its object
//	           u u u    size, level, through
//	           u u      position of the table of locations, size of its index
//	           4 bytes  CRC-32C of the table's index
//	           u u u u  slot and time of the first and of the last commit
//	           u        size of the batches that were live when it was added
//	u        number of dead objects; then for each, in the order in which they died
//	           u        slot in which it died, minus the previous one
//	           object   1 byte (0 commit, 1 data object), u seq, 8 bytes tag, u size
//	u        how long dead objects stay, in microseconds
//	u        the log's time at which the data floor rose last
//	u u      slot and bottom up to which dead objects are deleted
//	u        number of checkpoints that were seen; then for each
//	           u u u    slot, bottom, the log's time
//	           16 bytes boot id
//	           u        time since boot in microseconds
//	u        number of objects with batches of the tail; then for each
//	           object
//	           u u      slot and time of its commit
//	topics as before, but for partitions
//	             u u      start, end
//	             z        largest timestamp of the last batch
//	             u        records of the batch that was appended last; 0 if none was since the level was raised, and, if
//	                      not 0, 4 bytes: its CRC-32C
//	             u        number of parts; then for each
//	               u        base, minus the previous one
//	               u u      number of the segment, or 0; size of the batches
//	               z        largest timestamp
//	               if it is in no segment
//	                 u        offsets
//	                 u u      position in the object, size
//	                 4 bytes  CRC-32C
//	                 object
//	                 u u      slot and time of the commit
//	             u        number of batches of the tail; then as before, with the numbers of the objects above, from 0 on
//
//	at the end, these sections; those at the very end that are empty are left out:
//	u        number of topics that have flags; then for each
//	           u u      id of the topic, ascending; flags: 1 = PastQueues in its config, 2 = Dormant
//	u        number of months in which brokers have said what they have spent; then for each, ascending
//	           u u      months since the year 0, the log's time of the first commit that says so
//	           u        number of causes; then for each, ascending
//	             u        cause, as in entry 30
//	             u u u u  creates, gets, lists, deletes
//	             u u      bytes sent and received
//	u        1 if the log says how long dead objects stay, else 0, and then nothing follows
//	u u u    how long dead objects stay, and how long from a later time on, and that time, in microseconds; 0 if that was not set
//	u        number of holds; then for each
//	           8 bytes  its id, ascending
//	           u u      slot; the log's time at which it ends
//	u        number of pages; then for each, the oldest first
//	           u        seq of its object
//	           8 bytes  id of its object
//	           u u u    size of the object; position and size of the section of keys
//	           u        number of appends with an idempotency key, which are older than those in the next page and those above; the
//	                    first ones that are too old for the log's time are forgotten
//	           4 bytes  CRC-32C of the section
//
// Objects in the list have batches of the tail, in the order of the commits that brought them.
const segmentsVersion = 6

// Bottom is [State.Bottom] of the view's state.
func (v *View) Bottom() format.Seq { return v.segments.bottom }

// Level is [State.Level] of the view's state.
func (v *View) Level() uint32 { return v.segments.level }

// appendSections appends the sections at the end of a snapshot of version 6. A snapshot of an earlier version of Seb has the first
// ones only, so it reads like one in which the others are empty.
func (v *View) appendSections(b []byte) []byte {
	sections := [][]byte{v.topicFlagsSection(), v.spendingSection(), v.segments.section(), v.pagesSection()}
	for n := len(sections); n > 0 && bytes.Equal(sections[n-1], []byte{0}); n-- {
		sections = sections[:n-1]
	}
	return append(b, slices.Concat(sections...)...)
}

// decodeSections reads the sections that appendSections has written.
func (s *State) decodeSections(r *reader) {
	filled := true
	for _, section := range []func(*reader) bool{s.decodeTopicFlags, s.decodeSpending, s.decodeKeeping, s.decodePages} {
		if r.err != nil || len(r.b) == 0 {
			break
		}
		filled = section(r)
	}
	if !filled {
		r.fail("the last section of the snapshot is empty")
	}
}

// viewSegments is what a View knows about segments.
type viewSegments struct {
	level    uint32
	raised   format.CommitTime
	bottom   format.Seq
	next     uint64
	segments []*Segment // a View does not read the fields that change
	dead     []Dead
	collecting
}

func (s *State) viewSegments() viewSegments {
	return viewSegments{s.level, s.raised, s.bottom, s.nextSegment, s.segments, slices.Clip(s.dead), s.collecting}
}

func appendObject(b []byte, o Object) []byte {
	kind := byte(0)
	if o.Data {
		kind = 1
	}
	b = binary.AppendUvarint(append(b, kind), o.Seq)
	b = binary.LittleEndian.AppendUint64(b, o.Tag)
	return binary.AppendUvarint(b, uint64(o.Size))
}

func (r *reader) object() Object {
	kind := r.byte()
	o := Object{Data: kind == 1, Seq: r.max(dataBit - 1), Tag: r.fixed64(), Size: uint32(r.max(math.MaxUint32))}
	if kind > 1 {
		r.fail("an object has the invalid kind %d", kind)
	}
	return o
}

func appendCommitTime(b []byte, c format.CommitTime) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(c.Seq)), uint64(c.Time))
}

func (r *reader) commitTime() format.CommitTime {
	return format.CommitTime{Seq: format.Seq(r.uvarint()), Time: r.int64()}
}

// withSegments does what withoutSessions does, in version 6.
func (v *View) withSegments() []byte {
	x := &v.segments
	b := binary.AppendUvarint([]byte{segmentsVersion}, uint64(x.level))
	b = binary.AppendUvarint(b, uint64(v.time))
	b = binary.AppendUvarint(b, uint64(v.nextTopic))
	b = binary.AppendUvarint(b, uint64(v.dataFloor))
	b = appendCommitTime(b, x.raised)
	b = binary.AppendUvarint(b, uint64(x.bottom))
	b = binary.AppendUvarint(b, x.next)

	b = binary.AppendUvarint(b, uint64(len(x.segments)))
	var before uint64
	for _, n := range x.segments {
		b = binary.AppendUvarint(b, n.Number-before)
		before = n.Number
		b = binary.AppendUvarint(b, uint64(n.Ref.Seq))
		b = binary.LittleEndian.AppendUint64(b, n.Ref.ID)
		for _, u := range []uint64{uint64(n.Ref.Size), uint64(n.Level), n.Through, uint64(n.Table.Pos), uint64(n.Table.IndexSize)} {
			b = binary.AppendUvarint(b, u)
		}
		b = binary.LittleEndian.AppendUint32(b, n.Table.IndexCRC)
		b = appendCommitTime(appendCommitTime(b, n.First), n.Last)
		b = binary.AppendUvarint(b, uint64(n.Bytes))
	}

	b = binary.AppendUvarint(b, uint64(len(x.dead)))
	var slot format.Seq
	for _, d := range x.dead {
		b = appendObject(binary.AppendUvarint(b, uint64(d.Slot-slot)), d.Object)
		slot = d.Slot
	}
	b = x.append(b)

	numbers := v.numberObjects()
	live := 0
	for _, n := range numbers {
		live = max(live, int(n))
	}
	b = binary.AppendUvarint(b, uint64(live))
	for i, n := range numbers {
		if index := v.objects.first + uint64(i); n > 0 {
			b = appendCommitTime(appendObject(b, v.objects.entry(index).Object()), v.objects.commitOf(index, x.raised))
		}
	}
	return v.appendRest(b, func(b []byte, p *Partition) []byte {
		return appendSegmentsPartition(b, p, func(index uint64) uint64 { return uint64(numbers[index-v.objects.first]) - 1 })
	})
}

// numberObjects numbers the objects that have batches of a tail, from 1 on; the others get 0.
func (v *View) numberObjects() []uint32 {
	numbers := make([]uint32, v.objects.count)
	for i := range v.topics {
		for _, p := range v.topics[i].Partitions {
			for _, c := range p.chunks {
				for _, b := range c.batches {
					numbers[c.object+uint64(b.object)-v.objects.first] = 1
				}
			}
		}
	}
	next := uint32(1)
	for i, n := range numbers {
		if n > 0 {
			numbers[i] = next
			next++
		}
	}
	return numbers
}

func appendSegmentsPartition(b []byte, p *Partition, number func(uint64) uint64) []byte {
	b = binary.AppendUvarint(b, uint64(p.Start))
	b = binary.AppendUvarint(b, uint64(p.End))
	b = binary.AppendVarint(b, p.MaxTime)
	b = binary.AppendUvarint(b, uint64(p.appended.records))
	if p.appended.records > 0 {
		b = binary.LittleEndian.AppendUint32(b, p.appended.crc)
	}
	b = binary.AppendUvarint(b, uint64(len(p.parts())))
	var base format.Offset
	stays := p.stays()
	for _, x := range p.parts() {
		b = binary.AppendUvarint(b, uint64(x.base-base))
		base = x.base
		b = binary.AppendUvarint(b, x.segment)
		b = binary.AppendUvarint(b, uint64(x.bytes))
		b = binary.AppendVarint(b, x.maxTime)
		if x.segment == 0 {
			y := stays[0]
			stays = stays[1:]
			b = binary.AppendUvarint(b, uint64(y.Span))
			b = binary.AppendUvarint(b, uint64(y.Pos))
			b = binary.AppendUvarint(b, uint64(y.Size))
			b = binary.LittleEndian.AppendUint32(b, y.CRC)
			b = appendCommitTime(appendObject(b, y.Object), y.Commit)
		}
	}
	count := 0
	for _, c := range p.chunks {
		count += len(c.batches)
	}
	b = binary.AppendUvarint(b, uint64(count))
	if count > 0 {
		b = binary.AppendUvarint(b, uint64(p.tailBase()))
	}
	return appendTail(b, p, number)
}

func (c *collecting) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(c.delay.Microseconds()))
	b = binary.AppendUvarint(b, uint64(c.floored))
	b = binary.AppendUvarint(b, uint64(c.collected.Slot))
	b = binary.AppendUvarint(b, uint64(c.collected.Bottom))
	b = binary.AppendUvarint(b, uint64(len(c.seen)))
	for _, x := range c.seen {
		for _, u := range []uint64{uint64(x.Slot), uint64(x.Bottom), uint64(x.Time)} {
			b = binary.AppendUvarint(b, u)
		}
		b = binary.AppendUvarint(append(b, x.Boot[:]...), uint64(x.Since))
	}
	return b
}

// decodeCollecting reads what append has written, and reports whether it is valid.
func (s *State) decodeCollecting(r *reader) bool {
	c := &s.collecting
	c.delay = time.Duration(r.max(math.MaxInt64/1000)) * time.Microsecond
	c.floored = r.int64()
	c.collected = format.Collected{Slot: format.Seq(r.uvarint()), Bottom: format.Seq(r.uvarint())}
	var before Seen
	for range r.count(20) {
		var x Seen
		x.Slot, x.Bottom, x.Time = format.Seq(r.uvarint()), format.Seq(r.uvarint()), r.int64()
		copy(x.Boot[:], r.bytes(len(x.Boot)))
		x.Since = r.int64()
		if r.err == nil && (x.Slot <= before.Slot || x.Bottom < before.Bottom || x.Time <= before.Time || x.Slot > s.seq || x.Bottom > s.bottom) {
			r.fail("the checkpoint of slot %d with the bottom %d was seen after that of slot %d with the bottom %d", x.Slot, x.Bottom, before.Slot, before.Bottom)
		}
		if r.err != nil {
			return false
		}
		c.seen = append(c.seen, x)
		s.memory += seenMemory
		before = x
	}
	return r.err == nil
}

// decodeSegments reads what comes before the topics.
func (s *State) decodeSegments(r *reader) {
	s.raised = r.commitTime()
	s.bottom = format.Seq(r.uvarint())
	s.nextSegment = r.uvarint()
	var number uint64
	for range r.count(20) {
		n := &Segment{Number: number + r.uvarint()}
		n.Ref = format.DataRef{Seq: format.Seq(r.max(dataBit - 1)), ID: r.fixed64(), Size: uint32(r.max(math.MaxUint32))}
		n.Level, n.Through = uint32(r.max(math.MaxUint32)), r.uvarint()
		n.Table = format.TableRef{Pos: uint32(r.max(math.MaxUint32)), IndexSize: uint32(r.max(math.MaxUint32)), IndexCRC: r.fixed32()}
		n.First, n.Last = r.commitTime(), r.commitTime()
		n.Bytes = r.int64()
		if r.err == nil && (n.Number <= number || n.Number >= s.nextSegment || n.Level == 0) {
			r.fail("segment %d is invalid: it follows segment %d, the next one is %d, and its level is %d", n.Number, number, s.nextSegment, n.Level)
		}
		if r.err != nil {
			return
		}
		number = n.Number
		s.segments = append(s.segments, n)
		s.memory += segmentMemory
	}
	var slot format.Seq
	for range r.count(12) {
		slot += format.Seq(r.uvarint())
		d := Dead{Object: r.object(), Slot: slot}
		if slot > s.seq {
			r.fail("an object died in slot %d", slot)
		}
		if r.err != nil {
			return
		}
		s.dead = append(s.dead, d)
		s.memory += deadMemory
	}
	if !s.decodeCollecting(r) {
		return
	}
	for range r.count(13) {
		o, c := r.object(), r.commitTime()
		if r.err == nil && (c.Seq == 0 || c.Seq > s.seq) {
			r.fail("an object is of the commit in slot %d", c.Seq)
		}
		if r.err != nil {
			return
		}
		s.objects.add(o, c)
	}
}

func (s *State) decodeSegmentsPartition(r *reader, p *Partition) {
	p.Start, p.End = format.Offset(r.int64()), format.Offset(r.int64())
	p.MaxTime = r.varint()
	if p.appended.records = int64(r.max(math.MaxUint32)); p.appended.records > 0 {
		p.appended.crc = r.fixed32()
	}
	var (
		base  format.Offset
		parts []part
		stays []Location
	)
	count := r.count(5)
	for i := range count {
		x := part{base: base + format.Offset(r.int64()), segment: r.uvarint(), bytes: r.int64(), maxTime: r.varint()}
		if x.base < base || i > 0 && x.base == base || x.base >= p.End || i == 0 && x.base > p.Start {
			r.fail("a part of a partition begins at offset %d, after one at offset %d", x.base, base)
		}
		if x.segment == 0 {
			stays = append(stays, s.decodeStay(r, x))
		} else if n := s.segment(x.segment); n == nil {
			r.fail("a part of a partition is in segment %d, which does not exist", x.segment)
		} else {
			n.live, n.parts = n.live+x.bytes, n.parts+1
		}
		if r.err != nil {
			return
		}
		base = x.base
		parts = append(parts, x)
		p.Bytes += x.bytes
	}
	s.setParts(p, parts, stays)
	count = r.count(9)
	if count == 0 {
		if p.Start > p.End || p.Start < p.End && len(parts) == 0 || int64(p.End) < p.appended.records {
			r.fail("a partition from offset %d to %d has no batch, or another one was appended last", p.Start, p.End)
		}
		return
	}
	tail := format.Offset(r.int64())
	if len(parts) == 0 && tail > p.Start || len(parts) > 0 && tail <= base {
		r.fail("a partition starts at offset %d, but its tail at %d, behind a part at %d", p.Start, tail, base)
	}
	s.decodeTail(r, p, tail, count)
}

// decodeStay reads where the batch of a part is that is in no segment.
func (s *State) decodeStay(r *reader, x part) Location {
	span := int64(r.max(math.MaxUint32))
	y := Location{Base: x.base, Span: span, Records: span, Pos: uint32(r.max(math.MaxUint32)), Size: uint32(r.max(math.MaxUint32)), CRC: r.fixed32()}
	y.Object, y.Commit = r.object(), r.commitTime()
	if r.err == nil {
		s.stayObjects[y.Object]++
	}
	return y
}

// checkSegments checks what is known only when all partitions are decoded.
func (s *State) checkSegments(r *reader) {
	for _, n := range s.segments {
		if n.parts == 0 {
			r.fail("no part of a partition is in segment %d", n.Number)
		}
	}
	if s.objects.live != s.objects.count {
		r.fail("%d of %d objects have no batches", s.objects.count-s.objects.live, s.objects.count)
	}
	s.memory += s.objects.memory(s.level)
}
