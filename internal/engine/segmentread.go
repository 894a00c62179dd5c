package engine

import (
	"bytes"
	"context"
	"hash/crc32"
	"iter"

	"github.com/simple-event-broker/seb/internal/cache"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/segment"
	"github.com/simple-event-broker/seb/internal/sst"
	"github.com/simple-event-broker/seb/internal/state"
)

// The state says which segment has an offset, but not where in the segment: that is in the segment's table of locations.
// The index and the blocks of tables are in the cache like batches.

// tableWholeBytes is the size in bytes of a table that is read as a whole, when its index is read.
const tableWholeBytes = 256 << 10

// tablePart identifies a flight that reads a part of a table. Its type keeps flights of this package apart from others.
type tablePart cache.Range

// resolve replaces a range in a segment that locate has found by the batches of the range from the cursor on, with about
// as many bytes and records as opts allows.
func (c *Cursor) resolve(ctx context.Context, opts *ReadOptions) error {
	if len(c.found) == 0 || c.found[0].Segment == nil {
		return nil
	}
	l := c.found[0]
	var found []state.Location
	err := c.tries(ctx, c.Offset, &l, func(loads uint64) (err error) {
		found, err = c.rows(ctx, l, loads, opts)
		return err
	})
	c.found = found
	return err
}

// rows returns the batches of a range in a segment from the cursor on.
func (c *Cursor) rows(ctx context.Context, l state.Location, loads uint64, opts *ReadOptions) (found []state.Location, err error) {
	if l.Segment == nil {
		return []state.Location{l}, nil // the range has become a batch of its own: that never happens to a range in a segment
	}
	var size, records int64
	for x, err := range c.batches(ctx, l.Segment, c.Offset, loads) {
		if err != nil {
			return nil, err
		}
		if x.Base >= l.End() || len(found) > 0 && (size >= opts.Bytes || records >= int64(opts.Records)) {
			break
		}
		found = append(found, locationOf(l, x))
		size, records = size+int64(x.Size), records+x.Records
	}
	if len(found) == 0 {
		return nil, format.Corrupt("the segment has no batch of partition %d of topic %d from offset %d on", c.partition, c.id, c.Offset)
	}
	return found, nil
}

// row returns the batch of a range in a segment that has an offset, or is the first one behind it.
func (c *Cursor) row(ctx context.Context, l state.Location, offset format.Offset, loads uint64) (state.Location, error) {
	for x, err := range c.batches(ctx, l.Segment, offset, loads) {
		if err != nil {
			return l, err
		}
		return locationOf(l, x), nil
	}
	return l, format.Corrupt("the segment has no batch of partition %d of topic %d from offset %d on", c.partition, c.id, offset)
}

// rowOfTime returns the first batch of a range in a segment that ends after the cursor and has a record of the time ms or
// later, in milliseconds since 1970.
func (c *Cursor) rowOfTime(ctx context.Context, l state.Location, ms int64) (found state.Location, ok bool, err error) {
	at := l
	err = c.tries(ctx, max(l.Base, c.Offset), &at, func(loads uint64) error {
		found, ok = at, at.Segment == nil
		if ok {
			return nil
		}
		for x, err := range c.batches(ctx, at.Segment, max(at.Base, c.Offset), loads) {
			if err != nil {
				return err
			}
			if x.Base >= at.End() {
				break
			}
			if x.MaxTime >= ms {
				found, ok = locationOf(at, x), true
				break
			}
		}
		return nil
	})
	return found, ok, err
}

// locationOf returns the location of a batch of a range in a segment.
func locationOf(l state.Location, x *format.SegmentBatch) state.Location {
	return state.Location{Object: l.Object, Base: x.Base, Span: x.Span, Records: x.Records, Pos: x.Pos, Size: x.Size, CRC: x.CRC, Row: x}
}

// batches iterates over the batches that a segment has of the cursor's partition, from an offset on. An error ends the
// iteration. loads is how many checkpoints the engine had loaded when the state named the segment.
func (c *Cursor) batches(ctx context.Context, n *state.Segment, offset format.Offset, loads uint64) iter.Seq2[*format.SegmentBatch, error] {
	return func(yield func(*format.SegmentBatch, error) bool) {
		t, err := c.e.table(ctx, n, loads)
		if err != nil {
			yield(nil, err)
			return
		}
		segment.From(t, c.id, c.partition, offset)(yield)
	}
}

// table returns the table of a segment, whose blocks are read with ctx.
func (e *Engine) table(ctx context.Context, n *state.Segment, loads uint64) (*sst.Table, error) {
	t := tableReader{e, ctx, n, loads}
	x, err := t.index()
	if err != nil {
		return nil, err
	}
	return sst.NewTable(x, t.block), nil
}

// tableReader reads parts of the table of a segment.
type tableReader struct {
	e     *Engine
	ctx   context.Context //nolint:containedctx // a tableReader lives as long as one read
	n     *state.Segment
	loads uint64
}

// part names a part of the table, whose position is that in the segment.
func (t *tableReader) part(pos, size int64, crc uint32) cache.Range {
	return cache.Range{
		Object: cache.Object{Kind: byte(format.KindData), Seq: uint64(t.n.Ref.Seq), Tag: t.n.Ref.ID},
		Pos:    uint32(pos), Size: uint32(size), CRC: crc, Table: true,
	}
}

// index reads the index of the table, and all of a small table.
func (t *tableReader) index() (*sst.Index, error) {
	size, table := int64(t.n.Ref.Size), int64(t.n.Table.Pos)
	pos := size - sst.FooterSize - int64(t.n.Table.IndexSize)
	off := pos
	if size-table <= tableWholeBytes {
		off = table
	}
	b, err := t.read(t.part(pos, int64(t.n.Table.IndexSize), t.n.Table.IndexCRC), off, size-off, func(window []byte) {
		x, err := sst.DecodeIndex(window[pos-off:pos-off+int64(t.n.Table.IndexSize)], t.n.Table.IndexCRC, pos-table)
		if err != nil || off > table {
			return
		}
		for _, blk := range x.Blocks() {
			if raw := window[blk.Pos : blk.Pos+blk.Size]; crc32.Checksum(raw, castagnoli) == blk.CRC {
				t.e.cache.AddFetched(t.part(table+blk.Pos, blk.Size, blk.CRC), bytes.Clone(raw))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return sst.DecodeIndex(b, t.n.Table.IndexCRC, pos-table)
}

// block reads a block of the table.
func (t *tableReader) block(blk sst.Block) ([]byte, error) {
	pos := int64(t.n.Table.Pos) + blk.Pos
	return t.read(t.part(pos, blk.Size, blk.CRC), pos, blk.Size, func([]byte) {})
}

// read returns a part of the table, from the cache or from the store. From the store, it reads n bytes from off on, which
// contain the part, and passes them to also.
func (t *tableReader) read(r cache.Range, off, n int64, also func(window []byte)) (part []byte, err error) {
	for {
		if b := t.e.cache.Get(r); b != nil {
			return b, nil
		}
		err := t.e.cache.Flight(t.ctx, []any{tablePart(r)}, func(ctx context.Context) error {
			return t.e.readObject(ctx, state.Object{Data: true, Seq: uint64(t.n.Ref.Seq), Tag: t.n.Ref.ID, Size: t.n.Ref.Size}, off, n, t.loads, func(window []byte) error {
				b := bytes.Clone(window[int64(r.Pos)-off : int64(r.Pos)-off+int64(r.Size)])
				if sum := crc32.Checksum(b, castagnoli); sum != r.CRC {
					return format.Corrupt("a part of its table has the checksum %08x instead of %08x", sum, r.CRC)
				}
				t.e.cache.AddFetched(r, b)
				also(window)
				part = b
				return nil
			})
		})
		if err != nil {
			return nil, err // the flight may still be writing part
		}
		if part != nil {
			return part, nil
		}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
