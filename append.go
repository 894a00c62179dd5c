package seb

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/record"
)

const (
	requestOverheadBytes = 256 // what a waiting append costs beside its records
	recordOverheadBytes  = 32  // upper bound of a record's framing in a batch, headers apart
	headerOverheadBytes  = 10
)

// Range is Count records from Offset on in Partition.
type Range struct {
	Partition int32
	Offset    Offset
	Count     int
}

// Appended tells where an append's records stand.
type Appended struct {
	Topic string
	Count int
	// Ranges ascend by partition, then by offset. A partition appears once,
	// but for appends too large for one batch, whose records may lie apart.
	Ranges []Range
	// Replayed tells that nothing was appended: an earlier append had the same
	// idempotency key, and this is its answer.
	Replayed bool
}

// AppendOption changes how an append is done.
type AppendOption func(*appendOptions)

type appendOptions struct {
	partitions  []int32
	partition   int32 // -1: by key
	ifOffset    int64 // -1: whatever it is
	conditional bool  // ifOffset was given, also such as no partition has
	key         string
	keyed       bool
}

// ToPartition sends all records of an append to partition p.
func ToPartition(p int32) AppendOption {
	return func(o *appendOptions) { o.partition = p }
}

// ToPartitions gives each record its partition; -1 leaves the choice to its
// key. len(ps) must be the number of records. ps is not kept.
func ToPartitions(ps []int32) AppendOption {
	return func(o *appendOptions) { o.partitions = ps }
}

// IfOffset appends only if the next offset of the partition is end: else it fails
// with CodeOffsetConflict, whose [Error.End] tells the real one. All records of the
// append must go to one partition, named by an option or by their keys. An end
// below 0 is refused: no partition has it.
func IfOffset(end Offset) AppendOption {
	return func(o *appendOptions) { o.ifOffset, o.conditional = int64(end), true }
}

// Append appends records to topic, and returns where they stand once the store
// has them: all of them, in one commit, or none. A record goes to the partition
// that an option names, else to the one that its key chooses, else, with all
// others of the append that have no key, to the next partition in turn.
//
// The records and what they point to may be used again when Append has returned.
//
// An append without records is refused: there would be nothing for an option to be
// about, and nothing to tell.
//
// An error's [Outcome] tells whether the records may be in the log all the
// same. If ctx ends, or [Options.AppendTimeout] passes, before the records are
// part of a commit, they are withdrawn and the outcome is [NotCommitted]; later
// it is [Unknown].
func (b *Broker) Append(ctx context.Context, topic string, records []Record, opts ...AppendOption) (Appended, error) {
	p, err := b.AppendAsync(ctx, topic, records, opts...)
	if err != nil {
		return Appended{}, err
	}
	return p.Wait(ctx)
}

// Pending is an append whose outcome is not known yet.
type Pending struct {
	b      *Broker
	r      *request
	began  time.Time
	joined bool // r is another caller's append with the same idempotency key
	giveUp func() Outcome
}

// pending returns what one caller of r waits for. It may give up once.
func (b *Broker) pending(r *request, began time.Time) *Pending {
	return &Pending{b: b, r: r, began: began, giveUp: sync.OnceValue(func() Outcome {
		if b.gather.withdraw(r) {
			return NotCommitted
		}
		return Unknown
	})}
}

// AppendAsync is Append without the wait: it copies the records into the open
// batch, so that they may be used again when it has returned. It blocks while
// the broker is over its memory budget. Appends that one caller begins one after
// the other are committed in that order.
func (b *Broker) AppendAsync(ctx context.Context, topic string, records []Record, opts ...AppendOption) (*Pending, error) {
	o := appendOptions{partition: -1, ifOffset: -1}
	for _, opt := range opts {
		opt(&o)
	}
	p, err := b.appendAsync(ctx, topic, records, o)
	return p, notSent(err)
}

func (b *Broker) appendAsync(ctx context.Context, topic string, records []Record, o appendOptions) (*Pending, error) {
	if err := b.usable(); err != nil {
		return nil, err
	}
	size, err := b.checkRecords(records)
	if err != nil {
		return nil, err
	}
	if err := o.check(len(records)); err != nil {
		return nil, err
	}
	id, count, err := b.topicForAppend(ctx, topic, o)
	if err != nil {
		return nil, err
	}
	if checkPartitions(topic, o, count) != nil { // unless another broker has added them
		if err := b.lookNow(ctx, false); err != nil {
			return nil, err
		}
		if id, count, err = b.lookUp(ctx, topic); err != nil {
			return nil, err
		}
		if err := checkPartitions(topic, o, count); err != nil {
			return nil, err
		}
	}
	r := &request{topic: topic, count: len(records), ifOffset: o.ifOffset, began: time.Now(), boot: b.opts.boot(), done: make(chan struct{})}
	if o.keyed {
		r.key = newIdempotencyKey(id, records, o)
		if b.replay(r, time.Now().UnixMicro()) {
			err := b.lookNow(ctx, false)
			if err == nil && !b.hasTopic(id) {
				return b.appendAsync(ctx, topic, records, o) // to the one that has the name now
			}
			b.confirm(r, id, err)
			close(r.done)
			return b.pending(r, r.began), nil
		}
	}
	partitions := b.partitioner(records, o, int32(count))
	if o.ifOffset >= 0 {
		if err := b.checkIfOffset(ctx, r, id, len(records), partitions); err != nil {
			return nil, err
		}
		if r.settled {
			close(r.done)
			return b.pending(r, r.began), nil
		}
	}
	r.bytes = size + requestOverheadBytes
	if err := b.budget.take(ctx, forBatches, r.bytes); err != nil {
		return nil, err
	}
	spread := 1
	if o.partition < 0 {
		spread = min(count, len(records))
	}
	first, err := b.gather.join(r, id, records, partitions, spread)
	if err != nil || first != r {
		b.budget.give(r.bytes)
	}
	if err != nil {
		return nil, err
	}
	p := b.pending(first, r.began)
	p.joined = first != r
	return p, nil
}

// check refuses what no append of so many records can be.
func (o appendOptions) check(records int) error {
	switch {
	case records == 0:
		e := refused(CodeInvalidRequest, "the append has no records")
		e.Hint = "append one or more, or nothing"
		return e
	case o.conditional && o.ifOffset < 0:
		return refused(CodeInvalidRequest, "no partition has the next offset %d", o.ifOffset)
	case o.partitions != nil && len(o.partitions) != records:
		return refused(CodeInvalidRequest, "%d partitions for %d records", len(o.partitions), records)
	case o.keyed && (o.key == "" || len(o.key) > idempotencyKeyBytesMax):
		return refused(CodeInvalidRequest, "an idempotency key has 1 to %d bytes, not %d", idempotencyKeyBytesMax, len(o.key))
	}
	return nil
}

// checkNew refuses what can't be appended to a topic that it would have to create.
func (o appendOptions) checkNew(topic string) error {
	if checkPartitions(topic, o, 1) != nil {
		e := refused(CodePartitionNotFound, "there is no topic %q, and an append would create it with partition 0 alone", topic)
		e.Hint = "create it with as many partitions as are needed, or append to no other than 0"
		return e
	}
	if o.ifOffset > 0 {
		return offsetConflict(topic, 0, 0, o.ifOffset)
	}
	return nil
}

// checkIfOffset refuses an append whose condition can't hold any more, unless it
// settles it as a retry. Whether the condition holds, its commit decides: what is to
// make it true may be under way.
func (b *Broker) checkIfOffset(ctx context.Context, r *request, topic uint64, records int, partitions func(i int) int32) error {
	p := partitions(0)
	for i := range records {
		if partitions(i) != p {
			return refused(CodeInvalidRequest, "the records go to several partitions, of which each has an end of its own")
		}
	}
	end := func() int64 {
		b.mu.RLock()
		defer b.mu.RUnlock()
		if t := b.state.TopicByID(topic); t != nil {
			return t.Partitions[p].End
		}
		return 0
	}
	if end() <= r.ifOffset {
		return nil
	}
	if err := b.lookNow(ctx, false); err != nil { // so that it is the real end which is told
		return err
	}
	if !b.hasTopic(topic) || r.key != nil && b.replay(r, b.foldTime()) {
		return nil // the commit tells; or it is an earlier try of this append that moved the end
	}
	return offsetConflict(r.topic, p, end(), r.ifOffset)
}

// offsetConflict says that a partition does not end where an append insisted.
func offsetConflict(topic string, partition int32, end, insisted int64) *Error {
	e := refused(CodeOffsetConflict, "the next offset of partition %d of topic %q is %d, not %d", partition, topic, end, insisted)
	e.End = Offset(end)
	e.Hint = "read what was appended before that offset, and decide anew"
	return e
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
	// What the broker adds to short records doesn't count against the limit,
	// so that it means to the caller what it says.
	if payload := size - int64(len(records))*recordOverheadBytes; payload > int64(b.opts.Limits.RequestBytes) {
		return 0, limited(CodeRequestTooLarge, b.opts.Limits.RequestBytes, "the request has %d bytes; one may have %d", payload, b.opts.Limits.RequestBytes)
	}
	if most := b.opts.Memory / 2; size > most {
		return 0, limited(CodeRequestTooLarge, int(most), "the request's %d records take %d bytes as a batch; they may take %d", len(records), size, most)
	}
	return size, nil
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

// Done is closed when the outcome is known.
func (p *Pending) Done() <-chan struct{} { return p.r.done }

// Wait waits for the outcome; see [Broker.Append] for what it means when ctx
// or the append's time ends first.
func (p *Pending) Wait(ctx context.Context) (Appended, error) {
	select {
	case <-p.r.done:
		return p.outcome()
	default:
	}
	timer := time.NewTimer(p.b.opts.AppendTimeout - time.Since(p.began))
	defer timer.Stop()
	select {
	case <-p.r.done:
		return p.outcome()
	case <-timer.C:
		return Appended{}, p.late()
	case <-ctx.Done():
		return Appended{}, canceled(ctx, p.giveUp())
	}
}

func (p *Pending) outcome() (Appended, error) {
	a := p.r.result
	a.Replayed = a.Replayed || p.joined && p.r.err == nil
	return a, p.r.err
}

func (p *Pending) late() error {
	e := &Error{
		Code:       CodeStoreUnavailable,
		Detail:     fmt.Sprintf("the store did not take the commit within %v", p.b.opts.AppendTimeout),
		Hint:       "try again; the broker goes on by itself when the store is back",
		Outcome:    p.giveUp(),
		RetryAfter: time.Second,
		Err:        p.b.lastStoreError(),
	}
	if e.Outcome == Unknown && p.r.key == nil {
		e.Hint = "the records may be in the log or still get there: read the end of the partition before you append them again"
	}
	return e
}

// resultOf returns where a committed request's records stand.
func resultOf(r *request) Appended {
	a := Appended{Topic: r.topic, Count: r.count, Ranges: make([]Range, 0, len(r.parts))}
	for _, p := range r.parts {
		a.Ranges = append(a.Ranges, Range{
			Partition: p.batch.key.partition,
			Offset:    Offset(p.batch.row.Base + int64(p.first)),
			Count:     p.count,
		})
	}
	slices.SortFunc(a.Ranges, func(x, y Range) int {
		if x.Partition != y.Partition {
			return int(x.Partition - y.Partition)
		}
		return int(x.Offset - y.Offset)
	})
	a.Ranges = mergeRanges(a.Ranges)
	return a
}

// mergeRanges joins neighbours that touch.
func mergeRanges(rs []Range) []Range {
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && out[n-1].Partition == r.Partition && out[n-1].Offset+Offset(out[n-1].Count) == r.Offset {
			out[n-1].Count += r.Count
			continue
		}
		out = append(out, r)
	}
	return out
}
