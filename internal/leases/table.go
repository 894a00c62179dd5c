// Package leases keeps in memory what the owner of a queue has handed out, and what it
// may hand out next. It knows neither the log nor a clock: its caller tells it both.
//
// A record is known by its place from the moment that it is found in the log until its
// work is done, or it is parked. In between it is fresh, leased, or to be handed out
// again at some time. A record that was handed out before is claimed first: its next
// attempt becomes durable before anybody gets it.
package leases

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// Place is where a record is.
type Place struct {
	Partition int32
	Offset    int64
}

// Compare orders places by partition, then by offset.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Partition, q.Partition), cmp.Compare(p.Offset, q.Offset))
}

// Delivery is a record that is handed out, for the Number-th time.
type Delivery struct {
	Place
	Number uint32
}

type phase uint8

const (
	fresh    phase = iota // waits in line, was never handed out
	ready                 // waits in line, and its attempt is durable
	later                 // waits for its time
	claiming              // its next attempt is on its way into the log
	leased
	blocked // behind another record of its key
)

// entry is one known record.
type entry struct {
	Delivery        // the last one; Number is 0 if there was none
	key      uint64 // of a table that keeps order by key
	phase    phase
	first    bool      // it was never handed out, and may be without a claim
	sent     bool      // its next attempt may get into the log, though the claim has ended
	at       time.Time // later: from when on; leased: until when
	index    int       // in the heap of its phase
	holder   *Holder   // whom the last delivery went to, if anybody counts
}

// Table is the records of one queue that are known.
type Table struct {
	ordered bool
	entries map[Place]*entry
	fresh   line
	ready   line
	again   byTime             // those that wait for their time
	out     byTime             // those that are leased
	keys    map[uint64][]Place // in order; the first may be handed out
	blocked int                // records behind others of their key
	turn    bool               // whose turn it is where only one can be taken
}

// New returns an empty table. In an ordered one at most one record of a key is handed out
// at a time, in the order in which they were added.
func New(ordered bool) *Table {
	return &Table{ordered: ordered, entries: map[Place]*entry{}, keys: map[uint64][]Place{}}
}

// Len returns how many records are known.
func (t *Table) Len() int { return len(t.entries) }

// Fresh returns how many records wait that were never handed out.
func (t *Table) Fresh() int { return t.fresh.len() }

// Ready returns how many records wait whose attempt is durable.
func (t *Table) Ready() int { return t.ready.len() }

// Leased returns how many records are handed out.
func (t *Table) Leased(now time.Time) int {
	t.Expire(now)
	return len(t.out)
}

// Blocked returns how many records wait behind others of their key.
func (t *Table) Blocked() int { return t.blocked }

// Add makes a record known that was never handed out. key matters in an ordered table
// only.
func (t *Table) Add(p Place, key uint64) {
	t.add(&entry{Delivery: Delivery{Place: p}, key: key, first: true}, time.Time{})
}

// AddDelayed is Add of a record that is not to be handed out before a time.
func (t *Table) AddDelayed(p Place, key uint64, from time.Time) {
	t.add(&entry{Delivery: Delivery{Place: p}, key: key, first: true}, from)
}

// AddAgain makes a record known whose last delivery had a number, and whose next one may
// follow from a time on, after a claim.
func (t *Table) AddAgain(d Delivery, key uint64, from time.Time) {
	t.add(&entry{Delivery: d, key: key}, from)
}

func (t *Table) add(e *entry, from time.Time) {
	if t.entries[e.Place] != nil {
		return
	}
	t.entries[e.Place] = e
	e.at = from
	if t.ordered && !t.enter(e) {
		e.phase = blocked
		t.blocked++
		return
	}
	t.enqueue(e)
}

// enqueue has a record wait for its time, or in line.
func (t *Table) enqueue(e *entry) {
	if e.first && e.at.IsZero() {
		e.phase = fresh
		t.fresh.push(e)
		return
	}
	t.putLater(e, e.at)
}

func (t *Table) putLater(e *entry, at time.Time) {
	e.phase, e.at = later, at
	heap.Push(&t.again, e)
}

// leave takes a record out of whatever it waits in.
func (t *Table) leave(e *entry) {
	switch e.phase {
	case later:
		heap.Remove(&t.again, e.index)
	case leased:
		heap.Remove(&t.out, e.index)
		e.holder.less()
	case fresh:
		t.fresh.gone++
	case ready:
		t.ready.gone++
	case blocked:
		t.blocked--
	case claiming:
	}
	e.phase = claiming // it is in nothing
}

// Remove forgets a record: its work is done, or it is parked, or gone.
func (t *Table) Remove(p Place) {
	e := t.entries[p]
	if e == nil {
		return
	}
	t.leave(e)
	delete(t.entries, p)
	if t.ordered {
		t.exit(e)
	}
}

// RemoveBelow forgets the records of a partition before an offset.
func (t *Table) RemoveBelow(partition int32, before int64) {
	var below []Place
	for p := range t.entries {
		if p.Partition == partition && p.Offset < before {
			below = append(below, p)
		}
	}
	slices.SortFunc(below, func(a, b Place) int { return b.Compare(a) }) // the last first: none of them is let go
	for _, p := range below {
		t.Remove(p)
	}
}

// Due returns how many records wait for a claim whose time has come, up to most.
func (t *Table) Due(now time.Time, most int) int { return t.again.due(0, now, most) }

// WaitUntil returns how many records wait for that time.
func (t *Table) WaitUntil(at time.Time) (n int) {
	for _, e := range t.entries {
		if (e.phase == later || e.phase == blocked) && !e.first && e.at.Equal(at) {
			n++
		}
	}
	return n
}

// PutBack has a record handed out again from a time on: its delivery of that number failed.
// It returns false if the record is not known.
func (t *Table) PutBack(d Delivery, from time.Time) bool {
	e := t.entries[d.Place]
	if e == nil || e.phase == blocked {
		return e != nil
	}
	t.leave(e)
	e.Number, e.first = d.Number, false
	t.putLater(e, from)
	return true
}

// Claiming tells whether the next attempt of a delivery is on its way into the log. It no longer
// is if the record was put back, or done, since it was asked for.
func (t *Table) Claiming(d Delivery) bool {
	e := t.entries[d.Place]
	return e != nil && e.phase == claiming && e.Number == d.Number
}

// Claimed tells that an attempt is in the log. Whoever has the one before has lost it.
func (t *Table) Claimed(d Delivery) {
	e := t.entries[d.Place]
	if e == nil || e.phase == blocked || e.Number >= d.Number {
		return
	}
	t.leave(e)
	e.Number, e.first, e.sent, e.phase = d.Number, false, false, ready
	t.ready.push(e)
}

// Unclaimed tells that a claim did not get into the log, and whether it still may.
func (t *Table) Unclaimed(p Place, again time.Time, may bool) {
	if e := t.entries[p]; e != nil && e.phase == claiming {
		e.sent = e.sent || may
		t.putLater(e, again)
	}
}

// Unneeded forgets a record whose claim came to nothing since it is done, or parked; not
// one that was found again since, or has got its next attempt.
func (t *Table) Unneeded(d Delivery) {
	if e := t.entries[d.Place]; e != nil && e.phase == claiming && e.Number == d.Number {
		t.Remove(d.Place)
	}
}

// Return takes a delivery back that nobody got.
func (t *Table) Return(d Delivery) {
	e := t.entries[d.Place]
	if e == nil || e.phase != leased || e.Number != d.Number {
		return
	}
	t.leave(e)
	e.phase = ready
	t.ready.push(e)
}

// Extend moves the end of a lease. It returns false if that delivery is not the last one,
// or its successor is on its way. One that ran out is leased again.
func (t *Table) Extend(d Delivery, until time.Time) bool {
	e := t.entries[d.Place]
	if e == nil || e.Number != d.Number || e.phase != leased && e.phase != later || e.first || e.sent {
		return false
	}
	t.leave(e)
	t.lease(e, until)
	return true
}

func (t *Table) lease(e *entry, until time.Time) {
	e.phase, e.at = leased, until
	heap.Push(&t.out, e)
	e.holder.more()
}

// Delivered calls f for the last delivery of every record that had one, but not for the
// first of one that came back without that anybody got it: that may be made anew.
func (t *Table) Delivered(f func(Delivery)) {
	for _, e := range t.entries {
		if e.Number > 1 || e.Number == 1 && e.phase != ready {
			f(e.Delivery)
		}
	}
}

// Expire has the records handed out again whose lease ran out.
func (t *Table) Expire(now time.Time) {
	for len(t.out) > 0 && !t.out[0].at.After(now) {
		e := t.out[0]
		t.leave(e)
		t.putLater(e, now)
	}
}

// NextEnd returns when the first lease ends, false if nothing is leased.
func (t *Table) NextEnd() (at time.Time, ok bool) {
	if len(t.out) == 0 {
		return time.Time{}, false
	}
	return t.out[0].at, true
}

// Next returns when there will be something to hand out that is not now, by a lease that
// runs out or a time that comes; false if there is nothing of that kind.
func (t *Table) Next() (at time.Time, ok bool) {
	if len(t.again) > 0 {
		at, ok = t.again[0].at, true
	}
	if len(t.out) > 0 && (!ok || t.out[0].at.Before(at)) {
		at, ok = t.out[0].at, true
	}
	return at, ok
}
