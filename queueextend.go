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
func (q *Queue) Extend(ctx context.Context, lease time.Duration, tokens ...string) (until time.Time, err error) {
	defer reads(&err)
	if err := cmp.Or(q.check(), checkTokens(tokens), checkLease(lease), q.b.current(ctx)); err != nil {
		return time.Time{}, err
	}
	answers, err := q.parse(tokens)
	if err != nil {
		return time.Time{}, err
	}
	if _, err := q.dispatcher(ctx, 0); err != nil {
		return time.Time{}, err
	}
	if err := q.syncUnlessLast(ctx, answers); err != nil {
		return time.Time{}, err
	}
	if err := q.b.syncedState(ctx); err != nil { // nobody is told to have for long what may be another's soon
		return time.Time{}, err
	}
	for {
		d, err := q.dispatcher(ctx, 0) // which may be another one since it looked, or another broker's
		if err != nil {
			return time.Time{}, err
		}
		own := make([]leases.Delivery, 0, len(answers))
		for _, a := range answers {
			if a.queue == d.Queue() {
				own = append(own, a.delivery())
			}
		}
		until, out := d.Extend(own, lease)
		if out == nil {
			continue // another broker's, or this one's again
		}
		errs := make([]error, len(answers))
		for i, a := range answers {
			if a.queue != d.Queue() {
				errs[i] = elsewhere(a.deliveryToken, q.b.hasQueue(a.queue))
				continue
			}
			if !out[0] {
				errs[i] = leaseLost(a.deliveryToken, "is of a delivery that is no longer leased")
			}
			out = out[1:]
		}
		return until.UTC(), tokensError(errs)
	}
}

func (b *Broker) hasQueue(id uint64) bool {
	b.live.RLock()
	defer b.live.RUnlock()
	return b.live.State.QueueByID(id) != nil
}
