package dispatch

import (
	"errors"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// retryAfter is how long the owner waits before it repeats a commit that failed.
const retryAfter = time.Second

// byPlace is the order of deliveries in the log.
func byPlace(x, y leases.Delivery) int {
	return x.Compare(y.Place)
}

// claimLocked commits the next attempts of deliveries that failed; records whose last attempt it was
// become dead letters. It returns the number of these. A receiver gets such a record after the commit.
func (d *Dispatcher) claimLocked(last []leases.Delivery) (dead int) {
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
			err := d.all.b.Commit(d.all.opts.Life, Request{Change: claim{d, again}})
			d.settled(again, len(again), err)
		})
	}
	return len(last) - len(again)
}

// Attempt returns the number of a delivery, counted from the last redrive of its record.
func (d *Dispatcher) Attempt(x leases.Delivery) int {
	n := int(x.Attempt)
	d.view(func(_ *state.Topic, q *state.Queue) {
		a, _ := q.Last(x.Partition, x.Offset)
		n -= int(a.Redriven)
	})
	return n
}

// settled notes the outcome of claims, of which awaited were for receivers. Claims that are in the
// log were applied before.
func (d *Dispatcher) settled(claims []leases.Delivery, awaited int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claiming -= awaited
	retry, unknown := retryAfter, false
	if e, found := errors.AsType[*CommitError](err); found {
		retry, unknown = max(retry, e.RetryAfter), e.Unknown // a full state has no room a second later
	}
	for _, x := range claims {
		if err != nil {
			d.table.Unclaimed(x.Place, time.Now().Add(retry), unknown)
		}
	}
	if err == nil {
		// A claim that is not in the log leaves the rest in the table: its record may have been
		// put back meanwhile, and be claimed again by now.
		d.view(func(_ *state.Topic, q *state.Queue) {
			for _, x := range claims {
				if a, _ := q.Last(x.Partition, x.Offset); a.DeadLetter || q.NextUndone(x.Partition, x.Offset) != x.Offset {
					d.table.Unneeded(x)
				}
			}
		})
	}
	d.wakeLocked()
}

// CheckOwner returns ErrNotOwner unless the queue has the owner of that epoch.
func CheckOwner(dr *state.Draft, queue, epoch uint64) error {
	if !dr.QueueExists(queue) {
		return ErrNotOwner
	}
	if now, owned := dr.QueueEpoch(queue); !owned || now != epoch {
		return ErrNotOwner
	}
	return nil
}

func (d *Dispatcher) checkOwner(dr *state.Draft) error { return CheckOwner(dr, d.queue, d.epoch) }

// claim is a change that counts the next attempts of records that are not done. It is the owner's
// own, which alone knows the records.
type claim struct {
	d    *Dispatcher
	last []leases.Delivery
}

// Apply implements Change. An attempt must follow the one that the dispatcher knows: if the log has
// a later one, its record is on the way to a worker, and that attempt must stay the last. A record
// that its worker put back after the claim was requested has to wait first. The dispatcher knows of
// that from commits that were applied, and the draft from this one.
func (x claim) Apply(dr *state.Draft) (entries []format.Entry, _ error) {
	d := x.d
	if err := d.checkOwner(dr); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var of *format.RecordsAttempted
	for _, last := range x.last {
		p := uint32(last.Partition)
		done, a, sure := dr.RecordState(d.queue, p, last.Offset)
		if done || a.DeadLetter || sure && a.Number != last.Attempt || !d.table.Claiming(last) || a.NotBefore != d.notBefore(last.Place) {
			continue
		}
		if of == nil || of.Partition != p {
			of = &format.RecordsAttempted{Queue: d.queue, Epoch: d.epoch, Partition: p}
			entries = append(entries, of)
		}
		of.Attempts = append(of.Attempts, format.Attempt{Offset: last.Offset, Number: last.Attempt + 1})
	}
	return entries, nil
}

// notBefore returns the time of the log until which the applied commits have put a record back.
func (d *Dispatcher) notBefore(at leases.Place) (us int64) {
	d.view(func(_ *state.Topic, q *state.Queue) {
		a, _ := q.Last(at.Partition, at.Offset)
		us = a.NotBefore
	})
	return us
}

// opening returns a channel that is closed when the dispatch limit has moved. It is nil unless the
// limit alone keeps records back, as in a new partition.
func (d *Dispatcher) opening() (opened <-chan struct{}) {
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
