package seb

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
)

const requestOverheadBytes = 256 // what a waiting append costs beside its records

// Range is Count records from Offset on in Partition.
type Range struct {
	Partition int32
	Offset    Offset
	Count     int
}

// Appended is the result of an append: the offsets of its records.
type Appended struct {
	Topic string
	Count int
	// Ranges ascend by partition, then by offset. A partition appears once, unless
	// the append is too large for one batch: then its records may not be adjacent.
	Ranges []Range
	// Replayed tells that nothing was appended: this is the answer to an earlier append
	// with the same idempotency key.
	Replayed bool
}

// AppendOption is an option of an append.
type AppendOption func(*appendOptions)

type appendOptions struct {
	partitions  []int32
	partition   int32 // -1: by key
	ifOffset    int64 // -1: whatever it is
	conditional bool  // ifOffset was given, also such as no partition has
	key         string
	keyed       bool
	delay       time.Duration // until queues hand the records out
	due         time.Time     // the same as a time; zero if it is not given so
}

func newAppendOptions(opts []AppendOption) appendOptions {
	o := appendOptions{partition: -1, ifOffset: -1}
	for _, opt := range opts {
		opt(&o)
	}
	return o
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

// IfOffset appends only if the next offset of the partition is end. Otherwise the append
// fails with CodeOffsetConflict, and [Error.End] is the actual next offset. All records of
// the append must go to one partition, chosen by an option or by their keys. A negative
// end is refused.
func IfOffset(end Offset) AppendOption {
	return func(o *appendOptions) { o.ifOffset, o.conditional = int64(end), true }
}

// Delay makes queues wait for d after the commit before they hand out the records.
// Readers of the topic see them at once. d is at most 366 days.
func Delay(d time.Duration) AppendOption {
	return func(o *appendOptions) { o.delay = d }
}

// DeliverAt is [Delay] until a time by the store's clock. After that time, queues hand out
// the records at once.
func DeliverAt(t time.Time) AppendOption {
	return func(o *appendOptions) { o.due = t }
}

// Append appends records to topic, all in one commit, or none. It returns their offsets
// once the store has them. A record goes to the partition that an option names, else to
// the one that its key chooses. Records without a key go, all of an append together, to
// the next partition in turn.
//
// The caller may reuse the records and what they point to when Append has returned.
//
// An append without records is refused.
//
// The [Outcome] of an error tells whether the records may be in the log. If ctx ends,
// or [Options.AppendTimeout] passes, before the records are part of a commit, the broker
// withdraws them and the outcome is [NotCommitted]; later it is [Unknown].
func (b *Broker) Append(ctx context.Context, topic string, records []Record, opts ...AppendOption) (_ Appended, err error) {
	defer writes(&err)
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

	once sync.Once
	left Outcome // once it has given up: Unknown, or "" if nothing is committed
}

// pending returns what one caller of r waits for. It may give up once.
func (b *Broker) pending(r *request, began time.Time) *Pending {
	return &Pending{b: b, r: r, began: began}
}

func (p *Pending) giveUp() Outcome {
	p.once.Do(func() {
		if !p.b.batcher.withdraw(p.r) {
			p.left = Unknown
		}
	})
	return p.left
}

// AppendAsync is Append without the wait. It copies the records into the open
// batch, so the caller may reuse them when it has returned. It blocks while the
// broker is over its memory budget. Appends that one caller begins one after the
// other are committed in that order.
func (b *Broker) AppendAsync(ctx context.Context, topic string, records []Record, opts ...AppendOption) (_ *Pending, err error) {
	defer writes(&err)
	return b.appendAsync(ctx, topic, records, newAppendOptions(opts))
}

func (b *Broker) appendAsync(ctx context.Context, topic string, records []Record, o appendOptions) (*Pending, error) {
	if err := b.usable(); err != nil {
		return nil, err
	}
	a, err := b.newTopicAppend(topic, records, o)
	if err != nil {
		return nil, err
	}
	if err := b.checkSize(a); err != nil {
		return nil, err
	}
	if err := b.route(ctx, a, o); err != nil {
		return nil, err
	}
	r := b.newRequest(a)
	if o.keyed {
		r.key = newIdempotencyKey(a.id, records, o)
		if b.replay(r, b.logTimeNow()) {
			err := b.syncNow(ctx, false)
			if err == nil && !b.hasTopic(a.id) {
				return b.appendAsync(ctx, topic, records, o) // to the topic that has the name now
			}
			b.confirm(r, err)
			close(r.done)
			return b.pending(r, r.began), nil
		}
	}
	if err := b.checkConditions(ctx, r); err != nil {
		return nil, err
	}
	return b.send(ctx, r)
}

// newRequest returns a request of appends.
func (b *Broker) newRequest(appends ...*topicAppend) *request {
	r := &request{appends: appends, bytes: requestOverheadBytes + bytesOf(appends), came: b.logTimeNow()}
	b.comes(r)
	return r
}

// comes notes when a request came.
func (b *Broker) comes(r *request) {
	r.began, r.boot, r.wall, r.done = time.Now(), b.opts.boot(), b.opts.wall().UnixMilli(), make(chan struct{})
}

// send queues a request for its commit, unless it is settled already.
func (b *Broker) send(ctx context.Context, r *request) (*Pending, error) {
	if r.settled {
		close(r.done)
		return b.pending(r, r.began), nil
	}
	if ctx.Err() != nil {
		return nil, canceled(ctx) // before a commit could take it
	}
	if r.bytes > 0 {
		if err := b.budget.Take(ctx, budget.Batches, r.bytes); err != nil {
			return nil, memoryError(err)
		}
	}
	if c, ok := callerOf(ctx); ok {
		r.by = []caller{c}
	}
	first, err := b.batcher.join(r)
	if r.bytes > 0 && (err != nil || first != r) {
		b.budget.Give(budget.Batches, r.bytes)
	}
	if err != nil {
		return nil, err
	}
	p := b.pending(first, r.began)
	p.joined = first != r
	return p, nil
}

// join commits a request that no caller retries: appends, a change, or both.
func (b *Broker) join(ctx context.Context, r *request) error {
	p, err := b.joinAsync(ctx, r)
	if err != nil {
		return err
	}
	return p.wait(ctx)
}

// joinAsync is join without the wait.
func (b *Broker) joinAsync(ctx context.Context, r *request) (*Pending, error) {
	b.comes(r)
	if len(r.appends) > 0 {
		r.bytes = requestOverheadBytes + bytesOf(r.appends)
	}
	return b.send(ctx, r)
}

// Done is closed when the outcome is known.
func (p *Pending) Done() <-chan struct{} { return p.r.done }

// Wait waits for the outcome. [Broker.Append] says what happens when ctx or
// [Options.AppendTimeout] ends first.
func (p *Pending) Wait(ctx context.Context) (_ Appended, err error) {
	defer writes(&err)
	if err := p.wait(ctx); err != nil {
		return Appended{}, err
	}
	a := p.r.results[0]
	a.Replayed = p.replayed()
	return a, nil
}

// replayed tells whether the outcome is that of an earlier request.
func (p *Pending) replayed() bool { return p.r.replayed || p.joined }

func (p *Pending) wait(ctx context.Context) error {
	select {
	case <-p.r.done:
		return p.r.err
	default:
	}
	timer := time.NewTimer(p.b.opts.AppendTimeout - time.Since(p.began))
	defer timer.Stop()
	select {
	case <-p.r.done:
		return p.r.err
	case <-timer.C:
		return p.late()
	case <-ctx.Done():
		return canceled(ctx).with(p.giveUp())
	}
}

// settled is wait for a caller that needs a certain outcome: if it is unknown, settled waits
// until it is decided.
func (p *Pending) settled(ctx context.Context) error {
	err := p.wait(ctx)
	if unknown(err) {
		<-p.r.done // closed at the latest when the broker ends
		err = p.r.err
	}
	return err
}

func (p *Pending) late() error {
	e := &Error{
		Code:       CodeStoreUnavailable,
		Detail:     fmt.Sprintf("the store did not take the commit within %v", p.b.opts.AppendTimeout),
		Hint:       "try again; the broker recovers by itself when the store answers again",
		Outcome:    p.giveUp(),
		RetryAfter: time.Second,
		Err:        p.b.lastStoreError(),
	}
	switch {
	case e.Outcome != Unknown || p.r.key != nil:
	case p.r.change != nil:
		e.Hint = "the change may be in the log or still get there: check whether it is before you send it again"
	default:
		e.Hint = "the records may be in the log or still get there: read the end of the partition before you append them again"
	}
	return e
}

func resultsOf(r *request) []Appended {
	results := make([]Appended, len(r.appends))
	for i, a := range r.appends {
		results[i] = resultOf(a)
	}
	return results
}

// resultOf returns the offsets of a committed append's records.
func resultOf(x *topicAppend) Appended {
	a := Appended{Topic: x.topic, Count: x.count, Ranges: make([]Range, 0, len(x.parts))}
	for _, p := range x.parts {
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
