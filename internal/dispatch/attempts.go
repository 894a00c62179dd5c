package dispatch

import (
	"errors"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// How long to wait before what the owner wants to say to the log is said again.
const retryAfter = time.Second

// byPlace orders what goes into the log.
func byPlace(x, y leases.Delivery) int {
	return x.Compare(y.Place)
}

// claimLocked has the log count the next attempts of deliveries that failed, or parks
// those that were the last, and returns how many these are. Who receives them then, waits for that.
func (d *Dispatcher) claimLocked(last []leases.Delivery) (parked int) {
	slices.SortFunc(last, byPlace)
	again := make([]leases.Delivery, 0, len(last))
	for _, x := range last {
		if d.Attempt(x) < d.config.MaxAttempts {
			again = append(again, x)
			continue
		}
		d.deadLetterLocked(x)
	}
	if len(again) > 0 {
		d.claiming += len(again)
		d.all.b.Go(func() {
			err := d.all.commit(Change{Entries: func(dr *state.Draft) ([]format.Item, error) { return d.claims(dr, again) }})
			d.settled(again, len(again), err)
		})
	}
	return len(last) - len(again)
}

// Attempt returns which of the attempts that the queue allows a delivery is.
func (d *Dispatcher) Attempt(x leases.Delivery) int {
	n := int(x.Number)
	d.view(func(_ *state.Topic, q *state.Queue) {
		a, _ := q.Last(x.Partition, x.Offset)
		n -= int(a.Redriven)
	})
	return n
}

// settled takes note of what became of claims, of which awaited were for receivers. Those
// that are in the log the dispatcher knows from there.
func (d *Dispatcher) settled(claims []leases.Delivery, awaited int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claiming -= awaited
	retry, unknown := retryAfter, false
	if e, found := errors.AsType[*CommitError](err); found {
		retry, unknown = max(retry, e.RetryAfter), e.Unknown // a full state has no room a second later
	}
	for _, x := range claims {
		if err == nil {
			d.table.Unneeded(x)
		} else {
			d.table.Unclaimed(x.Place, time.Now().Add(retry), unknown)
		}
	}
	d.wakeLocked()
}

// CheckOwner returns ErrNotOwner if the queue has no owner, or a later one.
func (d *Dispatcher) CheckOwner(dr *state.Draft) error {
	if !dr.QueueExists(d.queue) {
		return ErrNotOwner
	}
	if epoch, owned := dr.QueueEpoch(d.queue); !owned || epoch != d.epoch {
		return ErrNotOwner
	}
	return nil
}

// claims returns the items that count the next attempts of records that are not done. An
// attempt follows the one that the dispatcher knows of: where the log has a later one, that is on its
// way to a worker, and must stay the last. A record that its worker has put back since the claim
// was asked for has to wait first: the dispatcher knows that if the commit that says so was applied,
// and learns it with this commit if this one does.
func (d *Dispatcher) claims(dr *state.Draft, last []leases.Delivery) (items []format.Item, _ error) {
	if err := d.CheckOwner(dr); err != nil {
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
// log's time.
func (d *Dispatcher) notBefore(at leases.Place) (us int64) {
	d.view(func(_ *state.Topic, q *state.Queue) {
		a, _ := q.Last(at.Partition, at.Offset)
		us = a.NotBefore
	})
	return us
}

// Opening returns what will be closed when records may be handed out that nothing but the
// dispatch limit keeps back, as it does those of a partition that is new; nil if there are none.
func (d *Dispatcher) Opening() (opened <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moved == nil || d.config.Paused {
		return nil
	}
	d.viewOwned(func(t *state.Topic, q *state.Queue) {
		for i, p := range d.parts {
			if p.next < t.Partitions[i].End && p.next >= d.limitLocked(q, i) {
				opened = d.moved
			}
		}
	})
	return opened
}
