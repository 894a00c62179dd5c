package seb

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

const (
	fetchBytesDefault   = 1 * mib
	fetchRecordsDefault = 1000
	// followWait is how long each read of Follow waits for records before Follow reads again. It
	// is long because each read may cost a sync.
	followWait = time.Hour
)

// FetchOptions bound a fetch.
type FetchOptions struct {
	// Limit is the maximum number of records; 0 means 1,000.
	Limit int
	// MaxBytes bounds keys, values and headers together; 0 means 1 MiB. The first record is
	// returned whatever its size.
	MaxBytes int64
	// Wait is how long to wait for the first record at the end of the partition.
	Wait time.Duration
	// TopicTag is the tag of the expected topic: see [Fetched]. If the topic with the given name has
	// another tag, the fetch returns CodeTopicRecreated. "" accepts any tag.
	TopicTag string
	// Reserve, unless it is nil, is called before records are read, so that the caller can reserve
	// memory for them: at most the given number of records, with at most the given number of bytes.
	// Reserve may return lower bounds. Then the broker reads at most that many records and bytes.
	Reserve func(ctx context.Context, records int, bytes int64) (limit int, maxBytes int64, err error)
}

// read checks the options, and returns them as the engine's options.
func (o FetchOptions) read() (engine.ReadOptions, error) {
	def(&o.Limit, fetchRecordsDefault)
	def(&o.MaxBytes, fetchBytesDefault)
	if o.Limit < 0 || o.MaxBytes < 0 || o.Wait < 0 {
		return engine.ReadOptions{}, refused(CodeInvalidRequest, "limit is %d, max_bytes is %d and wait is %v; none may be negative", o.Limit, o.MaxBytes, o.Wait)
	}
	return engine.ReadOptions{Records: o.Limit, Bytes: o.MaxBytes, Wait: o.Wait, Reserve: o.Reserve}, nil
}

// Fetched is the result of a fetch.
type Fetched struct {
	// TopicTag identifies the topic: see [Broker.TopicTag]. A topic that is created later under
	// the same name has another tag. A reader that stores an offset should store the tag too.
	TopicTag string
	// Records are contiguous. They share memory with the broker's cache: don't
	// change what they point to.
	Records []Record
	// Next is the offset to continue from.
	Next Offset
	// Start and End bound the partition at the time of the answer.
	Start, End Offset
}

// Fetch returns the records of a partition from a position on, within the bounds of opts. At the
// end of the partition it returns no records and no error. Once it has the first records, Fetch
// waits at most about one second for further records from the store. So it may return fewer records
// than there are: continue from [Fetched.Next] until Next equals [Fetched.End]. For a position
// outside of the partition, Fetch returns CodeOffsetOutOfRange. If ctx ends or the store fails after
// some records were read, Fetch returns these records without an error.
func (b *Broker) Fetch(ctx context.Context, topic string, partition int32, from Position, opts FetchOptions) (f Fetched, err error) {
	defer reads(&err)
	bounds, err := opts.read()
	if err != nil {
		return Fetched{}, err
	}
	err = twiceIfRecreated(b, topic, func() error {
		c, id, err := openCursor(ctx, b, topic, opts.TopicTag, partition, from)
		if err != nil {
			return err
		}
		to := page{partition: partition}
		start, end, err := c.Next(ctx, bounds, &to)
		if err != nil {
			return err
		}
		f = Fetched{TopicTag: b.TopicTag(id), Records: to.records, Next: c.Offset, Start: start, End: end}
		return nil
	})
	return f, err
}

// Read iterates over the records of a partition from a position to the end that the
// partition has when the iteration begins. An error ends the iteration, and comes with a
// zero Record. Records share memory with the broker's cache: don't change what they point to.
func (b *Broker) Read(ctx context.Context, topic string, partition int32, from Position) iter.Seq2[Record, error] {
	return reading(func(yield func(Record, error) bool) {
		var (
			c   *engine.Cursor
			end Offset
		)
		err := twiceIfRecreated(b, topic, func() (err error) {
			if c, _, err = openCursor(ctx, b, topic, "", partition, from); err != nil {
				return err
			}
			if err = b.engine.SyncIfOld(ctx); err != nil {
				return err
			}
			_, end, err = c.Bounds()
			return err
		})
		for err == nil && c.Offset < end {
			to := page{partition: partition}
			_, _, err = c.Next(ctx, engine.ReadOptions{Records: fetchRecordsDefault, Bytes: fetchBytesDefault}, &to)
			for _, r := range to.records {
				if r.Offset >= end || !yield(r, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(Record{}, err)
		}
	})
}

// Follow iterates over the records of a partition from a position on, and waits for more at
// the end of the partition, until ctx ends or the caller stops. Records appended through this
// broker come at once. Records appended through other brokers come within 250 ms while other
// brokers keep appending, and within 10 s after a pause. If records are deleted before they are
// read, the iteration ends with CodeOffsetOutOfRange. An error comes with a zero Record. Records
// share memory with the broker's cache: don't change what they point to.
func (b *Broker) Follow(ctx context.Context, topic string, partition int32, from Position) iter.Seq2[Record, error] {
	return reading(func(yield func(Record, error) bool) {
		c, _, err := openCursor(ctx, b, topic, "", partition, from)
		wait := time.Duration(0)
		for err == nil {
			to := page{partition: partition}
			_, _, err = c.Next(ctx, engine.ReadOptions{Records: fetchRecordsDefault, Bytes: fetchBytesDefault, Wait: wait}, &to)
			c.Floats, wait = false, followWait // from now on, Next fails if records were deleted before they were read
			for _, r := range to.records {
				if !yield(r, nil) {
					return
				}
			}
		}
		yield(Record{}, err)
	})
}

// twiceIfRecreated calls the function read. If read fails because the topic was deleted, and another
// topic has the name by now, twiceIfRecreated calls read once more, for that topic. This happens if
// one sync learns that the topic was deleted and created again.
func twiceIfRecreated(b *Broker, topic string, read func() error) error {
	err := read()
	if CodeOf(err) != CodeTopicNotFound {
		return err
	}
	exists := false
	b.engine.View(func(s *state.State) { exists = s.Topic(topic) != nil })
	if exists {
		err = read()
	}
	return err
}

// openCursor returns a cursor at a position of a partition, and the id of the topic. If tag is not
// empty, openCursor fails unless the topic has this tag (see Broker.TopicTag).
func openCursor(ctx context.Context, b *Broker, topic, tag string, partition int32, from Position) (c *engine.Cursor, id TopicID, err error) {
	if id, err = findPartition(ctx, b, topic, tag, partition); err != nil {
		return nil, 0, err
	}
	if from.kind == fromLatest || from.kind == fromLast || from.kind == fromTime {
		if err := b.engine.SyncIfOld(ctx); err != nil {
			return nil, 0, err
		}
	}
	c = b.engine.NewCursor(topic, id, format.Partition(partition), 0)
	start, end, err := c.Bounds()
	if err != nil {
		return nil, 0, err
	}
	c.Offset, c.Floats = from.stored().In(start, end), from.kind != fromOffset
	if from.kind == fromTime {
		err = c.Seek(ctx, from.n)
	}
	return c, id, err
}

// findPartition returns the id of a topic. If tag is not empty, findPartition fails unless the topic
// has this tag. If this broker does not know the partition, findPartition syncs, and the caller checks
// again whether the partition exists.
func findPartition(ctx context.Context, b *Broker, topic, tag string, partition int32) (id TopicID, err error) {
	if err := b.engine.Usable(); err != nil {
		return 0, err
	}
	id, count, err := b.findTagged(ctx, topic, tag)
	if err == nil && int(partition) >= count {
		err = b.engine.Sync(ctx)
	}
	return id, err
}

// page collects the records of a read. It is an engine.Sink.
type page struct {
	partition int32
	records   []Record
}

// Grow implements engine.Sink.
func (p *page) Grow(n int) { p.records = slices.Grow(p.records, n) }

// Add implements engine.Sink.
func (p *page) Add(r record.Record, logTime time.Time) {
	out := Record{
		Key:       r.Key,
		Value:     r.Value,
		Timestamp: time.UnixMilli(r.Timestamp).UTC(),
		Partition: p.partition,
		Offset:    Offset(r.Offset),
		LogTime:   logTime,
		Headers:   slices.Grow([]Header(nil), len(r.Headers)),
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, Header{Name: h.Key, Value: h.Value})
	}
	p.records = append(p.records, out)
}
