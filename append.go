package seb

import (
	"context"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/option"
)

// Range is a sequence of records: Count records of Partition, from Offset on.
type Range struct {
	Partition int32
	Offset    Offset
	Count     int
}

// Appended is the result of an append: the offsets of its records.
type Appended struct {
	Topic string
	Count int
	// Ranges are sorted by partition, then by offset. A partition has several ranges only if
	// the append did not fit into one batch, and records of other appends are between these batches.
	Ranges []Range
	// Replayed is true if nothing was appended, because the log has an earlier append with
	// the same idempotency key. Then Ranges are those of the earlier append.
	Replayed bool
}

// AppendOption is an option of an append.
type AppendOption func(*option.Append)

type appendOptions struct{ option.Append }

func newAppendOptions(opts []AppendOption) appendOptions {
	return appendOptions{option.OfAppend(opts)}
}

// ToPartition sends all records of an append to partition p.
func ToPartition(p int32) AppendOption {
	return func(o *option.Append) { o.Partition = p }
}

// ToPartitions sends each record to the partition at the record's index in ps. For a record with -1
// in ps, the partition is chosen as if the option were not given. len(ps) must be the number of
// records. The caller may change ps once Append, AppendAsync, Commit or CommitAsync has returned.
func ToPartitions(ps []int32) AppendOption {
	return func(o *option.Append) { o.Partitions = ps }
}

// IfOffset appends only if the next offset of the partition is end. Otherwise the append fails with
// CodeOffsetConflict, and [Error.End] is the actual next offset. All records of the append must go
// to one partition. If the topic has several partitions, an option or the records' keys must choose
// the partition. A negative end is refused.
func IfOffset(end Offset) AppendOption {
	return func(o *option.Append) { o.IfOffset, o.Conditional = end, true }
}

// Delay makes queues wait for d after the commit before they hand out the records.
// Readers of the topic see the records at once. d must be 0 to 366 days.
func Delay(d time.Duration) AppendOption {
	return func(o *option.Append) { o.Delay = d }
}

// DeliverAt makes queues wait until t, by the store's clock, before they hand out the records.
// If t has passed, the queues do not wait. t must be at most 366 days ahead.
func DeliverAt(t time.Time) AppendOption {
	return func(o *option.Append) { o.Due = t }
}

// Append appends records to topic: all of them in one commit, or none. It returns the records'
// offsets once the store has the commit. A record goes to the partition that an option names. If no
// option names a partition, the record's key chooses it. Records without a key go to the partitions
// in turn: all such records of one append go to the same partition, those of the next append to the
// next partition.
//
// An append without records is refused. The caller may reuse the records, and the memory that
// they point to, when Append has returned.
//
// The [Outcome] of an error tells whether the records may be in the log. If ctx ends or
// [Options.AppendTimeout] passes before the records are part of a commit, the broker withdraws
// them, and the outcome is [NotCommitted]. If the records are already part of a commit that is
// under way, the outcome is [Unknown].
func (b *Broker) Append(ctx context.Context, topic string, records []Record, opts ...AppendOption) (_ Appended, err error) {
	defer writes(&err)
	ticket, err := b.appendAsync(ctx, topic, records, newAppendOptions(opts))
	if err != nil {
		return Appended{}, err
	}
	return appended(ctx, topic, ticket)
}

// Pending is an append whose outcome is not known yet.
type Pending struct {
	ticket *engine.Ticket
	topic  string
}

// AppendAsync is [Broker.Append] without the wait for the commit of the records. It may still wait for a sync, for
// the commit that creates a missing topic, and, for up to 5 s, for room in the memory budget. It copies the records,
// so the caller may reuse them when AppendAsync has returned. If one goroutine calls AppendAsync several times, the
// appends are committed in the order of the calls.
func (b *Broker) AppendAsync(ctx context.Context, topic string, records []Record, opts ...AppendOption) (_ *Pending, err error) {
	defer writes(&err)
	ticket, err := b.appendAsync(ctx, topic, records, newAppendOptions(opts))
	if err != nil {
		return nil, err
	}
	return &Pending{ticket, topic}, nil
}

func (b *Broker) appendAsync(ctx context.Context, topic string, rs []Record, o appendOptions) (*engine.Ticket, error) {
	r, ctx := newRequest(ctx)
	if err := b.engine.Usable(); err != nil {
		return nil, err
	}
	a, err := b.newAppend(topic, rs, o)
	if err != nil {
		return nil, err
	}
	if err := b.opts.checkSize(a); err != nil {
		return nil, err
	}
	if err := b.route(ctx, a, rs, o); err != nil {
		return nil, err
	}
	r.Appends = []*engine.Append{a}
	b.engine.Begin(ctx, r)
	if o.Keyed {
		r.Key = newIdempotencyKey(a.ID, rs, o)
		if b.engine.Replay(r, b.engine.Now()) {
			err := b.engine.Sync(ctx)
			if err == nil && !hasTopic(b.engine, a.ID) {
				return b.appendAsync(ctx, topic, rs, o) // the topic was deleted: append to a new topic of that name
			}
			return b.engine.Confirm(r, err), nil
		}
	}
	if err := b.checkConditions(ctx, r, func(int) bool { return o.inTurn(rs) }); err != nil {
		return nil, err
	}
	return b.engine.Submit(ctx, r)
}

// newRequest returns a request on behalf of the caller in ctx, and a context that says when the request
// came: at the time that [WithArrival] has put into ctx, or now if there is no such time.
func newRequest(ctx context.Context) (*engine.Request, context.Context) {
	r := &engine.Request{Callers: callersOf(ctx)}
	return r, r.Arriving(ctx)
}

// Done returns a channel that is closed when the outcome is known.
func (p *Pending) Done() <-chan struct{} { return p.ticket.Done() }

// Wait waits for the outcome. [Broker.Append] says what happens when ctx ends or
// [Options.AppendTimeout] passes first.
func (p *Pending) Wait(ctx context.Context) (_ Appended, err error) {
	defer writes(&err)
	return appended(ctx, p.topic, p.ticket)
}

// appended waits for an append, and returns its result.
func appended(ctx context.Context, topic string, t *engine.Ticket) (Appended, error) {
	if err := t.Wait(ctx); err != nil {
		return Appended{}, err
	}
	a := appendedTo(topic, t.Ranges(0))
	a.Replayed = t.Replayed()
	return a, nil
}

// appendedTo returns the result of an append whose records are in these ranges.
func appendedTo(topic string, ranges []engine.Range) Appended {
	a := Appended{Topic: topic, Ranges: make([]Range, len(ranges))}
	for i, r := range ranges {
		a.Ranges[i] = Range{Partition: int32(r.Partition), Offset: r.Offset, Count: r.Count}
		a.Count += r.Count
	}
	return a
}
