package segment

import (
	"fmt"
	"hash/crc32"
	"iter"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/sst"
)

// Find returns where the batch that has an offset is. ok is false if the table has no batch with that offset.
func Find(t *sst.Table, topic format.TopicID, partition format.Partition, offset format.Offset) (x *format.SegmentBatch, ok bool, err error) {
	row, ok, err := t.Floor(format.LocationKey(topic, partition, offset))
	if err != nil || !ok {
		return nil, false, err
	}
	x, err = format.DecodeSegmentBatch(row.Key, row.Value)
	if err != nil {
		return nil, false, err
	}
	return x, x.Topic == topic && x.Partition == partition && offset < x.Base+format.Offset(x.Span), nil
}

// From iterates over the batches of a partition, from the one that has an offset, or is the first one above it, to the last
// one in the table. An error ends the iteration.
func From(t *sst.Table, topic format.TopicID, partition format.Partition, offset format.Offset) iter.Seq2[*format.SegmentBatch, error] {
	return func(yield func(*format.SegmentBatch, error) bool) {
		for row, err := range t.From(format.LocationKey(topic, partition, offset)) {
			var x *format.SegmentBatch
			if err == nil {
				x, err = format.DecodeSegmentBatch(row.Key, row.Value)
			}
			switch {
			case err != nil:
				yield(nil, err)
				return
			case x.Topic > topic || x.Topic == topic && x.Partition > partition:
				return
			case x.Topic != topic || x.Partition != partition || x.Base+format.Offset(x.Span) <= offset:
				continue // the row before the first one
			}
			if !yield(x, nil) {
				return
			}
		}
	}
}

// Check reads a whole segment: the head, all checksums, every row of the table of locations and every record. It returns
// the head, and the ranges that the segment has. The object may be in several parts, as in [Built]. Errors wrap those of packages
// format, sst and record.
func Check(object ...[]byte) (*format.SegmentHead, []Range, error) {
	h, err := format.DecodeSegmentHead(object[0])
	if err != nil {
		return nil, nil, err
	}
	size := int64(0)
	for _, part := range object {
		size += int64(len(part))
	}
	if int64(h.Ref.Size) != size {
		return nil, nil, format.Corrupt("the segment has %d bytes instead of %d", size, h.Ref.Size)
	}
	from := parts(object)
	for _, s := range h.Sections {
		sum := uint32(0)
		for at, n := s.Pos, uint32(0); at < s.Pos+s.Size; at += n {
			b := from.at(at)
			n = min(uint32(len(b)), s.Pos+s.Size-at)
			sum = crc32.Update(sum, castagnoli, b[:n])
		}
		if sum != s.CRC {
			return nil, nil, format.Corrupt("section %d of the segment should have the checksum %08x, but its bytes give %08x", s.Kind, s.CRC, sum)
		}
	}
	batches, _ := h.Section(format.SectionBatches)
	locations, _ := h.Section(format.SectionLocations)
	table, err := sst.Open(from.slice(locations.Pos, locations.Size))
	if err != nil {
		return nil, nil, err
	}
	if table.Rows() != locations.Rows {
		return nil, nil, format.Corrupt("the table of locations has %d rows instead of %d", table.Rows(), locations.Rows)
	}
	var c checker
	pos := batches.Pos
	for row, err := range table.All() {
		if err != nil {
			return nil, nil, err
		}
		x, err := format.DecodeSegmentBatch(row.Key, row.Value)
		if err != nil {
			return nil, nil, err
		}
		if x.Pos != pos || int64(x.Size) > int64(batches.Pos+batches.Size-pos) {
			return nil, nil, format.Corrupt("offset %d of partition %d of topic %d should be at byte %d, with %d bytes", x.Base, x.Partition, x.Topic, x.Pos, x.Size)
		}
		if err := c.batch(x, from.slice(pos, x.Size)); err != nil {
			return nil, nil, fmt.Errorf("offset %d of partition %d of topic %d: %w", x.Base, x.Partition, x.Topic, err)
		}
		pos += x.Size
	}
	if pos != batches.Pos+batches.Size {
		return nil, nil, format.Corrupt("no row tells of the last %d bytes of the batches", batches.Pos+batches.Size-pos)
	}
	return h, c.b.ranges, nil
}

// parts are the parts of an object.
type parts [][]byte

// at returns the rest of the part that has a byte of the object, which the object has.
func (p parts) at(pos uint32) []byte {
	for _, part := range p {
		if pos < uint32(len(part)) {
			return part[pos:]
		}
		pos -= uint32(len(part))
	}
	return nil
}

// slice returns bytes of the object, which the object has.
func (p parts) slice(pos, size uint32) []byte {
	b := p.at(pos)
	if size <= uint32(len(b)) {
		return b[:size]
	}
	whole := make([]byte, 0, size) // the parts end elsewhere than those of a builder
	for len(whole) < int(size) {
		b := p.at(pos + uint32(len(whole)))
		whole = append(whole, b[:min(len(b), int(size)-len(whole))]...)
	}
	return whole
}

// checker counts batches as a builder does.
type checker struct{ b Builder }

func (c *checker) batch(x *format.SegmentBatch, raw []byte) error {
	if err := record.Verify(raw, x.CRC); err != nil {
		return err
	}
	head, err := record.Parse(raw)
	if err != nil {
		return err
	}
	if head.Span != x.Span || int64(head.Count) != x.Records {
		return format.Corrupt("the batch has %d records in %d offsets, and its row says %d in %d", head.Count, head.Span, x.Records, x.Span)
	}
	in := Input{Topic: x.Topic, Partition: x.Partition, Base: x.Base, MaxTime: x.MaxTime, Raw: raw, Commits: x.Commits}
	if err := c.b.follows(in, head); err != nil {
		return format.Corrupt("%v", err)
	}
	decoded := false
	if mergeable(head) {
		if decoded, err = c.b.decode(in, head); err != nil {
			return err
		}
	}
	if latest := c.b.latest(); decoded && latest != x.MaxTime {
		return format.Corrupt("the largest timestamp of the batch is %d ms since 1970, and its row says %d", latest, x.MaxTime)
	}
	c.b.count(in, head, decoded)
	c.b.ranges[len(c.b.ranges)-1].Bytes += int64(len(raw))
	return nil
}
