package dispatch

import (
	"container/heap"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// If an owner is lost, workers may still have records that it handed out. The next owner holds back
// these records, the uncertain ranges, for the length of one lease: it does not hand them out again
// during that time. The dispatcher keeps the held records as ranges of offsets, not as one table entry
// for each record. After that time, records enter the table as receivers want them. A record enters the
// table earlier if a worker puts the record back or extends its lease.

// offsets is a range: from inclusive, to exclusive.
type offsets struct{ from, to format.Offset }

// holdRangeLocked holds back the next records of a partition whose offsets are below the offset to, since
// a lost owner may have handed them out. Two kinds of records are not in held ranges: records with an
// attempt in the log enter the table, and delayed records wait until they are due.
func (d *Dispatcher) holdRangeLocked(q *state.Queue, partition format.Partition, to format.Offset, now time.Time) {
	for _, run := range d.ahead[partition] {
		p := &d.parts[partition]
		if run.from >= to {
			break
		}
		if run.to <= p.next || !run.due.After(now) {
			continue
		}
		if !d.holdRunLocked(q, partition, run.from) {
			return
		}
		end := min(to, run.to)
		heap.Push(&d.delayed, delay{run.due, partition, p.next, end})
		p.next = end
	}
	d.holdRunLocked(q, partition, to)
}

// holdRunLocked does what holdRangeLocked does, for a range in which no record waits to become due. It
// returns false if the table has no room for all records that should enter the table.
func (d *Dispatcher) holdRunLocked(q *state.Queue, partition format.Partition, to format.Offset) bool {
	p, all := &d.parts[partition], true
	for _, o := range q.Listed(partition, p.next, to) {
		if all = d.roomLocked(); !all {
			to = o
			break
		}
		d.enterLocked(q, leases.Place{Partition: partition, Offset: o}, leases.NoKey, time.Time{})
	}
	if p.next < to {
		p.held = append(p.held, offsets{p.next, to})
		d.holds = true
		p.next = to
	}
	return all
}

// enterHeldRecordsLocked enters held records into the table when they need no longer be held back. It
// stops when enough records in the table are due for their next attempt.
func (d *Dispatcher) enterHeldRecordsLocked(now time.Time, enough int) {
	if !d.holds || now.Before(d.held) {
		return
	}
	d.view(func(_ *state.Topic, q *state.Queue) { d.enterHeldRecordsIn(q, enough-d.table.Due(now, enough)) })
}

func (d *Dispatcher) enterHeldRecordsIn(q *state.Queue, enough int) {
	for i := range d.parts {
		p := &d.parts[i]
		for len(p.held) > 0 {
			if enough <= 0 || !d.roomLocked() {
				return
			}
			x := &p.held[0]
			if x.from = q.NextUndone(format.Partition(i), x.from); x.from >= x.to {
				p.held = p.held[1:]
				continue
			}
			before := d.table.Len()
			d.enterLocked(q, leases.Place{Partition: format.Partition(i), Offset: x.from}, leases.NoKey, time.Time{})
			x.from++
			enough -= d.table.Len() - before
		}
		p.held = nil
	}
	d.holds = false
}

// enterHeldLocked enters a record of a held range into the table. It returns false if no held range
// has the record.
func (d *Dispatcher) enterHeldLocked(x leases.Delivery) bool {
	if int(x.Partition) >= len(d.parts) {
		return false
	}
	p := &d.parts[x.Partition]
	i := slices.IndexFunc(p.held, func(h offsets) bool { return h.from <= x.Offset && x.Offset < h.to })
	if i < 0 {
		return false
	}
	h := p.held[i]
	p.held = slices.Replace(p.held, i, i+1, offsets{h.from, x.Offset}, offsets{x.Offset + 1, h.to})
	d.table.AddAgain(x, leases.NoKey, d.held)
	return true
}

// heldLocked returns how many records are held back now.
func (d *Dispatcher) heldLocked(now time.Time) (n int64) {
	if now.Before(d.held) {
		d.view(func(t *state.Topic, q *state.Queue) { n = d.heldIn(t, q) })
	}
	return n
}

func (d *Dispatcher) heldIn(t *state.Topic, q *state.Queue) (n int64) {
	for i := range t.Partitions {
		next := t.Partitions[i].Start
		if i < len(d.parts) {
			next = max(next, d.parts[i].next)
			for _, h := range d.parts[i].held {
				n += q.Uncertain(format.Partition(i), max(h.from, t.Partitions[i].Start), h.to)
			}
		}
		n += q.Uncertain(format.Partition(i), next, q.UncertainEnd(format.Partition(i)))
		q.EachAttempt(format.Partition(i), func(offset format.Offset, a state.Attempt) {
			if offset >= next && mayBeOut(a, true) {
				n++
			}
		})
	}
	return n + int64(d.table.WaitUntil(d.held))
}
