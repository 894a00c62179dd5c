package seb

import (
	"cmp"
	"context"
	"time"

	"github.com/simple-event-broker/seb/internal/leases"
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
		return refused(CodeInvalidRequest, "a wait of %v; it must be 0s to %v", o.Wait, ReceiveWaitMax)
	}
	return checkLease(o.Lease)
}

func checkLease(lease time.Duration) error {
	if lease != 0 && lease < queueLeaseMin || lease > queueLeaseMax {
		return refused(CodeInvalidRequest, "a lease of %v; it must be 1s to 12h", lease)
	}
	return nil
}

// Receive hands records to the caller, each leased for a time: none, and no error, if
// opts.Wait has passed without one. What they point to is shared with the broker's cache:
// it must not be changed.
//
// One broker at a time hands out the records of a queue. If that is another one, Receive
// fails with CodeQueueElsewhere, and [Error.Address] tells where it is.
func (q *Queue) Receive(ctx context.Context, opts ReceiveOptions) ([]Message, error) {
	if err := cmp.Or(opts.check(), q.check(), q.b.current(ctx)); err != nil {
		return nil, asRead(err)
	}
	r := &receiver{q: q, opts: opts, deadline: time.Now().Add(opts.Wait)}
	defer r.leave()
	for {
		d, err := q.desk(ctx, opts.Max)
		if err != nil {
			return nil, asRead(err)
		}
		got, err := r.at(ctx, d)
		if err != nil || len(got) > 0 || r.over {
			return got, asRead(err)
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

// at receives at a desk; nothing if that has closed, or the time has passed. Where the log
// can't be read nothing is handed out: another broker may own the queue by now.
func (r *receiver) at(ctx context.Context, d *desk) ([]Message, error) {
	if err := r.q.b.confirmed(ctx); err != nil {
		return nil, err
	}
	for {
		got, turn, err := r.take(ctx, d)
		if err != nil || len(got) > 0 || turn == nil {
			return got, err
		}
		if err := r.wait(ctx, d, turn); err != nil || r.over {
			d.giveTurn(turn)
			if r.leaves != nil {
				d.wake() // it may be the one that was told what comes due next
			}
			return nil, err
		}
		if err := r.q.b.confirmed(ctx); err != nil { // the last sync is from before the wait: stale now
			d.wake()
			return nil, err
		}
	}
}

// take takes what is there. If that is nothing, it returns what will be closed when it is
// the receiver's turn to look again; nil if the desk is closed.
func (r *receiver) take(ctx context.Context, d *desk) (got []Message, turn chan struct{}, _ error) {
	most := r.opts.Max
	if r.opts.admit != nil {
		n, release, err := r.opts.admit(ctx, most)
		if err != nil {
			d.wake() // it may have been this one's turn
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
			d.wake() // as above
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
func (r *receiver) takeNow(ctx context.Context, d *desk, most int) (_ []Message, turn chan struct{}, _ error) {
	for {
		got, until, turn, need := d.take(time.Now(), r.opts, most)
		switch {
		case need != nil:
			_, err := d.load(ctx, *need)
			if err != nil && !deleted(err) {
				d.wake()
				return nil, nil, err
			}
		case len(got) > 0:
			messages, err := d.hand(ctx, got, until, r.opts)
			if err != nil || len(messages) > 0 {
				return messages, nil, err
			}
		default:
			return nil, turn, nil
		}
	}
}

// wait waits until it is the receiver's turn, or something comes due. Records that wait for
// nothing but the log are there: for a short time it waits for them, also past its own.
func (r *receiver) wait(ctx context.Context, d *desk, turn chan struct{}) error {
	now, deadline := time.Now(), r.deadline
	var opened <-chan struct{}
	if !now.Before(deadline) {
		opened, deadline = d.opening(), deadline.Add(openingMax)
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
	if at, ok := d.nextDue(turn, r.opts.InFlight); ok && at.Before(until) {
		until = at
	}
	timer := time.NewTimer(until.Sub(now))
	defer timer.Stop()
	select {
	case <-turn:
		// Others that give up pass their turn on: that is no reason to go on when the time is over.
		r.over = opened != nil && !time.Now().Before(deadline)
	case <-opened:
		d.giveTurn(turn)
	case <-timer.C:
		if r.over = opened != nil && !time.Now().Before(deadline); !r.over {
			d.giveTurn(turn)
		}
	case <-d.gone:
	case <-ctx.Done():
		return canceled(ctx, "")
	case <-r.q.b.loopDone:
		return r.q.b.usable()
	}
	return nil
}

// take leases what is there, at most so many records. If that is nothing, it puts the caller
// in line; turn is nil if the desk is closed. With need, the caller has to load that first.
func (d *desk) take(now time.Time, opts ReceiveOptions, admitted int) (out []leases.Delivery, until time.Time, turn chan struct{}, need *leases.Place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, until, nil, nil
	}
	lack := 0
	defer func() { d.followLocked(now, lack) }()
	most, holder, full := opts.InFlight.roomLocked(d, now, opts.Max)
	if full != nil {
		d.wakeLocked() // it may have been this one's turn
		return nil, until, full, nil
	}
	if !d.config.Paused {
		if need = d.walkLocked(now, most); need != nil {
			return nil, until, nil, need
		}
		until = now.Add(opts.lease(d.config))
		most, wanted := min(most, admitted), most
		out = d.handLocked(now, until, most, wanted, holder)
		d.pace.add(now, len(out))
		lack = most - len(out)
		if len(out) > 0 {
			d.wakeLocked() // there may be more
			return out, until, nil, nil
		}
	}
	turn = make(chan struct{})
	d.waiting = append(d.waiting, inLine{turn, most})
	d.wanted += most
	return nil, until, turn, nil
}

// handLocked leases up to most records that may go out, and has the next attempts of others
// counted: of as many as the receiver wants, which may be more.
func (d *desk) handLocked(now, until time.Time, most, wanted int, holder *leases.Holder) (out []leases.Delivery) {
	for {
		got := d.table.Take(now, until, most-len(out), d.claimsLocked(wanted), holder)
		out = append(out, got.Out...)
		if parked := d.claimLocked(got.Claims); parked == 0 {
			return out
		}
	}
}

// claimsLocked returns how many attempts more may be counted, so that receivers who wait and
// one who wants that many get all they want. Each is lost if the owner is before it has
// handed it out.
func (d *desk) claimsLocked(most int) int {
	return max(0, d.wanted+most-d.claiming-d.table.Ready())
}

func (o ReceiveOptions) lease(c QueueConfig) time.Duration {
	return cmp.Or(o.Lease, c.Lease)
}

// giveTurn takes a receiver out of the line that won't look again, and gives its turn to
// the next if it has come.
func (d *desk) giveTurn(turn chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, w := range d.waiting {
		if w.turn == turn {
			d.wanted -= w.most
			d.waiting = append(d.waiting[:i:i], d.waiting[i+1:]...)
			return
		}
	}
	d.wakeLocked()
}

// nextDue returns when the receiver that waits for that turn must wake although nothing was
// committed: something can be handed out, or the owner has to show itself in the log.
func (d *desk) nextDue(turn chan struct{}, inFlight *InFlight) (at time.Time, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	earlier := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	now := time.Now()
	if now.Before(d.contested) && d.moved == nil {
		earlier(d.shown.Add(ownerShows))
	}
	if inFlight.fullLocked(turn) {
		if end, some := d.table.NextEnd(); some { // of whomever: it is the table that notices
			earlier(end)
		}
		return at, ok
	}
	if d.config.Paused {
		return at, ok
	}
	if next, some := d.table.Next(); some && (next.After(now) || d.claimsLocked(0) > 0) {
		earlier(next)
	} // else its turn comes when a claim is settled
	if d.holds && d.held.After(now) {
		earlier(d.held)
	}
	if len(d.delayed) > 0 && d.roomLocked() {
		earlier(d.delayed[0].due)
	}
	return at, ok
}

// hand reads the records of deliveries. Those that can't be read now, or not while half of
// the lease is left, are not handed out, and are no attempt; those that never can be run out
// of their lease.
func (d *desk) hand(ctx context.Context, out []leases.Delivery, until time.Time, opts ReceiveOptions) ([]Message, error) {
	messages := make([]Message, 0, len(out))
	left, enough := opts.MaxBytes, time.Until(until)/2
	for i, x := range out {
		record, err := d.record(ctx, x)
		if deleted(err) {
			continue
		}
		full := left < record.bytes() || time.Until(until) < enough
		if left -= record.bytes(); err != nil || full && len(messages) > 0 {
			d.putBack(out[i:], err)
			if len(messages) == 0 {
				return nil, err
			}
			break // the error, if it lasts, meets the next call
		}
		messages = append(messages, Message{Record: record, Token: d.receipt(x).String(), Attempt: d.tries(x), LeasedUntil: until.UTC()})
	}
	d.handed(len(messages))
	return messages, nil
}

// deleted tells whether a record can't be read since it, or its topic, was deleted meanwhile.
// Of a topic the desk learns as well, and whoever asks there then is told.
func deleted(err error) bool {
	code := CodeOf(err)
	return code == CodeOffsetOutOfRange || code == CodeTopicNotFound || code == CodeTopicRecreated
}

// handed counts records that receivers get.
func (d *desk) handed(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.received.add(time.Now(), int64(n))
}

// putBack has deliveries handed out that could not be read, when that is better. Those of
// records that are lost are left to their leases, so that they end as others that fail do.
func (d *desk) putBack(out []leases.Delivery, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, x := range out {
		if i > 0 || CodeOf(err) != CodeDataLost {
			d.table.Return(x)
		}
	}
	d.wakeLocked()
}

func (d *desk) receipt(x leases.Delivery) receipt {
	return receipt{cluster: d.b.clusterTag(), queue: d.queue, partition: x.Partition, offset: x.Offset, number: x.Number}
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
