package seb

import (
	"context"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

const (
	fetchBytesDefault   = 1 * mib
	fetchRecordsDefault = 1000
)

// FetchOptions bound a fetch.
type FetchOptions struct {
	// Limit is the number of records at most; 0 means 1,000.
	Limit int
	// MaxBytes bounds keys, values and headers together; 0 means 1 MiB.
	// A fetch returns at least one record, whatever its size.
	MaxBytes int64
	// Wait is how long to wait for the first record at the end of the partition.
	Wait time.Duration
	// TopicTag is the tag of the expected topic, see [Fetched]. If the name belongs to
	// another topic, the fetch returns CodeTopicRecreated. "" accepts any topic.
	TopicTag string
	// Reserve, unless it is nil, is called before records are read, with the number of
	// records, within Limit, and an upper bound of their bytes, within MaxBytes. It returns
	// the bounds of the read, which may be lower.
	Reserve func(ctx context.Context, records int, bytes int64) (limit int, maxBytes int64, err error)
}

// Fetched is what a fetch found.
type Fetched struct {
	// TopicTag tells the topic from one that is created later under its name, see
	// [Broker.TopicTag]. A reader that stores an offset should store it too.
	TopicTag string
	// Records are contiguous. They share memory with the broker's cache: don't
	// change what they point to.
	Records []Record
	// Next is the offset to continue from.
	Next Offset
	// Start and End bound the partition at the time of the answer.
	Start, End Offset
}

// Fetch returns the records of a partition from a position on, within the bounds of
// opts. At the end of the partition it returns no records and no error. It may return
// fewer records than there are, since it waits for the store for about a second after
// the first: continue from [Fetched.Next] until it is [Fetched.End]. For a position
// outside of the partition it returns CodeOffsetOutOfRange. If ctx ends or the store
// fails after some records were read, it returns these without an error.
func (b *Broker) Fetch(ctx context.Context, topic string, partition int32, from Position, opts FetchOptions) (_ Fetched, err error) {
	defer reads(&err)
	def(&opts.Limit, fetchRecordsDefault)
	def(&opts.MaxBytes, fetchBytesDefault)
	if opts.Limit < 0 || opts.MaxBytes < 0 || opts.Wait < 0 {
		return Fetched{}, refused(CodeInvalidRequest, "limit, bytes and wait can't be negative")
	}
	f, err := b.fetch(ctx, topic, partition, from, opts)
	if b.recreated(topic, err) {
		f, err = b.fetch(ctx, topic, partition, from, opts)
	}
	return f, err
}

func (b *Broker) fetch(ctx context.Context, topic string, partition int32, from Position, opts FetchOptions) (Fetched, error) {
	c, err := b.cursor(ctx, topic, opts.TopicTag, partition, from)
	if err != nil {
		return Fetched{}, err
	}
	return c.fetch(ctx, opts)
}

// recreated tells whether err says that a topic was deleted although a topic of that name
// exists: the same sync has found both.
func (b *Broker) recreated(topic string, err error) (exists bool) {
	if CodeOf(err) == CodeTopicNotFound {
		b.engine.View(func(s *state.State) { exists = s.Topic(topic) != nil })
	}
	return exists
}

// cursor reads one partition from an offset on.
type cursor struct {
	b         *Broker
	topic     string
	id        uint64
	partition int32
	offset    int64
	floats    bool // nothing was read yet, and no offset was named: it may move up with the start
	reader    engine.Reader
	locations []state.Location // of the batches from the offset on
}

// newCursor returns a cursor at an offset of a partition.
func (b *Broker) newCursor(topic string, id uint64, partition int32, offset int64) *cursor {
	return &cursor{b: b, topic: topic, id: id, partition: partition, offset: offset, reader: b.engine.NewReader(topic, id, partition)}
}

// cursor resolves a position in the topic of that name, and of that tag unless it is empty.
func (b *Broker) cursor(ctx context.Context, topic string, want string, partition int32, from Position) (*cursor, error) {
	if err := b.engine.Usable(); err != nil {
		return nil, err
	}
	id, count, err := b.findTagged(ctx, topic, want)
	if err != nil {
		return nil, err
	}
	if partition < 0 || int(partition) >= count {
		if err := b.engine.Sync(ctx); err != nil {
			return nil, err
		}
	}
	if from.kind == fromLatest || from.kind == fromLast || from.kind == fromTime {
		if err := b.engine.SyncIfOld(ctx); err != nil {
			return nil, err
		}
	}
	c := b.newCursor(topic, id, partition, 0)
	c.floats = from.kind != fromOffset
	start, end, err := c.reader.Bounds()
	if err != nil {
		return nil, err
	}
	c.offset = from.between(start, end)
	if from.kind == fromTime {
		err = c.seek(ctx, from.n)
	}
	return c, err
}

// between returns the offset that p means in a partition; for a time it is where the
// search begins.
func (p Position) between(start, end int64) int64 {
	switch p.kind {
	case fromLatest:
		return end
	case fromLast:
		return max(start, end-max(p.n, 0))
	case fromOffset:
		return p.n
	case fromOffsetOn:
		return max(start, p.n)
	default:
		return start
	}
}

// locate finds the batches from the cursor's offset on, and the partition's bounds.
func (c *cursor) locate(bytes int64, records int) (start, end int64, err error) {
	c.locations, start, end, err = c.reader.Locate(c.offset, bytes, records)
	return start, end, err
}

// fetch returns records from the cursor's offset on, and moves it behind them.
func (c *cursor) fetch(ctx context.Context, opts FetchOptions) (Fetched, error) {
	for {
		start, end, err := c.await(ctx, opts)
		if err != nil {
			return Fetched{}, err
		}
		if start, end, err = c.reserve(ctx, &opts, start, end); err != nil {
			return Fetched{}, err
		}
		f, err := c.read(ctx, opts, start, end)
		if c.floats && CodeOf(err) == CodeOffsetOutOfRange {
			continue // the start has moved past it: await moves it up
		}
		return f, err
	}
}

// reserve asks the caller for the memory of the batches that were found, and keeps those that
// fit into it.
func (c *cursor) reserve(ctx context.Context, opts *FetchOptions, start, end int64) (int64, int64, error) {
	if opts.Reserve == nil || len(c.locations) == 0 {
		return start, end, nil
	}
	var bytes int64
	for _, l := range c.locations {
		bytes += int64(l.Size)
	}
	last := c.locations[len(c.locations)-1]
	limit := int(min(int64(opts.Limit), last.Base+last.Count-c.offset))
	maxBytes := min(opts.MaxBytes, bytes)
	lower, fewer, err := opts.Reserve(ctx, limit, maxBytes)
	if err != nil || lower >= limit && fewer >= maxBytes {
		return start, end, err
	}
	opts.Limit, opts.MaxBytes = min(lower, limit), min(fewer, maxBytes)
	return c.locate(opts.MaxBytes, opts.Limit)
}

// read returns records of the batches that were found at the cursor, in a
// partition from start to end, and moves the cursor behind them.
func (c *cursor) read(ctx context.Context, opts FetchOptions, start, end int64) (Fetched, error) {
	f := Fetched{TopicTag: c.b.TopicTag(c.id), Start: Offset(start), End: Offset(end), Next: Offset(c.offset)}
	bytes := opts.MaxBytes
	raws, err := c.reader.Read(ctx)
	for i, raw := range raws {
		if len(f.Records) >= opts.Limit || bytes <= 0 {
			break
		}
		if lost := c.b.appendRecords(c, c.locations[i], raw, opts.Limit, &bytes, &f); lost != nil {
			err = lost
			break
		}
	}
	c.offset = int64(f.Next)
	if len(f.Records) > 0 {
		c.floats = false
		return f, nil // the error, if it lasts, meets the next fetch
	}
	return f, err
}

// await finds the batches at the cursor. At the end of the partition it syncs, and then
// waits for new records within opts.Wait.
func (c *cursor) await(ctx context.Context, opts FetchOptions) (start, end int64, err error) {
	var (
		timeout <-chan time.Time
		synced  bool
	)
	for {
		next := c.b.engine.Await(c.id, c.partition)
		start, end, err = c.locate(opts.MaxBytes, opts.Limit)
		if err != nil {
			return 0, 0, err
		}
		if n := len(c.locations); n > 0 {
			last := c.locations[n-1]
			// Up to the end, as far as is known here: is it still the end?
			if atEnd := last.Base+last.Count == end; synced || !atEnd || c.b.engine.Fresh() {
				return start, end, nil
			}
			synced = true
			if err := c.b.engine.SyncIfOld(ctx); err != nil {
				return 0, 0, err
			}
			continue
		}
		if c.offset < start && c.floats {
			c.offset = start
			continue
		}
		if c.offset < start || c.offset > end {
			if c.offset > end && !synced {
				synced = true
				if err := c.b.engine.Sync(ctx); err != nil {
					return 0, 0, err
				}
				continue
			}
			return 0, 0, outOfRange(c.topic, c.partition, c.offset, start, end)
		}
		if !synced {
			synced = true
			if !c.b.engine.Fresh() {
				if err := c.b.engine.SyncIfOld(ctx); err != nil {
					return 0, 0, err
				}
				continue
			}
		}
		if opts.Wait == 0 {
			return start, end, nil
		}
		if timeout == nil {
			timer := time.NewTimer(opts.Wait)
			defer timer.Stop()
			timeout = timer.C
			defer c.b.engine.Follow()()
		}
		select {
		case <-next:
		case <-timeout:
			return start, end, nil
		case <-ctx.Done():
			return start, end, ctx.Err()
		case <-c.b.engine.Done():
			return start, end, c.b.engine.Usable()
		}
	}
}

// appendRecords adds the records of one batch to f, from f.Next on.
func (b *Broker) appendRecords(c *cursor, l state.Location, raw []byte, limit int, bytes *int64, f *Fetched) error {
	head, err := record.Parse(raw)
	if err != nil {
		return b.engine.DataLost(l, err)
	}
	if int64(head.Count) != l.Count {
		return b.engine.DataLost(l, fmt.Errorf("%w: it holds %d records, not %d", record.ErrCorrupt, head.Count, l.Count))
	}
	if f.Records == nil {
		f.Records = make([]Record, 0, min(int64(limit), l.Base+l.Count-int64(f.Next)))
	}
	for r, err := range head.Records(raw, l.Base, record.Limits{}) {
		if err != nil {
			return b.engine.DataLost(l, err)
		}
		if r.Offset < int64(f.Next) {
			continue
		}
		size := int64(len(r.Key) + len(r.Value))
		for _, h := range r.Headers {
			size += int64(len(h.Key) + len(h.Value))
		}
		if len(f.Records) >= limit || len(f.Records) > 0 && size > *bytes {
			*bytes = 0
			return nil
		}
		*bytes -= size
		f.Records = append(f.Records, fromBatch(r, c.partition))
		f.Next = Offset(r.Offset + 1)
	}
	return nil
}

func fromBatch(r record.Record, partition int32) Record {
	out := Record{
		Key:       r.Key,
		Value:     r.Value,
		Timestamp: time.UnixMilli(r.Timestamp).UTC(),
		Partition: partition,
		Offset:    Offset(r.Offset),
	}
	if len(r.Headers) > 0 {
		out.Headers = make([]Header, len(r.Headers))
		for i, h := range r.Headers {
			out.Headers[i] = Header{Name: h.Key, Value: h.Value}
		}
	}
	return out
}
