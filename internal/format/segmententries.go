package format

import (
	"encoding/binary"
	"math"
	"time"
)

// The entries about segments, by kind:
//
//	27 segment added: seq, id (uint64 each) and size (uint32) of the object, level (uint32), through (uint64), slot (uint64),
//	   position of the table of locations (uint32), size and CRC-32C of the table's index (uint32 each), 0 (uint32),
//	   slot (uint64) and time (int64) of the first and of the last commit that appended its records, then in varints
//	   (u: unsigned, z: zig-zag):
//	     u    number of inputs; then for each, ascending, u: number of the segment, minus the one before
//	     u    number of ranges; then for each, by topic, partition and base:
//	       u    topic, minus the one before
//	       u    partition, minus the one before in the same topic
//	       u    base offset, minus the end of the one before in the same partition
//	       u    offsets: the end minus the base
//	       u    0, or 1 for a range that stays where it is
//	       u u  records, bytes; 0 for a range that stays
//	       z    largest timestamp in ms since 1970; 0 for a range that stays
//	36 level raised: level (uint32), 0 (uint32), how long dead objects stay in microseconds (int64)
//	37 level known: level (uint32), flags (uint32): bit 0 = the writer wants the level of the log to stay
//
// The entry 37 is not critical.
const (
	entrySegmentAdded = 27
	entryLevelRaised  = 36
	entryLevelKnown   = 37

	segmentAddedFixedSize = 88
	levelRaisedSize       = 16
	levelHold             = 1

	// LevelSegments is the level of a log from which on it may have segments. Below it, brokers write what version 5 of
	// the snapshot can hold.
	LevelSegments = 6
)

// CommitTime names a commit by its slot, and gives its time.
type CommitTime struct {
	Seq  Seq
	Time int64 // the log's time in microseconds since 1970
}

// SegmentAdded puts a segment in the place of batches of the tail, or of other segments.
type SegmentAdded struct {
	Ref DataRef
	// Level is 1 for a segment of batches of the tail, and else that of the inputs, or one more.
	Level uint32
	// Through is the number of the last segment of batches of the tail whose batches are in this segment, or in another one of the
	// same group; 0 for a segment of batches of the tail.
	Through uint64
	// Slot is, for a segment of batches of the tail, the slot up to which all batches of the tail are in the segment, or in ranges
	// that stay; 0 for other segments.
	Slot        Seq
	Table       TableRef
	First, Last CommitTime
	// Inputs are the numbers of the segments whose batches are in this one; empty in a segment of batches of the tail.
	Inputs []uint64
	Ranges []SegmentRange
}

// TableRef says where the table of locations of a segment is. The CRC of its index vouches for the whole table.
type TableRef struct {
	Pos       uint32 // position in the object, in bytes; the table ends where the object ends
	IndexSize uint32 // in bytes; the index ends where the table's footer begins
	IndexCRC  uint32
}

// SegmentRange is a range of offsets of a partition that a segment takes over.
type SegmentRange struct {
	Topic     TopicID
	Partition Partition
	Base, End Offset
	// Stays says that the batch could not be read, and stays where it is: the other fields are 0.
	Stays   bool
	Records int64
	Bytes   int64 // size of the batches in the segment
	MaxTime int64 // largest timestamp in ms since 1970
}

// LevelRaised says that a level holds from the next slot on.
type LevelRaised struct {
	Level uint32
	// DeleteDelay is that of seb.json: how long a checkpoint must have been seen before what died up to its slot is deleted.
	DeleteDelay time.Duration
}

// LevelKnown says up to which level the writer of the commit can read the log.
type LevelKnown struct {
	Level uint32
	Hold  bool // the writer, or a broker connected to it, wants the log to keep its level, or can't read the next one
}

func (*SegmentAdded) kind() uint16 { return entrySegmentAdded }
func (*LevelRaised) kind() uint16  { return entryLevelRaised }
func (*LevelKnown) kind() uint16   { return entryLevelKnown }

func (x *SegmentAdded) size() int { return len(x.append(nil)) }
func (*LevelRaised) size() int    { return levelRaisedSize }
func (*LevelKnown) size() int     { return 8 }

func (x *SegmentAdded) append(b []byte) []byte {
	b = le.AppendUint64(le.AppendUint64(b, uint64(x.Ref.Seq)), x.Ref.ID)
	b = le.AppendUint32(le.AppendUint32(b, x.Ref.Size), x.Level)
	b = le.AppendUint64(le.AppendUint64(b, x.Through), uint64(x.Slot))
	b = le.AppendUint32(le.AppendUint32(b, x.Table.Pos), x.Table.IndexSize)
	b = le.AppendUint32(le.AppendUint32(b, x.Table.IndexCRC), 0)
	for _, c := range []CommitTime{x.First, x.Last} {
		b = le.AppendUint64(le.AppendUint64(b, uint64(c.Seq)), uint64(c.Time))
	}
	b = binary.AppendUvarint(b, uint64(len(x.Inputs)))
	var before uint64
	for _, n := range x.Inputs {
		b = binary.AppendUvarint(b, n-before)
		before = n
	}
	b = binary.AppendUvarint(b, uint64(len(x.Ranges)))
	var last SegmentRange
	for _, r := range x.Ranges {
		if r.Topic != last.Topic {
			last = SegmentRange{Topic: last.Topic}
		}
		end := last.End
		if r.Partition != last.Partition {
			end = 0
		}
		stays := uint64(0)
		if r.Stays {
			stays = 1
		}
		b = binary.AppendUvarint(b, uint64(r.Topic-last.Topic))
		b = binary.AppendUvarint(b, uint64(r.Partition-last.Partition))
		b = binary.AppendUvarint(b, uint64(r.Base-end))
		b = binary.AppendUvarint(b, uint64(r.End-r.Base))
		b = binary.AppendUvarint(b, stays)
		b = binary.AppendUvarint(b, uint64(r.Records))
		b = binary.AppendUvarint(b, uint64(r.Bytes))
		b = binary.AppendVarint(b, r.MaxTime)
		last = r
	}
	return b
}

func (x *LevelRaised) append(b []byte) []byte {
	b = le.AppendUint32(le.AppendUint32(b, x.Level), 0)
	return le.AppendUint64(b, uint64(x.DeleteDelay.Microseconds()))
}

func (x *LevelKnown) append(b []byte) []byte {
	flags := uint32(0)
	if x.Hold {
		flags = levelHold
	}
	return le.AppendUint32(le.AppendUint32(b, x.Level), flags)
}

func decodeSegmentAdded(b []byte) (*SegmentAdded, error) {
	if len(b) < segmentAddedFixedSize {
		return nil, Corrupt("an entry of kind %d has the invalid size of %d bytes", entrySegmentAdded, len(b))
	}
	x := &SegmentAdded{
		Ref:     DataRef{Seq: Seq(le.Uint64(b)), ID: le.Uint64(b[8:]), Size: le.Uint32(b[16:])},
		Level:   le.Uint32(b[20:]),
		Through: le.Uint64(b[24:]), Slot: Seq(le.Uint64(b[32:])),
		Table: TableRef{Pos: le.Uint32(b[40:]), IndexSize: le.Uint32(b[44:]), IndexCRC: le.Uint32(b[48:])},
		First: CommitTime{Seq(le.Uint64(b[56:])), int64(le.Uint64(b[64:]))},
		Last:  CommitTime{Seq(le.Uint64(b[72:])), int64(le.Uint64(b[80:]))},
	}
	if le.Uint32(b[52:]) != 0 {
		return nil, Corrupt("reserved bytes of an entry of kind %d are set", entrySegmentAdded)
	}
	v := varints{rest: b[segmentAddedFixedSize:]}
	var before uint64
	for range v.unsigned(uint64(len(v.rest))) {
		n := before + v.unsigned(math.MaxUint64)
		if n <= before {
			return nil, Corrupt("the inputs of a segment don't ascend")
		}
		x.Inputs, before = append(x.Inputs, n), n
	}
	var last SegmentRange
	for range v.unsigned(uint64(len(v.rest)) / 8) {
		r, err := decodeSegmentRange(&v, last)
		if err != nil {
			return nil, err
		}
		x.Ranges, last = append(x.Ranges, r), r
	}
	if v.bad || len(v.rest) > 0 || len(x.Ranges) == 0 {
		return nil, Corrupt("an entry of kind %d is cut off or too long, or has no ranges", entrySegmentAdded)
	}
	return x, x.Check()
}

// Check returns an error that wraps [ErrCorrupt] unless the fields fit together. It does not check Inputs and Ranges.
func (x *SegmentAdded) Check() error {
	ofTail := len(x.Inputs) == 0
	if x.Level == 0 || ofTail && x.Level != 1 || ofTail != (x.Slot > 0) || ofTail != (x.Through == 0) ||
		int64(x.Table.Pos)+int64(x.Table.IndexSize) >= int64(x.Ref.Size) || x.First.Seq > x.Last.Seq || x.First.Seq == 0 {
		return Corrupt("the segment %s has invalid fields: level %d, through %d, slot %d, %d inputs, commits %d to %d, table at byte %d of %d",
			x.Ref.Key(), x.Level, x.Through, x.Slot, len(x.Inputs), x.First.Seq, x.Last.Seq, x.Table.Pos, x.Ref.Size)
	}
	return nil
}

// decodeSegmentRange reads a range that follows another one.
func decodeSegmentRange(v *varints, last SegmentRange) (SegmentRange, error) {
	topic, partition := v.unsigned(math.MaxUint64), v.unsigned(math.MaxInt32)
	r := SegmentRange{Topic: last.Topic + TopicID(topic)}
	if topic > 0 {
		last = SegmentRange{}
	}
	end := last.End
	if partition > 0 {
		end = 0
	}
	base, offsets := v.unsigned(uint64(math.MaxInt64-end)), v.unsigned(math.MaxInt64)
	r.Partition, r.Base = last.Partition+Partition(partition), end+Offset(base)
	r.End = r.Base + Offset(offsets)
	r.Stays = v.unsigned(1) == 1
	r.Records, r.Bytes, r.MaxTime = int64(v.unsigned(math.MaxInt64)), int64(v.unsigned(math.MaxUint32)), v.signed()
	if v.bad || r.Topic < last.Topic || r.Topic == 0 || r.Partition < 0 || r.End <= r.Base ||
		r.Stays != (r.Records == 0) || r.Stays != (r.Bytes == 0) || r.Stays && r.MaxTime != 0 {
		return r, Corrupt("a range of a segment is invalid: offsets %d to %d of partition %d of topic %d, %d records, %d bytes", r.Base, r.End, r.Partition, r.Topic, r.Records, r.Bytes)
	}
	return r, nil
}

func decodeLevelRaised(b []byte) (*LevelRaised, error) {
	level, reserved, err := decodeLevel(b)
	if err != nil {
		return nil, err
	}
	delay := int64(le.Uint64(b[8:]))
	if reserved != 0 || delay <= 0 || delay > math.MaxInt64/1000 {
		return nil, Corrupt("an entry of kind %d has invalid fields: reserved %#x, a delay of %d µs", entryLevelRaised, reserved, delay)
	}
	return &LevelRaised{Level: level, DeleteDelay: time.Duration(delay) * time.Microsecond}, nil
}

func decodeLevel(b []byte) (level, rest uint32, err error) {
	level, rest = le.Uint32(b), le.Uint32(b[4:])
	if level == 0 {
		return 0, 0, Corrupt("an entry about the level of the log names the level 0")
	}
	return level, rest, nil
}
