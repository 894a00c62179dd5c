package seb

import (
	"context"
	"iter"
	"time"
)

// followWait is how long one fetch of Follow waits. It does not bound the iteration,
// and each may cost a sync.
const followWait = time.Hour

// Read iterates over the records of a partition from a position to the end that
// the partition has when the iteration begins. An error ends it, with a
// zero Record. Don't change what records point to.
func (b *Broker) Read(ctx context.Context, topic string, partition int32, from Position) iter.Seq2[Record, error] {
	return reading(func(yield func(Record, error) bool) {
		c, end, err := b.upToNow(ctx, topic, partition, from)
		if b.recreated(topic, err) {
			c, end, err = b.upToNow(ctx, topic, partition, from)
		}
		for err == nil && c.offset < end {
			var f Fetched
			f, err = c.fetch(ctx, FetchOptions{Limit: fetchRecordsDefault, MaxBytes: fetchBytesDefault})
			for _, r := range f.Records {
				if int64(r.Offset) >= end {
					return
				}
				if !yield(r, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(Record{}, err)
		}
	})
}

// Follow iterates over the records of a partition from a position on, and waits
// for more at its end, until ctx ends or the caller stops. Records appended
// through this broker come at once, those appended through others within
// 250 ms while they flow, and within 10 s after a pause. Records that are deleted
// before they are read end it with CodeOffsetOutOfRange.
func (b *Broker) Follow(ctx context.Context, topic string, partition int32, from Position) iter.Seq2[Record, error] {
	return reading(func(yield func(Record, error) bool) {
		c, err := b.cursor(ctx, topic, "", partition, from)
		wait := time.Duration(0)
		for err == nil {
			var f Fetched
			f, err = c.fetch(ctx, FetchOptions{Limit: fetchRecordsDefault, MaxBytes: fetchBytesDefault, Wait: wait})
			c.floats, wait = false, followWait // it has begun: what comes and goes unread from here on is missed
			for _, r := range f.Records {
				if !yield(r, nil) {
					return
				}
			}
		}
		yield(Record{}, err)
	})
}

// upToNow returns a cursor, and the end that its partition has.
func (b *Broker) upToNow(ctx context.Context, topic string, partition int32, from Position) (*cursor, int64, error) {
	c, err := b.cursor(ctx, topic, "", partition, from)
	if err == nil {
		err = b.engine.SyncIfOld(ctx)
	}
	if err != nil {
		return nil, 0, err
	}
	_, end, err := c.reader.Bounds()
	return c, end, err
}
