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

// claimLocked makes record claims: it starts a commit that counts the next attempts of records whose
// last deliveries failed. Receivers get these records after the commit. If the failed attempt was the
// last allowed one, the record becomes a dead letter instead; claimLocked returns the number of such
// records.
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
		d.claimsUnderWayLocked()
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

// settled notes the outcome of a commit with record claims, or of a call of Broker.DeadLetter. If err is
// nil, the state has applied the commit. awaited is how many of the claims d.claiming counts: all of them,
// or 0 after a call of Broker.DeadLetter.
func (d *Dispatcher) settled(claims []leases.Delivery, awaited int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claiming -= awaited; awaited > 0 {
		close(d.claimed)
		d.claimed = nil
		d.claimsUnderWayLocked()
	}
	retry, unknown := retryAfter, false
	if e, found := errors.AsType[*CommitError](err); found {
		retry, unknown = max(retry, e.RetryAfter), e.Unknown // if the state is full, e.RetryAfter is longer than retryAfter
	}
	for _, x := range claims {
		if err != nil {
			d.table.Unclaimed(x.Place, time.Now().Add(retry), unknown)
		}
	}
	if err == nil {
		// The commit left out claims that were no longer needed. If the record of such a claim is done
		// or a dead letter, the record leaves the table. Otherwise the record stays: for example, a
		// worker put the record back meanwhile, and the table lets it wait.
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

// claim is a change that counts the next attempts of records that are not done. Only the owner of the
// queue makes this change, since no other broker knows when the last attempt of a record has failed.
type claim struct {
	d    *Dispatcher
	last []leases.Delivery
}

// Apply implements Change. It leaves out three kinds of records:
//   - A record that is done or a dead letter.
//   - A record whose last attempt in the log has another number than the dispatcher expects. The log may
//     have an earlier claim whose outcome was unknown: then the record goes out with that claim's attempt,
//     and another attempt must not be counted.
//   - A record that a worker put back after the claim was requested: the record has to wait first. If the
//     state has applied the commit of the put-back, d.table knows about the put-back. If the put-back is in
//     the commit under construction, only the draft knows.
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

// notBefore returns until which time of the log a record that was put back must wait, in microseconds
// since 1970. It returns 0 if no applied commit has put the record back.
func (d *Dispatcher) notBefore(at leases.Place) (us int64) {
	d.view(func(_ *state.Topic, q *state.Queue) {
		a, _ := q.Last(at.Partition, at.Offset)
		us = a.NotBefore
	})
	return us
}

// claimsUnderWayLocked sets d.claimed if record claims are under way.
func (d *Dispatcher) claimsUnderWayLocked() {
	if d.claiming > 0 && d.claimed == nil {
		d.claimed = make(chan struct{})
	}
}

// opening returns a channel that is closed when a commit ends after which a record may be handed out: a commit with
// record claims, or one that moves the dispatch limit. It returns nil if the queue is paused, if no such commit is
// under way, or if no record waits for a new limit. Every record that was not scanned yet counts, even one below the
// limit: the state may have applied the commit already, although the dispatcher has not woken the receivers yet.
func (d *Dispatcher) opening() (opened <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.config.Paused {
		return nil
	}
	if d.claimed != nil {
		return d.claimed
	}
	if d.moved == nil {
		return nil
	}
	d.viewOwned(func(t *state.Topic, _ *state.Queue) {
		for i, p := range d.parts {
			if p.next < t.Partitions[i].End {
				opened = d.moved
			}
		}
	})
	return opened
}
