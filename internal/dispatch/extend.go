package dispatch

import (
	"cmp"
	"time"

	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// Extend sets the end of the leases of deliveries to now plus lease. If lease is 0, the length of the
// queue's leases counts instead. until is the new end. out tells for each token whether the lease was
// extended; out is nil if the dispatcher has ended.
//
// A lease is not extended if the token is of another queue, if the dispatcher knows that no worker has
// the record under this token, or if there is no room to remember the new end.
func (d *Dispatcher) Extend(tokens []Token, lease time.Duration) (until time.Time, out []bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return until, nil
	}
	until = time.Now().Add(cmp.Or(lease, d.config.Lease))
	out = make([]bool, len(tokens))
	for i, t := range tokens {
		x := t.Delivery
		out[i] = t.Queue == d.queue && d.mayExtend(x) && (d.table.Extend(x, until) || d.extendUnscannedLocked(x, until))
	}
	d.wakeLocked() // if a lease now ends sooner, the first receiver in line has to wake sooner
	return until, out
}

// mayExtend reports whether the log says that a delivery is the last one of its record and was not
// put back.
func (d *Dispatcher) mayExtend(x leases.Delivery) (may bool) {
	d.view(func(_ *state.Topic, q *state.Queue) {
		a, listed := q.Last(x.Partition, x.Offset)
		may = q.IsLast(x.Partition, x.Offset, x.Attempt) && (!listed || a.NotBefore == 0)
	})
	return may
}

// extendUnscannedLocked extends a lease on a record that is not in the table: an earlier owner handed
// out the record. It returns false if the record can't be with a worker, or if the table is full.
func (d *Dispatcher) extendUnscannedLocked(x leases.Delivery, until time.Time) bool {
	if d.table.Len()+len(d.extended) >= knownMax {
		return false
	}
	if int(x.Partition) < len(d.parts) && x.Offset < d.parts[x.Partition].next {
		return d.enterHeldLocked(x) && d.table.Extend(x, until)
	}
	out := false
	d.view(func(t *state.Topic, q *state.Queue) {
		if int(x.Partition) < len(t.Partitions) {
			part := t.Partitions[x.Partition]
			a, listed := q.Last(x.Partition, x.Offset)
			out = x.Offset >= part.Start && x.Offset < part.End && q.NextUndone(x.Partition, x.Offset) == x.Offset &&
				a.Number == x.Attempt && mayBeOut(a, listed)
		}
	})
	if out {
		d.extended[x.Place] = until
	}
	return out
}
