package segment

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/sst"
)

// Options say how a segment is built. The zero value is valid.
type Options struct {
	// Codec compresses merged batches, unless that makes them larger. The zero value compresses nothing.
	Codec record.Codec
	// BatchBytes is the size in bytes, uncompressed, up to which batches are merged; 0 means 256 KiB.
	BatchBytes int
}

// Input is a batch for a segment, and what the log knows about it.
type Input struct {
	Topic     format.TopicID
	Partition format.Partition
	Base      format.Offset
	MaxTime   int64 // largest timestamp of the records, in ms since 1970, as the log has it: the batch's header may be wrong
	// Raw is the batch: its CRC was compared with the one in the log. The builder keeps no slice of it.
	Raw []byte
	// Commits are the commits that appended the batch: see [format.SegmentBatch].
	Commits []format.CommitPart
}

// Range says what a segment has of one partition.
type Range struct {
	Topic     format.TopicID
	Partition format.Partition
	Base, End format.Offset // the segment has all records from Base to End-1; another range may follow behind a hole
	Records   int64
	Bytes     int64 // size of the batches in the segment
	MaxTime   int64 // largest timestamp in ms since 1970
	Sum       Sum   // of the records
}

// Built is a finished segment.
type Built struct {
	Parts       [][]byte // the object, in parts that end between batches
	Ref         format.DataRef
	Ranges      []Range           // by topic and partition
	First, Last format.CommitTime // of the commits that appended the segment's records
	Table       format.TableRef
}

// Object returns a copy of the object in one piece.
func (b *Built) Object() []byte { return slices.Concat(b.Parts...) }

// Added returns the entry that adds the segment to the log, without what only the log knows: level, through, slot and inputs.
func (b *Built) Added() *format.SegmentAdded {
	x := &format.SegmentAdded{Ref: b.Ref, Table: b.Table, First: b.First, Last: b.Last}
	for _, r := range b.Ranges {
		x.Ranges = append(x.Ranges, format.SegmentRange{Topic: r.Topic, Partition: r.Partition, Base: r.Base, End: r.End, Records: r.Records, Bytes: r.Bytes, MaxTime: r.MaxTime})
	}
	return x
}

// Builder builds a segment. Use [NewBuilder]. A Builder is not safe for concurrent use.
type Builder struct {
	o           Options
	parts       [][]byte // the batches, so that a large segment is never copied
	size        int      // of the batches
	sum         uint32   // CRC-32C of the batches
	table       *sst.Builder
	ranges      []Range
	first, last format.CommitTime
	open        merge
	records     []record.Record // buffer
	value       []byte          // buffer
	scratch     []byte          // buffer
}

// merge is the batch that a builder is making of several inputs.
type merge struct {
	topic     format.TopicID
	partition format.Partition
	base      format.Offset
	maxTime   int64
	records   record.Builder
	commits   []format.CommitPart
	only      []byte // a copy of the input, as long as it is the only one
}

const (
	batchBytesDefault = 256 << 10
	// rowBytes bounds the bytes of a row without its commits, and commitBytes those of a commit.
	rowBytes    = format.LocationKeySize + 64
	commitBytes = 30
	// A part of a segment has as many bytes as all parts before it, within these bounds, or one larger batch.
	partBytesMin, partBytesMax = 4 << 10, 1 << 20
)

var headSize = format.SegmentHeadSize(2)

// ErrOrder says that an input does not follow the one before it.
var ErrOrder = errors.New("the batch does not follow the one before it")

// NewBuilder returns a builder of an empty segment.
func NewBuilder(o Options) *Builder {
	if o.BatchBytes == 0 {
		o.BatchBytes = batchBytesDefault
	}
	return &Builder{o: o, table: sst.NewBuilder(sst.Options{Plain: o.Codec == record.None})}
}

// Add adds a batch. Inputs come in the order of topics, partitions and offsets. If Add returns an error, which wraps
// [ErrOrder] or one of the errors of package record, the builder is as before.
func (b *Builder) Add(in Input) error {
	head, err := record.Parse(in.Raw)
	if err == nil {
		err = b.follows(in, head)
	}
	if err != nil {
		return err
	}
	joint := false
	if mergeable(head) {
		if joint, err = b.decode(in, head); err != nil {
			return err
		}
	}
	if !joint || !b.open.takes(in, head, b.o.BatchBytes) {
		if err := b.endMerge(); err != nil {
			return err
		}
	}
	b.count(in, head, joint)
	if joint && len(in.Raw) >= b.o.BatchBytes {
		return b.putAlone(in, head)
	}
	if joint {
		b.open.add(in, head, b.records, b.latest())
		return nil
	}
	b.put(format.SegmentBatch{
		Topic: in.Topic, Partition: in.Partition, Base: in.Base, Span: head.Span, Records: int64(head.Count), MaxTime: in.MaxTime,
		CRC: head.CRC, Commits: in.Commits,
	}, in.Raw)
	return nil
}

// putAlone puts a batch into the segment that is too large to be merged with others, without a copy of its records: it is compressed
// as it is, unless it is compressed already.
func (b *Builder) putAlone(in Input, head record.Batch) error {
	raw := in.Raw
	if head.Codec == record.None {
		var err error
		if raw, err = record.Compress(raw, b.o.Codec); err != nil {
			return err
		}
		if head, err = record.Parse(raw); err != nil {
			return err
		}
	}
	b.put(format.SegmentBatch{
		Topic: in.Topic, Partition: in.Partition, Base: in.Base, Span: head.Span, Records: int64(head.Count), MaxTime: b.latest(), CRC: head.CRC, Commits: in.Commits,
	}, raw)
	return nil
}

// mergeable tells whether a batch may be merged with others. A batch with an attribute that holds for all of its records, or
// with the sequence numbers of a producer, stays as it is.
func mergeable(head record.Batch) bool {
	const codec = 0x07
	return head.Attributes&^codec == 0 && head.ProducerID < 0
}

// follows returns an error unless an input comes after all earlier ones, and is plausible.
func (b *Builder) follows(in Input, head record.Batch) error {
	if len(in.Commits) == 0 || in.Commits[0].Base != in.Base || head.Size != len(in.Raw) || in.Base < 0 || int64(in.Base) > math.MaxInt64-head.Span {
		return fmt.Errorf("%w: a batch of %d bytes with the offset %d and %d commits", ErrOrder, len(in.Raw), in.Base, len(in.Commits))
	}
	if n := len(b.ranges); n > 0 {
		r := b.ranges[n-1]
		order := cmp.Or(cmp.Compare(r.Topic, in.Topic), cmp.Compare(r.Partition, in.Partition), cmp.Compare(r.End, in.Base+1))
		if order > 0 {
			return fmt.Errorf("%w: offset %d of partition %d of topic %d comes after offset %d of partition %d of topic %d", ErrOrder,
				in.Base, in.Partition, in.Topic, r.End-1, r.Partition, r.Topic)
		}
	}
	return nil
}

// decode decodes the records of an input into b.records. ok is false if they exceed the limits of package record: then the
// batch stays as it is.
func (b *Builder) decode(in Input, head record.Batch) (ok bool, err error) {
	b.records = b.records[:0]
	for r, err := range head.Records(in.Raw, int64(in.Base), record.Limits{}) {
		if _, limit := errors.AsType[*record.LimitError](err); limit {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("offset %d of partition %d of topic %d: %w", in.Base, in.Partition, in.Topic, err)
		}
		b.records = append(b.records, r)
	}
	return true, nil
}

// latest returns the largest timestamp of the decoded records.
func (b *Builder) latest() int64 {
	latest := int64(math.MinInt64)
	for i := range b.records {
		latest = max(latest, b.records[i].Timestamp)
	}
	return latest
}

// count counts an input in the range of its partition.
func (b *Builder) count(in Input, head record.Batch, decoded bool) {
	n := len(b.ranges)
	if n == 0 || b.ranges[n-1].Topic != in.Topic || b.ranges[n-1].Partition != in.Partition || b.ranges[n-1].End != in.Base {
		b.ranges = append(b.ranges, Range{Topic: in.Topic, Partition: in.Partition, Base: in.Base, MaxTime: math.MinInt64})
		n++
	}
	r := &b.ranges[n-1]
	r.End = in.Base + format.Offset(head.Span)
	r.Records += int64(head.Count)
	if !decoded {
		r.MaxTime = max(r.MaxTime, in.MaxTime)
		r.Sum.addBatch(in.Base, in.Raw)
		return
	}
	r.MaxTime = max(r.MaxTime, b.latest())
	for i := range b.records {
		b.scratch = r.Sum.add(&b.records[i], b.scratch)
	}
}

// takes tells whether an input can become part of the merged batch. The commits of a batch are in the order of the log. For a data
// object from before [format.LevelSegments], the log knows no commit but the one that raised the level: what was committed after
// that data object, but before the level was raised, can't be in one batch with it.
func (m *merge) takes(in Input, head record.Batch, most int) bool {
	return m.records.Count() > 0 && m.topic == in.Topic && m.partition == in.Partition && m.base+format.Offset(m.records.Span()) == in.Base &&
		m.records.Size()+len(in.Raw) <= most && m.records.Span()+head.Span <= record.SpanMax &&
		m.commits[len(m.commits)-1].Seq <= in.Commits[0].Seq
}

// add adds the records of an input, which takes has accepted, or which is the first one.
func (m *merge) add(in Input, head record.Batch, records []record.Record, latest int64) {
	m.only = nil
	if m.records.Count() == 0 {
		*m = merge{topic: in.Topic, partition: in.Partition, base: in.Base, maxTime: math.MinInt64, records: m.records, only: bytes.Clone(in.Raw)}
	}
	for i := range records {
		r := &records[i]
		m.records.Skip(r.Offset - int64(m.base) - m.records.Span())
		m.records.Append(r)
	}
	m.records.Skip(int64(in.Base-m.base) + head.Span - m.records.Span())
	m.maxTime = max(m.maxTime, latest)
	commits := in.Commits
	if n := len(m.commits); n > 0 && m.commits[n-1].Seq == commits[0].Seq {
		commits = commits[1:] // one commit appended the end of the batch before, and the beginning of this one
	}
	m.commits = append(m.commits, commits...)
}

// endMerge puts the merged batch, if there is one, into the segment.
func (b *Builder) endMerge() error {
	m := &b.open
	if m.records.Count() == 0 {
		return nil
	}
	x := format.SegmentBatch{Topic: m.topic, Partition: m.partition, Base: m.base, Span: m.records.Span(), Records: int64(m.records.Count()), MaxTime: m.maxTime, Commits: m.commits}
	raw, err := m.records.FinishSmaller(b.o.Codec)
	if err != nil {
		return err
	}
	if m.only != nil && len(m.only) <= len(raw) {
		raw = m.only
	}
	head, err := record.Parse(raw)
	if err != nil {
		return err
	}
	x.CRC = head.CRC
	b.put(x, raw)
	b.open = merge{records: m.records} // and its memory
	return nil
}

// put puts a batch into the segment: the last one of the last range so far.
func (b *Builder) put(x format.SegmentBatch, raw []byte) {
	x.Pos, x.Size = uint32(headSize+b.size), uint32(len(raw))
	first, last := x.Commits[0], x.Commits[len(x.Commits)-1]
	if b.size == 0 || first.Seq < b.first.Seq {
		b.first = format.CommitTime{Seq: first.Seq, Time: first.Time}
	}
	if last.Seq > b.last.Seq {
		b.last = format.CommitTime{Seq: last.Seq, Time: last.Time}
	}
	b.store(raw)
	b.value = x.AppendValue(b.value[:0])
	b.table.Add(format.LocationKey(x.Topic, x.Partition, x.Base), b.value)
	b.ranges[len(b.ranges)-1].Bytes += int64(len(raw))
}

// store copies a batch behind those before.
func (b *Builder) store(raw []byte) {
	n := len(b.parts)
	if n == 0 || cap(b.parts[n-1])-len(b.parts[n-1]) < len(raw) {
		b.parts = append(b.parts, make([]byte, 0, max(len(raw), min(max(b.size, partBytesMin), partBytesMax))))
		n++
	}
	at := len(b.parts[n-1])
	b.parts[n-1] = append(b.parts[n-1], raw...)
	stored := b.parts[n-1][at:]
	record.Stamp(stored, 0, 0)
	b.sum = crc32.Update(b.sum, castagnoli, stored)
	b.size += len(raw)
}

// Empty reports whether the segment has no batches.
func (b *Builder) Empty() bool { return len(b.ranges) == 0 }

// Size returns an upper bound of the size in bytes that the segment would have now.
func (b *Builder) Size() int64 {
	n := headSize + b.size + b.table.Size()
	if b.open.records.Count() > 0 {
		n += max(b.open.records.Size(), len(b.open.only)) + rowBytes + commitBytes*len(b.open.commits)
	}
	return int64(n)
}

// Finish returns the segment under the key of ref; Finish sets the size in ref. created is the writer's wall clock in
// microseconds since 1970. The builder must not be used after that. It must have batches.
func (b *Builder) Finish(cluster format.ClusterID, ref format.DataRef, created int64) (*Built, error) {
	if err := b.endMerge(); err != nil {
		return nil, err
	}
	rows := b.table.Rows()
	table := b.table.Finish()
	ref.Size = uint32(headSize + b.size + len(table))
	tablePos := uint32(headSize + b.size)
	footer, err := sst.DecodeFooter(table[len(table)-sst.FooterSize:])
	if err != nil {
		return nil, err
	}
	head := format.EncodeSegmentHead(&format.SegmentHead{
		Cluster: cluster, Ref: ref, Created: created, Batches: uint32(rows),
		Sections: []format.Section{
			{Kind: format.SectionBatches, Rows: rows, Pos: uint32(headSize), Size: uint32(b.size), CRC: b.sum},
			{Kind: format.SectionLocations, Rows: rows, Pos: tablePos, Size: uint32(len(table)), CRC: crc32.Checksum(table, castagnoli)},
		},
	})
	return &Built{
		Parts: slices.Concat([][]byte{head}, b.parts, [][]byte{table}), Ref: ref, Ranges: b.ranges, First: b.first, Last: b.last,
		Table: format.TableRef{Pos: tablePos, IndexSize: footer.IndexSize, IndexCRC: footer.IndexCRC},
	}, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
