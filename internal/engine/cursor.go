package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

// Cursor reads the records of one partition from an offset on. It is for one goroutine at a time.
type Cursor struct {
	// Offset is the next offset to read.
	Offset format.Offset
	// Floats says that the cursor moves to the start of the partition if Offset is below that start. The
	// cursor clears Floats when it has read a record. Without Floats, an offset below the start is an error.
	Floats bool

	e         *Engine
	topic     string         // for errors
	id        format.TopicID // of the topic
	partition format.Partition

	// Set by the last call of locate:
	start, end format.Offset // of the partition
	// around says that other readers probably want the neighbours of the batches that were found: those that read near the end too,
	// or other partitions of the topic.
	around bool

	tables format.Offset    // the tables of segments below are being read ahead, see locateAhead
	found  []state.Location // where the batches from Offset on are
	loads  uint64           // how many checkpoints the engine had loaded
}

// NewCursor returns a cursor at an offset of a partition, in the topic with that name and id.
func (e *Engine) NewCursor(topic string, id format.TopicID, partition format.Partition, offset format.Offset) *Cursor {
	return &Cursor{Offset: offset, e: e, topic: topic, id: id, partition: partition}
}

// aroundMax is how many batches from the end of a partition a read is near the end.
const aroundMax = 16

// ReadOptions bound what a cursor reads at once.
type ReadOptions struct {
	Records int
	Bytes   int64         // of keys, values and headers together; the first record is read whatever its size
	Wait    time.Duration // how long Next waits at the end of the partition
	// Reserve, unless it is nil, is called before records are read, with the number of records and an
	// upper bound of their bytes. It returns the bounds of the read, which may be lower. If it returns 0
	// records, none are read: so a caller can wait for records without reading them.
	Reserve func(ctx context.Context, records int, bytes int64) (fewer int, lower int64, err error)
}

// Sink receives the records that a cursor reads. The records share memory with the cache.
type Sink interface {
	// Grow is called before the records of each batch: at most n records of that batch follow.
	Grow(n int)
	// Add takes a record, and the time of its commit: the zero time if the log does not keep such times yet.
	Add(r record.Record, logTime time.Time)
}

// Next passes records to a sink, within the bounds of opts, and moves the cursor past them. At the end
// of the partition it syncs, and then waits up to opts.Wait for records. If none come, it passes no
// records, without an error. It returns the bounds of the partition. It returns an error only if it has
// passed no record.
func (c *Cursor) Next(ctx context.Context, opts ReadOptions, to Sink) (start, end format.Offset, err error) {
	for {
		if err := c.await(ctx, &opts); err != nil {
			return 0, 0, err
		}
		from := c.Offset
		count, err := c.read(ctx, &opts, to)
		_, passed := errors.AsType[*OutOfRangeError](err)
		switch {
		case passed && c.Floats:
		case err == nil && count == 0 && c.Offset > from: // all that was found was a gap
		default:
			return c.start, c.end, err
		}
	}
}

// Read is like Next, but it neither syncs nor waits: it passes only records that this broker knows. If the
// partition does not hold the offset, Read passes no records.
func (c *Cursor) Read(ctx context.Context, opts ReadOptions, to Sink) error {
	for {
		if err := c.locate(&opts); err != nil {
			return err
		}
		from := c.Offset
		if count, err := c.read(ctx, &opts, to); err != nil || count > 0 || c.Offset == from {
			return err
		}
	}
}

// Bounds returns the partition's start and end as they are now.
func (c *Cursor) Bounds() (start, end format.Offset, err error) {
	err = c.view(func(_ *state.State, _ *state.Topic, p *state.Partition) error {
		start, end = p.Start, p.End
		return nil
	})
	return start, end, err
}

// Seek moves the cursor forward to the first record whose timestamp is at least ms, in milliseconds
// since 1970, or to the partition's end if there is no such record.
//
// The state knows the largest timestamp of each batch, so usually Seek reads one batch. But the cursor may be
// in the middle of that batch. If all records of the batch with a timestamp of at least ms are before the
// cursor, Seek reads a second batch.
func (c *Cursor) Seek(ctx context.Context, ms int64) error {
	for {
		l, found, err := c.locateTime(ms)
		if err != nil || !found {
			return err
		}
		if l.Segment != nil {
			end := l.End()
			if l, found, err = c.rowOfTime(ctx, l, ms); err != nil {
				return err
			}
			if !found {
				c.Offset = max(c.Offset, end)
				continue
			}
		}
		l, raw, err := c.readBatch(ctx, l)
		if err != nil {
			return err
		}
		for r, err := range c.records(l, raw, nil) {
			if err != nil {
				return c.e.dataLost(l, fmt.Errorf("search for a time: %w", err))
			}
			if r.Timestamp >= ms {
				c.Offset = format.Offset(r.Offset)
				return nil
			}
		}
		c.Offset = max(c.Offset, l.End())
	}
}

// view calls f with the state, and the cursor's topic and partition in it.
func (c *Cursor) view(f func(s *state.State, t *state.Topic, p *state.Partition) error) (err error) {
	c.e.View(func(s *state.State) {
		t := s.TopicByID(c.id)
		switch {
		case t == nil:
			err = &TopicDeletedError{Topic: c.topic}
		case c.partition < 0 || int(c.partition) >= len(t.Partitions):
			err = &PartitionNotFoundError{Topic: c.topic, Partition: c.partition, Count: len(t.Partitions)}
		default:
			err = f(s, t, &t.Partitions[c.partition])
		}
	})
	return err
}

// locate finds batches from the cursor on, with about as many bytes and records as opts allows.
func (c *Cursor) locate(opts *ReadOptions) error {
	return c.view(func(s *state.State, t *state.Topic, p *state.Partition) error {
		if c.Floats {
			c.Offset = max(c.Offset, p.Start)
		}
		c.start, c.end, c.loads = p.Start, p.End, c.e.loads
		c.found = s.Locate(c.found[:0], t, c.partition, c.Offset, opts.Bytes, opts.Records)
		c.around = len(t.Partitions) > 1 || c.reach() >= c.end && len(c.found) <= aroundMax
		return nil
	})
}

// locateTime finds the first batch from the cursor on that has a record of the time ms or later, in
// milliseconds since 1970. If the cursor is before the start of the partition, locateTime first moves the
// cursor to that start. If there is no such batch, it moves the cursor to the end of the partition.
func (c *Cursor) locateTime(ms int64) (l state.Location, found bool, err error) {
	err = c.view(func(s *state.State, t *state.Topic, p *state.Partition) error {
		c.Offset, c.loads, c.around = max(c.Offset, p.Start), c.e.loads, true
		if l, found = s.LocateTime(t, c.partition, c.Offset, ms); !found {
			c.Offset = max(c.Offset, p.End)
		}
		return nil
	})
	return l, found, err
}

// relocate finds where the state has an offset now. It also returns how many checkpoints the engine has loaded so far.
// It must not change the cursor, since readFound reads batches in several goroutines.
func (c *Cursor) relocate(offset format.Offset) (now state.Location, loads uint64, err error) {
	err = c.view(func(s *state.State, t *state.Topic, p *state.Partition) error {
		found := s.Locate(nil, t, c.partition, offset, 1, 1)
		if len(found) == 0 {
			return c.outOfRange(offset, p.Start, p.End)
		}
		now, loads = found[0], c.e.loads
		return nil
	})
	return now, loads, err
}

// await finds the batches at the cursor. At the end of the partition it syncs once, and then waits for
// up to opts.Wait. If no records came, c.found is empty.
func (c *Cursor) await(ctx context.Context, opts *ReadOptions) error {
	synced := false
	return c.e.Await(ctx, c.id, c.partition, opts.Wait, func() (bool, error) {
		err := c.locate(opts)
		if err == nil && !synced && c.reach() >= c.end {
			synced = true
			err = c.confirmEnd(ctx, opts)
		}
		if err == nil && (c.Offset < c.start || c.Offset > c.end) {
			err = c.outOfRange(c.Offset, c.start, c.end)
		}
		return len(c.found) > 0, err
	})
}

// reach returns the offset after the batches that were found.
func (c *Cursor) reach() format.Offset {
	if len(c.found) == 0 {
		return c.Offset
	}
	return c.found[len(c.found)-1].End()
}

// confirmEnd syncs unless the last sync is recent, and then finds the batches again. If the offset is
// beyond the end of the partition, confirmEnd always syncs, since other brokers may have moved the end.
func (c *Cursor) confirmEnd(ctx context.Context, opts *ReadOptions) (err error) {
	switch {
	case c.Offset > c.end:
		err = c.e.Sync(ctx)
	case c.e.Fresh():
		return nil
	default:
		err = c.e.SyncIfOld(ctx)
	}
	if err != nil {
		return err
	}
	return c.locate(opts)
}

func (c *Cursor) outOfRange(offset, start, end format.Offset) error {
	return &OutOfRangeError{Topic: c.topic, Partition: c.partition, Offset: offset, Start: start, End: end}
}

// reserve calls opts.Reserve before the found batches are read. If opts.Reserve lowers the bounds of the
// read, reserve finds batches again, within the lower bounds.
func (c *Cursor) reserve(ctx context.Context, opts *ReadOptions) error {
	if opts.Reserve == nil || len(c.found) == 0 {
		return nil
	}
	var size int64
	for _, l := range c.found {
		size += int64(l.Size)
		if l.Segment != nil {
			size = opts.Bytes // the batches of a segment are compressed
		}
	}
	records := int(min(int64(opts.Records), int64(c.reach()-c.Offset)))
	bytes := min(opts.Bytes, size)
	fewer, lower, err := opts.Reserve(ctx, records, bytes)
	if err != nil || fewer >= records && lower >= bytes {
		return err
	}
	opts.Records, opts.Bytes = min(fewer, records), min(lower, bytes)
	return c.locate(opts)
}

// read passes records of the found batches to a sink, and moves the cursor past them, and past gaps that follow them.
// It returns the number of records.
func (c *Cursor) read(ctx context.Context, opts *ReadOptions, to Sink) (count int, err error) {
	if err := c.reserve(ctx, opts); err != nil || opts.Records == 0 {
		return 0, err
	}
	if err := c.resolve(ctx, opts); err != nil {
		return 0, err
	}
	ahead := c.e.resume(c)
	raws, missed, err := c.readFound(ctx)
	bytes, batches := int64(0), 0
	ready := c.e.unpackerFor(ahead)
	defer func() {
		c.e.rest(ahead, c, missed, batches, bytes, err)
		ready.close(&c.e.ahead, ahead, c.Offset)
	}()
batches:
	for i, raw := range raws {
		if count >= opts.Records || bytes >= opts.Bytes {
			break
		}
		l := c.found[i]
		batches++
		to.Grow(int(max(0, min(int64(opts.Records-count), l.Records, int64(l.End()-c.Offset)))))
		for r, damage := range c.records(l, raw, ready.at(c.found[i:len(raws)], raws[i:])) {
			if damage != nil {
				err = c.e.dataLost(l, damage)
				break batches
			}
			size := contentBytes(&r)
			if count == opts.Records || count > 0 && bytes+size > opts.Bytes {
				break batches
			}
			bytes += size
			to.Add(r, l.LogTime(format.Offset(r.Offset)))
			c.Offset, c.Floats = format.Offset(r.Offset+1), false
			count++
		}
		c.Offset = max(c.Offset, l.End())
	}
	if count > 0 {
		c.e.traffic.read(c.id, int64(count), bytes)
		return count, nil // if the error lasts, the next read returns it
	}
	return 0, err
}

// records iterates over the records of a batch from the cursor on. unpacked are its records, decompressed; nil if records has
// to decompress them. An error says that the batch is damaged.
func (c *Cursor) records(l state.Location, raw, unpacked []byte) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		head, err := record.Parse(raw)
		if err == nil && (int64(head.Count) != l.Records || head.Span != l.Span) {
			err = fmt.Errorf("%w: the batch has %d records in %d offsets, not %d in %d", record.ErrCorrupt, head.Count, head.Span, l.Records, l.Span)
		}
		if err == nil && unpacked == nil {
			unpacked, err = head.Unpack(raw, record.Limits{})
		}
		if err != nil {
			yield(record.Record{}, err)
			return
		}
		for r, err := range head.Decode(unpacked, int64(l.Base), record.Limits{}) {
			if (err != nil || format.Offset(r.Offset) >= c.Offset) && !yield(r, err) {
				return
			}
		}
	}
}

// contentBytes returns the bytes of a record that count against the bounds of a read.
func contentBytes(r *record.Record) int64 {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return int64(n)
}
