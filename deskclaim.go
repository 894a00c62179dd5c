package seb

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// How long to wait before what the owner wants to say to the log is said again.
const deskRetry = time.Second

// byPlace orders what goes into the log.
func byPlace(x, y leases.Delivery) int {
	return x.Compare(y.Place)
}

// claimLocked has the log count the next attempts of deliveries that failed, or parks
// those that were the last, and returns how many these are. Who receives them then, waits for that.
func (d *desk) claimLocked(last []leases.Delivery) (parked int) {
	slices.SortFunc(last, byPlace)
	again := make([]leases.Delivery, 0, len(last))
	for _, x := range last {
		if d.tries(x) < d.config.MaxAttempts {
			again = append(again, x)
			continue
		}
		d.parkLocked(x)
	}
	if len(again) > 0 {
		d.claiming += len(again)
		d.b.tasks.Go(func() {
			err := d.b.join(d.b.life, &request{change: func(dr *state.Draft) ([]format.Item, *Error) { return d.claims(dr, again) }})
			d.settled(again, len(again), err)
		})
	}
	return len(last) - len(again)
}

// tries returns which of the attempts that the queue allows a delivery is.
func (d *desk) tries(x leases.Delivery) int {
	d.b.mu.RLock()
	defer d.b.mu.RUnlock()
	q := d.b.state.QueueByID(d.queue)
	if q == nil {
		return int(x.Number)
	}
	a, _ := q.Last(x.Partition, x.Offset)
	return int(x.Number) - int(a.Redriven)
}

// settled takes note of what became of claims, of which awaited were for receivers. Those
// that are in the log the desk knows from there.
func (d *desk) settled(claims []leases.Delivery, awaited int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claiming -= awaited
	retry := deskRetry
	if e, found := errors.AsType[*Error](err); found {
		retry = max(retry, e.RetryAfter) // a full state has no room a second later
	}
	for _, x := range claims {
		if err == nil {
			d.table.Unneeded(x)
		} else {
			d.table.Unclaimed(x.Place, time.Now().Add(retry), OutcomeOf(err) == Unknown)
		}
	}
	d.wakeLocked()
}

// mayOwn refuses what an owner wants that has been followed by another.
func (d *desk) mayOwn(dr *state.Draft) *Error {
	if !dr.QueueExists(d.queue) {
		return queueNotFound(d.topicName, d.queueName) // the desk is closed by the same commit
	}
	if epoch, owned := dr.QueueEpoch(d.queue); !owned || epoch != d.epoch {
		return refused(CodeQueueElsewhere, "another broker has taken over the queue")
	}
	return nil
}

// claims returns the items that count the next attempts of records that are not done. An
// attempt follows the one that the desk knows of: where the log has a later one, that is on its
// way to a worker, and must stay the last. A record that its worker has put back since the claim
// was asked for has to wait first: the desk knows that if the commit that says so was applied,
// and learns it with this commit if this one does.
func (d *desk) claims(dr *state.Draft, last []leases.Delivery) (items []format.Item, _ *Error) {
	if err := d.mayOwn(dr); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var of *format.RecordsAttempted
	for _, x := range last {
		p := uint32(x.Partition)
		done, a, sure := dr.RecordState(d.queue, p, x.Offset)
		if done || a.Parked || sure && a.Number != x.Number || !d.table.Claiming(x) || a.NotBefore != d.notBefore(x.Place) {
			continue
		}
		if of == nil || of.Partition != p {
			of = &format.RecordsAttempted{Queue: d.queue, Epoch: d.epoch, Partition: p}
			items = append(items, of)
		}
		of.Attempts = append(of.Attempts, format.Attempt{Offset: x.Offset, Number: x.Number + 1})
	}
	return items, nil
}

// notBefore returns until when a record was put back by the commits that are applied, in the
// log's time. It is for the commit loop alone, which writes the state.
func (d *desk) notBefore(at leases.Place) int64 {
	a, _ := d.b.state.QueueByID(d.queue).Last(at.Partition, at.Offset)
	return a.NotBefore
}

// opening returns what will be closed when records may be handed out that nothing but the
// dispatch limit keeps back, as it does those of a partition that is new; nil if there are none.
func (d *desk) opening() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moved == nil || d.config.Paused {
		return nil
	}
	d.b.mu.RLock()
	defer d.b.mu.RUnlock()
	t, q := d.b.state.TopicByID(d.topic), d.b.state.QueueByID(d.queue)
	if t == nil || q == nil || q.Epoch != d.epoch {
		return nil
	}
	for i, p := range d.parts {
		if p.next < t.Partitions[i].End && p.next >= d.limitLocked(q, i) {
			return d.moved
		}
	}
	return nil
}

// releaseQueues says of the queues that this broker owns which records are out, so that
// its going leaves none in doubt. They share commits, since there may be many and little time.
func (b *Broker) releaseQueues(ctx context.Context) {
	var releases sync.WaitGroup
	for _, d := range b.desks.end(ctx, &b.tasks) {
		releases.Go(func() { d.release(ctx) })
	}
	releases.Wait()
}

func (d *desk) release(ctx context.Context) {
	out := d.retire()
	err := d.b.join(ctx, &request{looked: true, change: func(dr *state.Draft) ([]format.Item, *Error) {
		return d.releases(dr, out)
	}})
	if err != nil && CodeOf(err) != CodeQueueElsewhere {
		d.b.logger.Warn("left a queue without saying so: what it handed out waits for its lease, and its next owner counts an attempt too many", "topic", d.topicName, "err", err)
	}
}

// retire ends the desk and returns what it has handed out and not heard of since.
func (d *desk) retire() (out []leases.Delivery) {
	d.b.desks.drop(d.queue)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.table.Delivered(func(x leases.Delivery) { out = append(out, x) })
	slices.SortFunc(out, byPlace)
	return out
}

func (d *desk) releases(dr *state.Draft, out []leases.Delivery) (items []format.Item, _ *Error) {
	if err := d.mayOwn(dr); err != nil {
		return nil, err
	}
	var of *format.RecordsAttempted
	for _, x := range out {
		p := uint32(x.Partition)
		done, a, sure := dr.RecordState(d.queue, p, x.Offset)
		if done || sure || a.Parked {
			continue // the log knows
		}
		if of == nil || of.Partition != p {
			of = &format.RecordsAttempted{Queue: d.queue, Epoch: d.epoch, Partition: p}
			items = append(items, of)
		}
		of.Attempts = append(of.Attempts, format.Attempt{Offset: x.Offset, Number: x.Number})
	}
	return append(items, &format.QueueReleased{Queue: d.queue, Epoch: d.epoch}), nil
}
