package seb

import (
	"cmp"
	"context"
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
)

// Message is a record that is handed to a worker.
type Message struct {
	Record
	// Token names this delivery: show it to [Queue.Ack], [Queue.Nack] and [Queue.Extend].
	Token string
	// Attempt counts the deliveries of the record since it was redriven, this one included.
	Attempt int
	// LeasedUntil is when the record goes to another worker unless it is done, put back or
	// extended by then, by the clock of the broker that hands it out. A worker on another
	// machine goes by the length of its lease.
	LeasedUntil time.Time
}

// ReceiveOptions say what a worker wants.
type ReceiveOptions struct {
	// Max is the number of records at most; 0 means 1. Up to 1,000.
	Max int
	// Wait is how long to wait for the first one.
	Wait time.Duration
	// Lease is how long the worker has for them; 0 means as the queue has it.
	Lease time.Duration
	// MaxBytes is a bound of keys, values and headers together; 0 means 1 MiB. It is soft:
	// one record is returned whatever its size.
	MaxBytes int64
	// Reserve, if there is one, is called before records are taken, and what it returned
	// if none were: so a waiting receiver holds no memory. Its error ends Receive.
	Reserve func(context.Context) (release func(), err error)
	// InFlight, if there is one, bounds what the worker has of this and earlier calls that
	// is neither answered nor out of its lease: Receive waits until there is room in it.
	InFlight *InFlight

	// admit, if there is one, is called before Reserve. It returns how many of most records
	// may be taken, and what is called if none were.
	admit func(ctx context.Context, most int) (n int, release func(), err error)
}

const (
	receiveMax   = 1000
	receiveBytes = 1 << 20
	// ReceiveWaitMax is the longest that a [Queue.Receive] waits.
	ReceiveWaitMax = time.Hour
	// openingMax is how long a receiver waits, past its time, for records that are there and
	// about to be handed out.
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

// Receive hands records to the caller, each leased for a time: none, and no error, if
// opts.Wait has passed without one. What they point to is shared with the broker's cache:
// it must not be changed.
//
// One broker at a time hands out the records of a queue. If that is another one, Receive
// fails with CodeQueueElsewhere, and [Error.Address] tells where it is.
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
	leaves   func() // the tail, which it waits at; nil before it does
	over     bool   // its time has passed
}

func (r *receiver) leave() {
	if r.leaves != nil {
		r.leaves()
	}
}

// at receives from a dispatcher; nothing if that has ended, or the time has passed. Where the log
// can't be read nothing is handed out: another broker may own the queue by now.
func (r *receiver) at(ctx context.Context, d *dispatch.Dispatcher) ([]Message, error) {
	if err := r.q.b.syncedState(ctx); err != nil {
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
				d.Wake() // it may be the one that was told what comes due next
			}
			return nil, err
		}
		if err := r.q.b.syncedState(ctx); err != nil { // the last sync is from before the wait: stale now
			d.Wake()
			return nil, err
		}
	}
}

// take takes what is there. If that is nothing, it returns what will be closed when it is
// the receiver's turn to look again; nil if the dispatcher has ended.
func (r *receiver) take(ctx context.Context, d *dispatch.Dispatcher) (got []Message, turn chan struct{}, _ error) {
	most := r.opts.Max
	if r.opts.admit != nil {
		n, release, err := r.opts.admit(ctx, most)
		if err != nil {
			d.Wake() // it may have been this one's turn
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

// takeNow takes what is there, at most so many records.
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

// wait waits until it is the receiver's turn, or something comes due. Records that wait for
// nothing but the log are there: for a short time it waits for them, also past its own.
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
		r.leaves = r.q.b.tail.wait()
	}
	until := deadline
	if at, ok := d.NextDue(turn, r.opts.InFlight.inner()); ok && at.Before(until) {
		until = at
	}
	timer := time.NewTimer(until.Sub(now))
	defer timer.Stop()
	select {
	case <-turn:
		// Others that give up pass their turn on: that is no reason to go on when the time is over.
		r.over = opened != nil && !time.Now().Before(deadline)
	case <-opened:
		d.GiveTurn(turn)
	case <-timer.C:
		if r.over = opened != nil && !time.Now().Before(deadline); !r.over {
			d.GiveTurn(turn)
		}
	case <-d.Gone():
	case <-ctx.Done():
		return canceled(ctx)
	case <-r.q.b.loopDone:
		return r.q.b.usable()
	}
	return nil
}

// read reads the records of deliveries. Those that can't be read now, or not while half of
// the lease is left, are not handed out, and are no attempt; those that never can be run out
// of their lease.
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
				again = again[1:] // a lost record is left to its lease, so that its delivery fails as others do
			}
			d.Return(again...)
			if len(messages) == 0 {
				return nil, err
			}
			break // the error, if it lasts, meets the next call
		}
		token := deliveryToken{cluster: r.q.b.clusterTag(), queue: d.Queue(), partition: x.Partition, offset: x.Offset, number: x.Attempt}
		messages = append(messages, Message{Record: record, Token: token.String(), Attempt: d.Attempt(x), LeasedUntil: got.Until.UTC()})
	}
	d.Handed(len(messages))
	return messages, nil
}

// readError returns the error of a dispatcher that read records: its own if ctx ended first.
func readError(ctx context.Context, err error) error {
	if err != nil && CodeOf(err) == "" && ctx.Err() != nil {
		return canceled(ctx)
	}
	return err
}

// deleted tells whether a record can't be read since it, or its topic, was deleted meanwhile.
// Of a topic the dispatcher learns as well, and whoever asks there then is told.
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
