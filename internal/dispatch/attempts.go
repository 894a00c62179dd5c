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

// byPlace compares deliveries by partition, then by offset.
func byPlace(x, y leases.Delivery) int {
	return x.Compare(y.Place)
}

// claimLocked claims the next attempts of deliveries that failed: it starts a commit that counts these
// attempts. Receivers get the records after that commit. A record whose last allowed attempt failed
// becomes a dead letter instead; claimLocked returns the number of such records.
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

// Attempt returns the attempt number of a delivery, counted from the last redrive of the record.
func (d *Dispatcher) Attempt(x leases.Delivery) int {
	n := int(x.Attempt)
	d.view(func(_ *state.Topic, q *state.Queue) {
		a, _ := q.Last(x.Partition, x.Offset)
		n -= int(a.Redriven)
	})
	return n
}

// settled notes the outcome of a commit of claims. If the commit succeeded, the state has applied it.
// awaited is the number of claims that receivers wait for.
func (d *Dispatcher) settled(claims []leases.Delivery, awaited int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claiming -= awaited
	retry, unknown := retryAfter, false
	if e, found := errors.AsType[*CommitError](err); found {
		retry, unknown = max(retry, e.RetryAfter), e.Unknown // if the state is full, the error asks for a longer wait than retryAfter
	}
	for _, x := range claims {
		if err != nil {
			d.table.Unclaimed(x.Place, time.Now().Add(retry), unknown)
		}
	}
	if err == nil {
		// The commit leaves out claims that are no longer needed. If the record of such a claim is done or a
		// dead letter, the record leaves the table. Any other such record was put back meanwhile, and may be
		// claimed again by now.
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

// CheckOwner returns ErrNotOwner unless the queue has an owner with the given epoch.
func CheckOwner(dr *state.Draft, queue format.QueueID, epoch format.Epoch) error {
	if !dr.QueueExists(queue) {
		return ErrNotOwner
	}
	if now, owned := dr.QueueEpoch(queue); !owned || now != epoch {
		return ErrNotOwner
	}
	return nil
}

func (d *Dispatcher) checkOwner(dr *state.Draft) error { return CheckOwner(dr, d.queue, d.epoch) }

// claim is a change that counts the next attempts of records that are not done. Only the owner makes
// this change, since no other broker knows which records are due.
type claim struct {
	d    *Dispatcher
	last []leases.Delivery
}

// Apply implements Change. It counts the next attempt of a record only if the log's last attempt is the
// one that the dispatcher knows. If the log has a later one, a worker may be about to get the record with
// that attempt, which must stay the last. Apply also leaves out a record that a worker put back after the
// claim was requested, since such a record has to wait first. A put-back in an applied commit shows in
// the dispatcher's table; a put-back in the commit under construction shows only in the draft.
func (x claim) Apply(dr *state.Draft) (entries []format.Entry, _ error) {
	d := x.d
	if err := d.checkOwner(dr); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var of *format.RecordsAttempted
	for _, last := range x.last {
		p := last.Partition
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

// notBefore returns the log's time until which an applied commit has put a record back, in
// microseconds since 1970; 0 if none has.
func (d *Dispatcher) notBefore(at leases.Place) (us int64) {
	d.view(func(_ *state.Topic, q *state.Queue) {
		a, _ := q.Last(at.Partition, at.Offset)
		us = a.NotBefore
	})
	return us
}

// opening returns a channel that is closed when the dispatch limit has moved. It returns nil unless
// the limit alone keeps records back, as in a new partition.
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
