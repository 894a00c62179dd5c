package format

import (
	"encoding/binary"
	"math"
	"sort"
)

// The rows of a segment's table of locations, one for each batch. The key, big-endian, so that keys sort like numbers:
//
//	0  8 topic (uint64)
//	8  4 partition (uint32)
//	12 8 base offset (int64, not negative)
//
// The value, in varints (u: unsigned, z: zig-zag) but for the CRC-32C:
//
//	u       span: the batch has the offsets from base to base+span-1, or some of them; at least 1
//	u       span minus records
//	z       largest timestamp in ms since 1970
//	u u     position in the segment, size in bytes
//	4 bytes CRC-32C as in the batch (uint32, little-endian)
//	u       number of commits that appended these offsets, at least 1; then for each
//	  u       first offset, minus the previous one (for the first: minus base, which is 0)
//	  u       slot, minus the previous one (for the first: the slot)
//	  u       the commit's time in microseconds since 1970, minus the previous one (for the first: the time)
const (
	// LocationKeySize is the size in bytes of a key in a segment's table of locations.
	LocationKeySize = 20

	// SpanMax is the largest span of a batch: the largest offset delta is an int32.
	SpanMax = 1 << 31
)

// SegmentBatch says where a segment has a batch, and which commits its records are from.
type SegmentBatch struct {
	Topic     TopicID
	Partition Partition
	Base      Offset
	Span      int64 // the batch has offsets from Base to Base+Span-1, but maybe not all of them
	Records   int64 // at least 1, at most Span
	MaxTime   int64 // largest timestamp of the records, in ms since 1970
	Pos       uint32
	Size      uint32 // in bytes
	CRC       uint32 // CRC-32C in the batch's header
	// Commits are the commits that appended these offsets, in the order of the log. The first one has the offset Base.
	Commits []CommitPart
}

// CommitPart says which commit appended the offsets of a batch from an offset on.
type CommitPart struct {
	Base Offset
	Seq  Seq
	Time int64 // the log's time in microseconds since 1970
}

// CommitOf returns the commit that appended an offset of the batch.
func (x *SegmentBatch) CommitOf(offset Offset) CommitPart {
	return x.Commits[max(1, sort.Search(len(x.Commits), func(i int) bool { return x.Commits[i].Base > offset }))-1]
}

// LocationKey returns the key of the batch with that base offset. For any offset of the batch, the batch's row is the
// one with the greatest key that is not above the LocationKey of that offset.
func LocationKey(topic TopicID, partition Partition, base Offset) []byte {
	be := binary.BigEndian
	b := be.AppendUint64(make([]byte, 0, LocationKeySize), uint64(topic))
	return be.AppendUint64(be.AppendUint32(b, uint32(partition)), uint64(base))
}

// AppendValue appends the value of the batch's row to b.
func (x *SegmentBatch) AppendValue(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(x.Span))
	b = binary.AppendUvarint(b, uint64(x.Span-x.Records))
	b = binary.AppendVarint(b, x.MaxTime)
	b = binary.AppendUvarint(b, uint64(x.Pos))
	b = binary.AppendUvarint(b, uint64(x.Size))
	b = le.AppendUint32(b, x.CRC)
	b = binary.AppendUvarint(b, uint64(len(x.Commits)))
	before := CommitPart{Base: x.Base}
	for _, c := range x.Commits {
		b = binary.AppendUvarint(b, uint64(c.Base-before.Base))
		b = binary.AppendUvarint(b, uint64(c.Seq-before.Seq))
		b = binary.AppendUvarint(b, uint64(c.Time-before.Time))
		before = c
	}
	return b
}

// DecodeSegmentBatch reads a row of a segment's table of locations.
func DecodeSegmentBatch(key, value []byte) (*SegmentBatch, error) {
	if len(key) != LocationKeySize {
		return nil, Corrupt("a row of a table of locations has a key of %d bytes", len(key))
	}
	be := binary.BigEndian
	x := &SegmentBatch{
		Topic:     TopicID(be.Uint64(key)),
		Partition: Partition(be.Uint32(key[8:])),
		Base:      Offset(be.Uint64(key[12:])),
	}
	v := varints{rest: value}
	span, gaps := v.unsigned(SpanMax), v.unsigned(SpanMax)
	x.MaxTime = v.signed()
	pos, size := v.unsigned(math.MaxUint32), v.unsigned(math.MaxUint32)
	x.Pos, x.Size, x.CRC = uint32(pos), uint32(size), v.uint32()
	x.Span, x.Records = int64(span), int64(span)-int64(gaps)
	commits := v.unsigned(uint64(len(v.rest)) / 3)
	if v.bad || x.Base < 0 || x.Partition < 0 || x.Records < 1 || int64(x.Base) > math.MaxInt64-x.Span || size < batchSizeMin || pos+size > math.MaxUint32 || commits == 0 {
		return nil, Corrupt("the row of the batch at offset %d of partition %d of topic %d is invalid", x.Base, x.Partition, x.Topic)
	}
	x.Commits = make([]CommitPart, 0, commits)
	c := CommitPart{Base: x.Base}
	for i := range commits {
		offsets, slots, micros := v.unsigned(SpanMax), v.unsigned(math.MaxUint64), v.unsigned(math.MaxInt64)
		next := CommitPart{Base: c.Base + Offset(offsets), Seq: c.Seq + Seq(slots), Time: c.Time + int64(micros)}
		// All but the first commit follow the one before; no sum overflows.
		if v.bad || (offsets == 0) != (i == 0) || slots == 0 || next.Seq < c.Seq || next.Time < c.Time || int64(next.Base-x.Base) >= x.Span {
			return nil, Corrupt("the row of the batch at offset %d of partition %d of topic %d has an invalid commit", x.Base, x.Partition, x.Topic)
		}
		x.Commits, c = append(x.Commits, next), next
	}
	if len(v.rest) > 0 {
		return nil, Corrupt("%d bytes follow a row of a table of locations", len(v.rest))
	}
	return x, nil
}

// varints reads one number after the other. After a damaged one, bad is true, and all further ones are 0.
type varints struct {
	rest []byte
	bad  bool
}

// unsigned reads a number that is at most most.
func (v *varints) unsigned(most uint64) uint64 {
	x, n := binary.Uvarint(v.rest)
	return uint64(v.took(int64(x), n, x <= most))
}

func (v *varints) signed() int64 {
	x, n := binary.Varint(v.rest)
	return v.took(x, n, true)
}

func (v *varints) uint32() uint32 {
	if len(v.rest) < 4 {
		return uint32(v.took(0, 0, false))
	}
	return uint32(v.took(int64(le.Uint32(v.rest)), 4, true))
}

func (v *varints) took(x int64, n int, ok bool) int64 {
	if n <= 0 || !ok || v.bad {
		v.rest, v.bad = nil, true
		return 0
	}
	v.rest = v.rest[n:]
	return x
}
