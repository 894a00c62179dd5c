package seb

import (
	"cmp"
	"context"
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
)

// Message is a record that a worker has received.
type Message struct {
	Record
	// Token identifies this delivery for [Queue.Ack], [Queue.Nack] and [Queue.Extend].
	Token string
	// Attempt counts the deliveries of the record since it was redriven, this one included.
	Attempt int
	// LeasedUntil is when the record may go to another worker, unless this one answers or
	// extends its lease before. It is by the owner's clock: a worker on another machine should
	// rely on the length of its lease.
	LeasedUntil time.Time
}

// ReceiveOptions are the options of [Queue.Receive].
type ReceiveOptions struct {
	// Max is the maximum number of records; 0 means 1. Up to 1,000.
	Max int
	// Wait is how long to wait for the first record.
	Wait time.Duration
	// Lease is how long the worker has for the records; 0 means the queue's lease.
	Lease time.Duration
	// MaxBytes bounds keys, values and headers together; 0 means 1 MiB. The first record is
	// returned whatever its size.
	MaxBytes int64
	// Reserve, if set, is called before Receive takes records. If it takes none, it calls
	// release, so that a waiting receiver holds no memory. An error of Reserve ends Receive.
	Reserve func(context.Context) (release func(), err error)
	// InFlight, if set, bounds how many messages of this and earlier calls the worker has:
	// Receive waits until there is room in it.
	InFlight *InFlight

	// admit, if set, is called before Reserve. It returns how many of most records may be
	// taken. If none are taken, release is called.
	admit func(ctx context.Context, most int) (n int, release func(), err error)
}

const (
	receiveMax   = 1000
	receiveBytes = 1 << 20
	// ReceiveWaitMax is the longest that a [Queue.Receive] waits.
	ReceiveWaitMax = time.Hour
	// openingMax is how long a receiver waits, past its deadline, for records that the
	// dispatch limit is about to let out.
	openingMax = 5 * time.Second
)

func (o *ReceiveOptions) check() error {
	def(&o.Max, 1)
	def(&o.MaxBytes, receiveBytes)
	switch {
	case o.MaxBytes < 0:
		return refused(CodeInvalidRequest, "%d bytes; it must be 1 or more", o.MaxBytes)
	case o.Max < 1 || o.Max > receiveMax:
		return limited(CodeInvalidRequest, receiveMax, "%d records; it must be 1 to %d", o.Max, receiveMax)
	case o.Wait < 0 || o.Wait > ReceiveWaitMax:
		return refused(CodeInvalidRequest, "wait is %v; it must be 0s to %v", o.Wait, ReceiveWaitMax)
	}
	return checkLease(o.Lease)
}

func checkLease(lease time.Duration) error {
	if lease != 0 && lease < queueLeaseMin || lease > queueLeaseMax {
		return refused(CodeInvalidRequest, "lease is %v; it must be 1s to 12h", lease)
	}
	return nil
}

// Receive leases records to the caller. It returns no records and no error if none came within
// opts.Wait. The records share memory with the broker's cache: the caller must not change it.
//
// One broker at a time owns a queue and hands out its records. If another broker owns it,
// Receive fails with CodeQueueElsewhere, and [Error.Address] is that broker's address.
func (q *Queue) Receive(ctx context.Context, opts ReceiveOptions) (_ []Message, err error) {
	defer reads(&err)
	if err := cmp.Or(opts.check(), q.check(), q.b.current(ctx)); err != nil {
		return nil, err
	}
	r := &receiver{q: q, opts: opts, deadline: time.Now().Add(opts.Wait)}
	defer r.leave()
	for {
		d, err := q.dispatcher(ctx, opts.Max)
		if err != nil {
			return nil, err
		}
		got, err := r.at(ctx, d)
		if err != nil || len(got) > 0 || r.over {
			return got, err
		}
	}
}

// receiver is one call of Receive.
type receiver struct {
	q        *Queue
	opts     ReceiveOptions
	deadline time.Time
	leaves   func() // ends its wait at the tail; nil before it waits
	over     bool   // its deadline has passed
}

func (r *receiver) leave() {
	if r.leaves != nil {
		r.leaves()
	}
}

// at receives from a dispatcher. It returns nothing if that has ended, or the deadline has
// passed. While the log can't be read it takes nothing: another broker may own the queue by now.
func (r *receiver) at(ctx context.Context, d *dispatch.Dispatcher) ([]Message, error) {
	if err := r.q.b.engine.SyncToAct(ctx); err != nil {
		return nil, err
	}
	for {
		got, turn, err := r.take(ctx, d)
		if err != nil || len(got) > 0 || turn == nil {
			return got, err
		}
		if err := r.wait(ctx, d, turn); err != nil || r.over {
			d.GiveTurn(turn)
			if r.leaves != nil {
				d.Wake() // this receiver may have been the one to wait for what comes due next
			}
			return nil, err
		}
		if err := r.q.b.engine.SyncToAct(ctx); err != nil { // the last sync is from before the wait: stale now
			d.Wake()
			return nil, err
		}
	}
}

// take takes records that may be handed out now. If there are none, it returns a channel that
// is closed when it is the receiver's turn to try again; nil if the dispatcher has ended.
func (r *receiver) take(ctx context.Context, d *dispatch.Dispatcher) (got []Message, turn chan struct{}, _ error) {
	most := r.opts.Max
	if r.opts.admit != nil {
		n, release, err := r.opts.admit(ctx, most)
		if err != nil {
			d.Wake() // it may have been this receiver's turn
			return nil, nil, err
		}
		most = n
		defer func() {
			if len(got) == 0 {
				release()
			}
		}()
	}
	if r.opts.Reserve != nil {
		release, err := r.opts.Reserve(ctx)
		if err != nil {
			d.Wake() // as above
			return nil, nil, err
		}
		defer func() {
			if len(got) == 0 {
				release()
			}
		}()
	}
	return r.takeNow(ctx, d, most)
}

// takeNow takes up to most records; admit and Reserve have been called.
func (r *receiver) takeNow(ctx context.Context, d *dispatch.Dispatcher, most int) (_ []Message, turn chan struct{}, _ error) {
	for {
		got := d.Take(time.Now(), dispatch.Want{Max: r.opts.Max, Lease: r.opts.Lease, InFlight: r.opts.InFlight.inner(), Admitted: most})
		switch {
		case got.Need != nil:
			if err := d.Load(ctx, *got.Need); err != nil && !deleted(err) {
				d.Wake()
				return nil, nil, readError(ctx, err)
			}
		case len(got.Out) > 0:
			messages, err := r.read(ctx, d, got)
			if err != nil || len(messages) > 0 {
				return messages, nil, readError(ctx, err)
			}
		default:
			return nil, got.Turn, nil
		}
	}
}

// wait waits until it is the receiver's turn, or something comes due. If the dispatch limit
// alone keeps records back, it waits for them up to openingMax past its deadline.
func (r *receiver) wait(ctx context.Context, d *dispatch.Dispatcher, turn chan struct{}) error {
	now, deadline := time.Now(), r.deadline
	var opened <-chan struct{}
	if !now.Before(deadline) {
		opened, deadline = d.Opening(), deadline.Add(openingMax)
		if opened == nil && now.Before(deadline) && isClosed(turn) {
			return nil // the limit has moved since this receiver found nothing
		}
		if opened == nil || !now.Before(deadline) {
			r.over = true
			return nil
		}
	}
	if r.leaves == nil {
		r.leaves = r.q.b.engine.Follow()
	}
	until := deadline
	if at, ok := d.NextDue(turn, r.opts.InFlight.inner()); ok && at.Before(until) {
		until = at
	}
	timer := time.NewTimer(until.Sub(now))
	defer timer.Stop()
	select {
	case <-turn:
		// Receivers that give up pass their turn on: that does not extend the deadline.
		r.over = opened != nil && !time.Now().Before(deadline)
	case <-opened:
		d.GiveTurn(turn)
	case <-timer.C:
		if r.over = opened != nil && !time.Now().Before(deadline); !r.over {
			d.GiveTurn(turn)
		}
	case <-d.Gone():
	case <-ctx.Done():
		return ctx.Err()
	case <-r.q.b.engine.Done():
		return r.q.b.engine.Usable()
	}
	return nil
}

// read reads the records of deliveries. It returns to the dispatcher those that it can't read
// now, or not while half of the lease is left: they are no attempt. Records that are lost stay
// leased until their lease ends.
func (r *receiver) read(ctx context.Context, d *dispatch.Dispatcher, got dispatch.Taken) ([]Message, error) {
	messages := make([]Message, 0, len(got.Out))
	left, enough := r.opts.MaxBytes, time.Until(got.Until)/2
	for i, x := range got.Out {
		rs, at, err := d.Record(ctx, x)
		if deleted(err) {
			continue
		}
		var record Record
		if err == nil {
			record = rs.(records)[at]
		}
		full := left < record.bytes() || time.Until(got.Until) < enough
		if left -= record.bytes(); err != nil || full && len(messages) > 0 {
			again := got.Out[i:]
			if CodeOf(err) == CodeDataLost {
				again = again[1:] // its lease runs out, so that its delivery counts as failed
			}
			d.Return(again...)
			if len(messages) == 0 {
				return nil, err
			}
			break // if the error lasts, the next call returns it
		}
		token := dispatch.Token{Cluster: r.q.b.clusterTag(), Queue: d.Queue(), Delivery: x}
		messages = append(messages, Message{Record: record, Token: token.String(), Attempt: d.Attempt(x), LeasedUntil: got.Until.UTC()})
	}
	d.Handed(len(messages))
	return messages, nil
}

// readError returns the error of reading records: that of a canceled caller if ctx ended first.
func readError(ctx context.Context, err error) error {
	if err != nil && CodeOf(err) == "" && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// deleted tells whether a record can't be read because it, or its topic, was deleted. If it was
// the topic, the dispatcher ends, and receivers get an error from there.
func deleted(err error) bool {
	code := CodeOf(err)
	return code == CodeOffsetOutOfRange || code == CodeTopicNotFound || code == CodeTopicRecreated
}

// isClosed tells whether a channel that carries no values is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
