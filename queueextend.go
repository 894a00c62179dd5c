package seb

import (
	"cmp"
	"context"
	"time"

	"github.com/simple-event-broker/seb/internal/leases"
)

// Extend moves the end of leases to that long from now; 0 means as the queue has it. The
// worker that is not done in time says so before its lease ends. Only the queue's owner can
// do it: else it fails as [Queue.Receive] does. It is lost with that owner: the next one
// gives every worker the queue's own lease.
func (q *Queue) Extend(ctx context.Context, lease time.Duration, tokens ...string) (until time.Time, _ error) {
	if err := cmp.Or(q.check(), checkTokens(tokens), checkLease(lease), q.b.current(ctx)); err != nil {
		return time.Time{}, asRead(err)
	}
	answers, err := q.parse(tokens)
	if err != nil {
		return time.Time{}, asRead(err)
	}
	if _, err := q.desk(ctx, 0); err != nil {
		return time.Time{}, asRead(err)
	}
	if err := q.lookUnlessLast(ctx, answers); err != nil {
		return time.Time{}, asRead(err)
	}
	if err := q.b.confirmed(ctx); err != nil { // nobody is told to have for long what may be another's soon
		return time.Time{}, asRead(err)
	}
	for {
		d, err := q.desk(ctx, 0) // which may be another one since it looked, or another broker's
		if err != nil {
			return time.Time{}, asRead(err)
		}
		if until, errs := d.extend(answers, lease); errs != nil {
			return until.UTC(), tokensError(errs)
		}
	}
}

// extend returns what became of each lease; nothing if the desk is closed.
func (d *desk) extend(answers []*answer, lease time.Duration) (until time.Time, errs []error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return until, nil
	}
	until = time.Now().Add(cmp.Or(lease, d.config.Lease))
	errs = make([]error, len(answers))
	for i, a := range answers {
		switch {
		case a.queue != d.queue:
			errs[i] = asRead(elsewhere(a.receipt, d.b.hasQueue(a.queue)))
		case !d.isOut(a.receipt), !d.table.Extend(a.delivery(), until) && !d.extendUnmetLocked(a.delivery(), until):
			errs[i] = asRead(leaseLost(a.receipt, "is not of a delivery that is out"))
		}
	}
	d.wakeLocked() // leases may end sooner than before
	return until, errs
}

// isOut tells whether a delivery may still be answered, as far as is known here, and was not
// put back by who got it: that waits for its time, and for nobody. The table knows neither.
func (d *desk) isOut(t receipt) bool {
	d.b.mu.RLock()
	defer d.b.mu.RUnlock()
	q := d.b.state.QueueByID(d.queue)
	if q == nil || !q.IsLast(t.partition, t.offset, t.number) {
		return false
	}
	a, listed := q.Last(t.partition, t.offset)
	return !listed || a.NotBefore == 0
}

func (b *Broker) hasQueue(id uint64) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.state.QueueByID(id) != nil
}

// extendUnmetLocked moves the end of a lease that an owner before this one has given, of a
// record that was not looked at yet. It returns false if there is none.
func (d *desk) extendUnmetLocked(x leases.Delivery, until time.Time) bool {
	if d.table.Len()+len(d.extended) >= knownMax {
		return false
	}
	if int(x.Partition) < len(d.parts) && x.Offset < d.parts[x.Partition].next {
		return d.meetHeldLocked(x) && d.table.Extend(x, until)
	}
	d.b.mu.RLock()
	defer d.b.mu.RUnlock()
	t, q := d.b.state.TopicByID(d.topic), d.b.state.QueueByID(d.queue)
	if t == nil || q == nil || int(x.Partition) >= len(t.Partitions) {
		return false
	}
	part := t.Partitions[x.Partition]
	if x.Offset < part.Start || x.Offset >= part.End || q.NextUndone(x.Partition, x.Offset) != x.Offset {
		return false
	}
	if a, listed := q.Last(x.Partition, x.Offset); a.Number != x.Number || !mayBeOut(a, listed) {
		return false
	}
	d.extended[x.Place] = until
	return true
}
