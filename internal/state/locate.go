package state

import (
	"sort"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// Location tells where a batch is stored, and its size and checksum.
type Location struct {
	// Segment is nil for a batch. Otherwise the Location is that of a range of offsets in a segment, whose table of
	// locations says where each batch is: Records, Pos and CRC are 0, and Size is that of all batches in the range.
	Segment *Segment
	Object  Object
	Base    format.Offset // the first offset of the batch or range
	Span    int64         // number of offsets from Base to the end of the batch or range
	Records int64         // number of records: fewer than Span if the batch has gaps
	Pos     uint32        // position in the object, in bytes from its first byte
	Size    uint32
	CRC     uint32
	// Commit appended the batch. Its time is 0 below [format.LevelSegments]. It is zero for what is in a segment.
	Commit format.CommitTime
	// Row is what the table of locations of a segment says about the batch; nil for what is not in a segment, and for a range.
	Row *format.SegmentBatch
}

// LogTime returns the time of the commit that appended the record at an offset of the batch. It returns the zero time if the
// log does not keep such times yet, below [format.LevelSegments].
func (l *Location) LogTime(offset format.Offset) time.Time {
	us := l.Commit.Time
	if l.Row != nil {
		us = l.Row.CommitOf(offset).Time
	}
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// End returns the offset after the batch.
func (l Location) End() format.Offset { return l.Base + format.Offset(l.Span) }

// Locate appends to dst the locations of consecutive batches of a partition. The first one is
// the batch that holds offset. Locate stops when these batches have bytesMax bytes together, or
// when there are countMax of them. It appends at least one location if the offset exists. If the offset is in a segment,
// Locate appends one location only: that of the range that is in the segment.
func (s *State) Locate(dst []Location, t *Topic, partition format.Partition, offset format.Offset, bytesMax int64, countMax int) []Location {
	p := &t.Partitions[partition]
	if offset < p.Start || offset >= p.End {
		return dst
	}
	if offset < p.tailBase() {
		return append(dst, s.partLocation(p, p.partOf(offset)))
	}
	ci := p.chunkOf(offset)
	bs := p.chunks[ci].batches
	bi := sort.Search(len(bs), func(i int) bool { return bs[i].base > offset }) - 1
	var bytes int64
	for n := 0; ci < len(p.chunks); ci, bi = ci+1, 0 {
		c := &p.chunks[ci]
		for ; bi < len(c.batches); bi++ {
			if n > 0 && (bytes >= bytesMax || n >= countMax) {
				return dst
			}
			dst = append(dst, s.location(p, ci, bi))
			bytes += int64(c.batches[bi].size)
			n++
		}
	}
	return dst
}

// LocateTime returns the location of the first batch that ends after offset and has a record
// with a timestamp of at least ms milliseconds since 1970. That record may be before offset,
// since timestamps need not ascend. ok is false if there is no such batch. The location may also be that of a range in a
// segment with such a record; then the range may have no batch that ends after offset and has one.
func (s *State) LocateTime(t *Topic, partition format.Partition, offset format.Offset, ms int64) (l Location, ok bool) {
	p := &t.Partitions[partition]
	offset = max(offset, p.Start)
	if offset >= p.End {
		return Location{}, false
	}
	first := 0
	if offset < p.tailBase() {
		for i := p.partOf(offset); i < len(p.parts()); i++ {
			if p.parts()[i].maxTime >= ms {
				return s.partLocation(p, i), true
			}
		}
	} else {
		first = p.chunkOf(offset)
	}
	for ci := first; ci < len(p.chunks); ci++ {
		c := &p.chunks[ci]
		if c.maxTime < ms {
			continue
		}
		for bi := range c.batches {
			if c.batches[bi].maxTime >= ms && p.endOf(ci, bi) > offset {
				return s.location(p, ci, bi), true
			}
		}
	}
	return Location{}, false
}

// TimeAt returns the largest timestamp, in ms since 1970, of the batch that holds an offset, or, if the offset is in a
// segment, the log's time of the first commit in that segment. ok is false if the partition does not have the offset.
func (s *State) TimeAt(t *Topic, partition format.Partition, offset format.Offset) (ms int64, ok bool) {
	p := &t.Partitions[partition]
	if offset < p.Start || offset >= p.End {
		return 0, false
	}
	if offset < p.tailBase() {
		x := p.parts()[p.partOf(offset)]
		if x.segment == 0 {
			return x.maxTime, true
		}
		return s.segment(x.segment).First.Time / 1000, true
	}
	bs := p.chunks[p.chunkOf(offset)].batches
	i := sort.Search(len(bs), func(i int) bool { return bs[i].base > offset }) - 1
	return bs[i].maxTime, true
}

// partLocation returns the location of a part.
func (s *State) partLocation(p *Partition, i int) Location {
	x := p.parts()[i]
	if x.segment == 0 {
		return p.stays()[sort.Search(len(p.stays()), func(i int) bool { return p.stays()[i].Base >= x.base })]
	}
	n := s.segment(x.segment)
	return Location{Segment: n, Object: n.object(), Base: x.base, Span: int64(p.partEnd(i) - x.base), Size: uint32(x.bytes)}
}

// chunkOf returns the index of the chunk that holds an existing offset.
func (p *Partition) chunkOf(offset format.Offset) int {
	return sort.Search(len(p.chunks), func(i int) bool { return p.chunks[i].batches[0].base > offset }) - 1
}

func (s *State) location(p *Partition, ci, bi int) Location {
	c := &p.chunks[ci]
	b := c.batches[bi]
	index := c.object + uint64(b.object)
	count := int64(p.endOf(ci, bi) - b.base) // a batch that a commit appended has no gaps
	return Location{
		Object:  s.objects.entry(index).Object(),
		Base:    b.base,
		Span:    count,
		Records: count,
		Pos:     b.pos,
		Size:    b.size,
		CRC:     b.crc,
		Commit:  s.objects.commitOf(index, s.raised),
	}
}

// endOf returns the offset after the last record of a batch.
func (p *Partition) endOf(ci, bi int) format.Offset {
	if bi+1 < len(p.chunks[ci].batches) {
		return p.chunks[ci].batches[bi+1].base
	}
	if ci+1 < len(p.chunks) {
		return p.chunks[ci+1].batches[0].base
	}
	return p.End
}
