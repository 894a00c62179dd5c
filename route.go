package seb

import (
	"context"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

const (
	recordOverheadBytes = 32 // a batch adds at most this many bytes to a record, and headerOverheadBytes to each header
	headerOverheadBytes = 10
)

// newAppend checks records and options, and returns an append without the topic's id and the
// partitions, which route sets.
func (b *Broker) newAppend(topic string, rs []Record, o appendOptions) (*engine.Append, error) {
	size, err := b.opts.Limits.checkRecords(rs)
	if err != nil {
		return nil, err
	}
	if err := o.check(len(rs), b.engine.StoreNow()); err != nil {
		return nil, err
	}
	return &engine.Append{
		Topic: topic, Records: records(rs), Count: len(rs), Bytes: size, IfEnd: o.IfOffset, Delay: o.Delay, Due: o.Due,
	}, nil
}

// route finds the topic of an append, or creates it, and chooses the partitions of the records.
func (b *Broker) route(ctx context.Context, a *engine.Append, rs []Record, o appendOptions) error {
	id, count, err := b.topicForAppend(ctx, a.Topic, o)
	if err != nil {
		return err
	}
	if checkPartitions(a.Topic, o, count) != nil { // another broker may have added partitions
		if err := b.engine.Sync(ctx); err != nil {
			return err
		}
		if id, count, err = b.findTopic(ctx, a.Topic); err != nil {
			return err
		}
		if err := checkPartitions(a.Topic, o, count); err != nil {
			return err
		}
	}
	a.ID = id
	b.choosePartitions(a, rs, o, int32(count))
	return nil
}

// inTurn tells whether one of the records has neither a partition nor a key.
func (o appendOptions) inTurn(rs []Record) bool {
	if o.Partition >= 0 {
		return false
	}
	for i := range rs {
		if rs[i].Key == nil && (o.Partitions == nil || o.Partitions[i] < 0) {
			return true
		}
	}
	return false
}

// check refuses options that are invalid for an append of the given number of records. now is the store's
// time.
func (o appendOptions) check(records int, now time.Time) error {
	switch {
	case records == 0:
		e := refused(CodeInvalidRequest, "the append has no records")
		e.Hint = "append at least one record"
		return e
	case o.Conditional && o.IfOffset < 0:
		return refused(CodeInvalidRequest, "the append requires the next offset to be %d; that offset must be at least 0", o.IfOffset)
	case o.Delay < 0 || o.Delay > delayMax:
		return refused(CodeInvalidRequest, "the delay is %v; it must be 0s to %v (366 days)", o.Delay, delayMax)
	case o.Due.Sub(now) > delayMax:
		return refused(CodeInvalidRequest, "the records are due at %s, more than 366 days after the store's time, %s", o.Due.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case o.Delay != 0 && !o.Due.IsZero():
		return refused(CodeInvalidRequest, "the append has both a delay and a time when its records are due; give only one of them")
	case o.Partitions != nil && len(o.Partitions) != records:
		return refused(CodeInvalidRequest, "%d partitions are given for %d records: give one partition for each record", len(o.Partitions), records)
	}
	return o.checkKey()
}

// checkNew refuses an append that can't succeed on the new topic that it would create.
func (o appendOptions) checkNew(topic string) error {
	if checkPartitions(topic, o, 1) != nil {
		e := refused(CodePartitionNotFound, "there is no topic %q; an append would create the topic with partition 0 only, but this append names another partition", topic)
		e.Hint = "create the topic with more partitions, or append to partition 0"
		return e
	}
	if o.IfOffset > 0 {
		return offsetConflict(topic, 0, 0, o.IfOffset)
	}
	return nil
}

// checkConditions refuses a request that has a delay while the limit of delayed appends is reached. It
// also refuses a request whose condition (see IfOffset) can never become true, because the partition has
// grown past the offset. But if an earlier request with the same idempotency key was committed, the request
// is not refused: it gets the result of the earlier request. A condition that can still become true is not
// checked: appends that make it true may be under way.
//
// inTurn tells whether append i has a record with neither a partition nor a key.
func (b *Broker) checkConditions(ctx context.Context, r *engine.Request, inTurn func(i int) bool) error {
	for i, a := range r.Appends {
		if a.Delay > 0 || a.Due.After(b.engine.StoreNow()) {
			if err := delayRoom(b.engine, b.opts.Limits.Delayed); err != nil {
				return ofPart(a.Part, err)
			}
		}
		if replayed, err := b.checkCondition(ctx, r, a, inTurn(i)); err != nil || replayed {
			return ofPart(a.Part, err)
		}
	}
	return nil
}

// delayRoom refuses a delayed append if as many delayed appends wait already as are allowed. An append
// counts once for each partition that it goes to.
func delayRoom(in *engine.Engine, most int) error {
	var n int
	in.View(func(s *state.State) { n = s.DelayedCount(in.NowIn(s)) })
	if n < most {
		return nil
	}
	e := limited(CodeTooManyDelayed, most, "%d delayed appends wait, which is the maximum; an append counts once for each partition that it goes to", n)
	e.RetryAfter = time.Minute
	e.Hint = "append the records when they are due, or raise the maximum (--delayed-max)"
	return e
}

func (b *Broker) checkCondition(ctx context.Context, r *engine.Request, a *engine.Append, inTurn bool) (replayed bool, _ error) {
	if a.IfEnd < 0 {
		return false, nil
	}
	if count := b.PartitionCount(a.Topic); inTurn && count > 1 {
		e := refused(CodeInvalidRequest, "if_offset (IfOffset) needs a partition: topic %q has %d partitions", a.Topic, count)
		e.Hint = "name the partition with the parameter partition, or give all records the same key"
		return false, e
	}
	p := a.PartitionOf(0)
	for i := range a.Count {
		if a.PartitionOf(i) != p {
			return false, refused(CodeInvalidRequest, "if_offset (IfOffset) needs all records in one partition, but the records of this append belong to several: give all records one partition or one key, or leave if_offset out")
		}
	}
	end := func() (end Offset) {
		b.engine.View(func(s *state.State) {
			if t := s.TopicByID(a.ID); t != nil {
				end = t.Partitions[p].End
			}
		})
		return end
	}
	if end() <= a.IfEnd {
		return false, nil
	}
	if err := b.engine.Sync(ctx); err != nil { // the refusal must name the current end
		return false, err
	}
	if !hasTopic(b.engine, a.ID) {
		return false, nil // the topic was deleted: the commit refuses the append
	}
	if r.Key != nil && b.engine.Replay(r, b.engine.Time()) { // an earlier attempt of this append moved the end
		return true, nil
	}
	return false, offsetConflict(a.Topic, int32(p), end(), a.IfEnd)
}

// checkRecords returns an upper bound of the records' encoded bytes, or the
// refusal of the first record that exceeds a limit.
func (l *Limits) checkRecords(records []Record) (int64, error) {
	var size int64
	for i := range records {
		r := &records[i]
		n := len(r.Key) + len(r.Value)
		for _, h := range r.Headers {
			n += len(h.Name) + len(h.Value)
		}
		if n > l.RecordBytes {
			return 0, limited(CodeRecordTooLarge, l.RecordBytes, "record %d has %d bytes; at most %d bytes are allowed", i, n, l.RecordBytes)
		}
		if len(r.Headers) > l.RecordHeaders {
			return 0, limited(CodeTooManyHeaders, l.RecordHeaders, "record %d has %d headers; at most %d are allowed", i, len(r.Headers), l.RecordHeaders)
		}
		size += int64(n + recordOverheadBytes + len(r.Headers)*headerOverheadBytes)
	}
	return size, nil
}

// checkSize refuses appends that are too large for one request.
func (o *Options) checkSize(appends ...*engine.Append) error {
	var size int64
	records := 0
	for _, a := range appends {
		size += a.Bytes
		records += a.Count
	}
	// RequestBytes limits keys, values and headers, with headerOverheadBytes for each header. It does not
	// count recordOverheadBytes. The second limit, half of Memory, counts both.
	if payload := size - int64(records)*recordOverheadBytes; payload > int64(o.Limits.RequestBytes) {
		return limited(CodeRequestTooLarge, o.Limits.RequestBytes, "the request has %d bytes; at most %d bytes are allowed", payload, o.Limits.RequestBytes)
	}
	if most := o.Memory / 2; size > most {
		return limited(CodeRequestTooLarge, int(most), "the request's %d records take %d bytes as a batch; at most %d bytes are allowed", records, size, most)
	}
	return nil
}

func checkPartitions(topic string, o appendOptions, count int) error {
	if o.Partition < -1 || int(o.Partition) >= count {
		return change.PartitionNotFound(topic, format.Partition(o.Partition), count)
	}
	for _, p := range o.Partitions {
		if p < -1 || int(p) >= count {
			return change.PartitionNotFound(topic, format.Partition(p), count)
		}
	}
	return nil
}

// choosePartitions sets the partition of each record of an append. The topic has count partitions.
func (b *Broker) choosePartitions(a *engine.Append, rs []Record, o appendOptions, count int32) {
	hasKey := func(r Record) bool { return r.Key != nil }
	switch {
	case o.Partition < 0 && count == 1:
		o.Partition = 0
		fallthrough
	case o.Partition >= 0:
		a.Partition = format.Partition(o.Partition)
	default:
		a.Partition = format.Partition(b.turn.Add(1) % uint32(count))
	}
	if o.Partitions == nil && (o.Partition >= 0 || !slices.ContainsFunc(rs, hasKey)) {
		return
	}
	a.Partitions = make([]format.Partition, len(rs))
	for i := range rs {
		switch {
		case o.Partitions != nil && o.Partitions[i] >= 0:
			a.Partitions[i] = format.Partition(o.Partitions[i])
		case o.Partition < 0 && hasKey(rs[i]):
			a.Partitions[i] = format.Partition(record.PartitionForKey(rs[i].Key, count))
		default:
			a.Partitions[i] = a.Partition
		}
	}
}
