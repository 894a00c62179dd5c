package seb

import (
	"cmp"
	"context"
	"time"

	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// Extend sets leases to end after the given time from now; 0 means the queue's lease. A worker
// that needs more time calls it before its lease ends. Only the queue's owner can extend
// leases: another broker fails as [Queue.Receive] does. A new owner does not know of
// extensions: it gives every worker the queue's lease.
func (q *Queue) Extend(ctx context.Context, lease time.Duration, tokens ...string) (until time.Time, err error) {
	defer reads(&err)
	if err := cmp.Or(q.check(), checkTokens(tokens), checkLease(lease), q.b.current(ctx)); err != nil {
		return time.Time{}, err
	}
	answers, err := q.b.parseAnswers(tokens)
	if err != nil {
		return time.Time{}, err
	}
	if _, err := q.dispatcher(ctx, 0); err != nil {
		return time.Time{}, err
	}
	if err := q.syncUnlessLast(ctx, answers); err != nil {
		return time.Time{}, err
	}
	if err := q.b.engine.SyncToAct(ctx); err != nil { // don't extend leases of a queue that may have a new owner
		return time.Time{}, err
	}
	for {
		d, err := q.dispatcher(ctx, 0) // the owner may have changed meanwhile
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
			continue // that dispatcher has ended
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

func (b *Broker) hasQueue(id uint64) (has bool) {
	b.engine.View(func(s *state.State) { has = s.QueueByID(id) != nil })
	return has
}
