package seb

import (
	"context"
	"time"

	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

const (
	recordOverheadBytes = 32 // upper bound of a record's framing in a batch, headers apart
	headerOverheadBytes = 10
)

// topicAppend is one append of a request: records for one topic.
type topicAppend struct {
	name     string // of the part of a [Commit], else ""
	topic    string
	count    int
	bytes    int64         // upper bound, as encoded
	ifOffset int64         // the end offset that it requires, -1 if any
	delay    time.Duration // how long after its commit queues may hand its records out
	due      time.Time     // the same as a time by the store's clock; zero if the caller gave no time

	// Set by route. The records are the caller's, so the append drops them when it has joined
	// a batch set.
	id        uint64
	records   []Record
	partition func(i int) int32
	spread    int // upper bound of the partitions that the records go to

	parts []*batchShare // set when it joins a batch set
}

// newTopicAppend returns a valid append, which has no topic and partitions yet: see route.
func (b *Broker) newTopicAppend(topic string, records []Record, o appendOptions) (*topicAppend, error) {
	size, err := b.checkRecords(records)
	if err != nil {
		return nil, err
	}
	if err := o.check(len(records), b.storeNow()); err != nil {
		return nil, err
	}
	return &topicAppend{topic: topic, records: records, count: len(records), bytes: size, ifOffset: o.ifOffset, delay: o.delay, due: o.due}, nil
}

// route finds the topic of an append, or creates it, and chooses partitions.
func (b *Broker) route(ctx context.Context, a *topicAppend, o appendOptions) error {
	id, count, err := b.topicForAppend(ctx, a.topic, o)
	if err != nil {
		return err
	}
	if checkPartitions(a.topic, o, count) != nil { // unless another broker has added them
		if err := b.syncNow(ctx, false); err != nil {
			return err
		}
		if id, count, err = b.findTopic(ctx, a.topic); err != nil {
			return err
		}
		if err := checkPartitions(a.topic, o, count); err != nil {
			return err
		}
	}
	a.id, a.spread = id, 1
	if o.partition < 0 {
		a.spread = min(count, a.count)
	}
	a.partition = b.partitioner(a.records, o, int32(count))
	return nil
}

// dueAt returns when queues may hand the records out, in microseconds since 1970, if a commit of
// that time has them.
func (a *topicAppend) dueAt(commit int64) int64 {
	if !a.due.IsZero() {
		return a.due.UnixMicro()
	}
	return commit + a.delay.Microseconds()
}

// named returns err with the name of the append, if it is a part of a [Commit].
func (a *topicAppend) named(err error) error { return ofPart(a.name, err) }

// check refuses options that are invalid for that many records; now is the store's time.
func (o appendOptions) check(records int, now time.Time) error {
	switch {
	case records == 0:
		e := refused(CodeInvalidRequest, "the append has no records")
		e.Hint = "append at least one record"
		return e
	case o.conditional && o.ifOffset < 0:
		return refused(CodeInvalidRequest, "no partition has the next offset %d", o.ifOffset)
	case o.delay < 0 || o.delay > delayMax || o.due.Sub(now) > delayMax:
		return refused(CodeInvalidRequest, "records can be delayed by 0s to 366 days")
	case o.delay != 0 && !o.due.IsZero():
		return refused(CodeInvalidRequest, "the records have both a delay and a time when they are due")
	case o.partitions != nil && len(o.partitions) != records:
		return refused(CodeInvalidRequest, "%d partitions for %d records", len(o.partitions), records)
	}
	return o.checkKey()
}

// checkNew refuses an append that can't succeed on the new topic that it would create.
func (o appendOptions) checkNew(topic string) error {
	if checkPartitions(topic, o, 1) != nil {
		e := refused(CodePartitionNotFound, "there is no topic %q, and an append would create it with partition 0 alone", topic)
		e.Hint = "create the topic with more partitions, or append to partition 0"
		return e
	}
	if o.ifOffset > 0 {
		return offsetConflict(topic, 0, 0, o.ifOffset)
	}
	return nil
}

// checkConditions refuses a request with a delay that there is no room for, or with a
// condition that can never hold again, unless it settles the request as a retry. The commit
// decides whether other conditions hold: an append that makes them true may be under way.
func (b *Broker) checkConditions(ctx context.Context, r *request) error {
	for _, a := range r.appends {
		if a.delay > 0 || a.due.After(b.storeNow()) {
			if err := b.delayRoom(); err != nil {
				return a.named(err)
			}
		}
		if err := b.checkCondition(ctx, r, a); err != nil || r.settled {
			return a.named(err)
		}
	}
	return nil
}

// delayRoom refuses a delay beyond the limit of delayed appends.
func (b *Broker) delayRoom() error {
	var n int
	b.view(func(s *state.State) { n = s.DelayedCount(b.logNowIn(s)) })
	if n < b.opts.Limits.Delayed {
		return nil
	}
	e := limited(CodeTooManyDelayed, b.opts.Limits.Delayed, "%d delayed appends are not due yet, and no more are allowed", n)
	e.RetryAfter = time.Minute
	e.Hint = "append the records when they are due, or raise the limit (--delayed-max)"
	return e
}

func (b *Broker) checkCondition(ctx context.Context, r *request, a *topicAppend) error {
	if a.ifOffset < 0 {
		return nil
	}
	p := a.partition(0)
	for i := range a.records {
		if a.partition(i) != p {
			return refused(CodeInvalidRequest, "a condition on the offset needs all records in one partition")
		}
	}
	end := func() (end int64) {
		b.view(func(s *state.State) {
			if t := s.TopicByID(a.id); t != nil {
				end = t.Partitions[p].End
			}
		})
		return end
	}
	if end() <= a.ifOffset {
		return nil
	}
	if err := b.syncNow(ctx, false); err != nil { // so that the refusal has the current end
		return err
	}
	if !b.hasTopic(a.id) || r.key != nil && b.replay(r, b.foldTime()) {
		return nil // the commit decides; or an earlier attempt of this append moved the end
	}
	return offsetConflict(a.topic, p, end(), a.ifOffset)
}

// checkRecords returns an upper bound of the records' encoded bytes, or the
// refusal of the first that passes a limit.
func (b *Broker) checkRecords(records []Record) (int64, error) {
	var size int64
	for i := range records {
		r := &records[i]
		n := len(r.Key) + len(r.Value)
		for _, h := range r.Headers {
			n += len(h.Name) + len(h.Value)
		}
		if n > b.opts.Limits.RecordBytes {
			return 0, limited(CodeRecordTooLarge, b.opts.Limits.RecordBytes, "record %d has %d bytes; a record may have %d", i, n, b.opts.Limits.RecordBytes)
		}
		if len(r.Headers) > b.opts.Limits.RecordHeaders {
			return 0, limited(CodeTooManyHeaders, b.opts.Limits.RecordHeaders, "record %d has %d headers; a record may have %d", i, len(r.Headers), b.opts.Limits.RecordHeaders)
		}
		size += int64(n + recordOverheadBytes + len(r.Headers)*headerOverheadBytes)
	}
	return size, nil
}

// checkSize refuses what is too large for one request.
func (b *Broker) checkSize(appends ...*topicAppend) error {
	size, records := bytesOf(appends), 0
	for _, a := range appends {
		records += a.count
	}
	// What the broker adds to short records doesn't count against the limit,
	// so that it means to the caller what it says.
	if payload := size - int64(records)*recordOverheadBytes; payload > int64(b.opts.Limits.RequestBytes) {
		return limited(CodeRequestTooLarge, b.opts.Limits.RequestBytes, "the request has %d bytes; one may have %d", payload, b.opts.Limits.RequestBytes)
	}
	if most := b.opts.Memory / 2; size > most {
		return limited(CodeRequestTooLarge, int(most), "the request's %d records take %d bytes as a batch; they may take %d", records, size, most)
	}
	return nil
}

func bytesOf(appends []*topicAppend) (bytes int64) {
	for _, a := range appends {
		bytes += a.bytes
	}
	return bytes
}

func checkPartitions(topic string, o appendOptions, count int) error {
	if o.partition < -1 || int(o.partition) >= count {
		return partitionNotFound(topic, o.partition, count)
	}
	for _, p := range o.partitions {
		if p < -1 || int(p) >= count {
			return partitionNotFound(topic, p, count)
		}
	}
	return nil
}

// partitioner returns the function that chooses a record's partition.
func (b *Broker) partitioner(records []Record, o appendOptions, count int32) func(i int) int32 {
	if o.partition < 0 && count == 1 {
		o.partition = 0
	}
	if o.partition >= 0 && o.partitions == nil {
		return func(int) int32 { return o.partition }
	}
	turn := int32(b.turn.Add(1) % uint32(count))
	return func(i int) int32 {
		switch {
		case o.partitions != nil && o.partitions[i] >= 0:
			return o.partitions[i]
		case o.partition >= 0:
			return o.partition
		case records[i].Key != nil:
			return record.PartitionForKey(records[i].Key, count)
		default:
			return turn
		}
	}
}
