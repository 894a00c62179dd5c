// Package leases keeps in memory which records the owner of a queue has handed out, and which records
// the owner may hand out next. The package reads neither the log nor a clock: the caller passes what
// happened, and the time.
//
// The table has a record from the time when the caller finds the record in the log until the record is
// done or a dead letter. Meanwhile the record is fresh (ready for its first delivery), leased to a
// worker, or waits for its next delivery. Every delivery but the first needs a claim: a commit that
// counts the attempt before a worker gets the record again (a record claim).
package leases

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// Place is the partition and offset of a record.
type Place struct {
	Partition format.Partition
	Offset    format.Offset
}

// Compare orders places by partition, then by offset.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Partition, q.Partition), cmp.Compare(p.Offset, q.Offset))
}

// Delivery is one delivery of a record. Attempt counts the record's deliveries from 1.
type Delivery struct {
	Place
	Attempt uint32
}

type phase uint8

const (
	fresh    phase = iota // in the list of fresh records: the first delivery may begin now
	ready                 // in the list of ready records: the next delivery may begin now, and no commit has to count the attempt first
	later                 // waits until the time entry.at
	claiming              // a commit that counts the next attempt is under way; the record is in no list or heap
	leased
	blocked // waits for an earlier record with the same key
)

// entry is a record in the table.
type entry struct {
	Delivery          // the last delivery; Attempt is 0 before the first delivery
	key        uint64 // hash of the record's key, if the table is ordered
	phase      phase
	first      bool      // the record was never handed out, so no commit has to count the next attempt
	maySucceed bool      // the outcome of a claim is unknown, so the log may already count the next attempt
	at         time.Time // in phase later, the earliest time of the next delivery; in phase leased, the end of the lease
	index      int       // position in the heap of the phase
	holder     *Holder   // counts the records of the worker that got the last delivery; may be nil
}

// Table has the records of one queue that the owner has found in the log and that are neither done nor
// dead letters.
type Table struct {
	ordered bool
	entries map[Place]*entry
	fresh   fifo
	ready   fifo
	again   byTime             // records in phase later
	out     byTime             // records in phase leased
	keys    map[uint64][]Place // records of each key, in order; only the first may be handed out
	blocked int                // number of records in phase blocked
	turn    bool               // true if the records that are not fresh get the larger half when the next Take splits an odd number
}

// New returns an empty table. An ordered table hands out at most one record of a key at a time, in the
// order in which the records were added.
func New(ordered bool) *Table {
	return &Table{ordered: ordered, entries: map[Place]*entry{}, keys: map[uint64][]Place{}}
}

// Len returns the number of records in the table.
func (t *Table) Len() int { return len(t.entries) }

// Fresh returns how many records can be handed out now for the first time.
func (t *Table) Fresh() int { return t.fresh.len() }

// Ready returns how many records that are not fresh can be handed out now without a claim.
func (t *Table) Ready() int { return t.ready.len() }

// Leased returns how many records are leased at the given time.
func (t *Table) Leased(now time.Time) int {
	t.Expire(now)
	return len(t.out)
}

// Blocked returns how many records wait for an earlier record with the same key.
func (t *Table) Blocked() int { return t.blocked }

// Add adds a record that was never handed out. Only an ordered table uses key.
func (t *Table) Add(p Place, key uint64) {
	t.add(&entry{Delivery: Delivery{Place: p}, key: key, first: true}, time.Time{})
}

// AddDelayed does what Add does, for a record that must not be handed out before the time from.
func (t *Table) AddDelayed(p Place, key uint64, from time.Time) {
	t.add(&entry{Delivery: Delivery{Place: p}, key: key, first: true}, from)
}

// AddAgain adds a record that was handed out before; d is its last delivery. The next delivery needs a
// claim, and must not begin before the time from.
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

// enqueue puts a record in the list of fresh records if the record was never handed out and is not
// delayed. Otherwise the record waits until e.at.
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

// leave takes a record out of the list or heap of its phase.
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
	e.phase = claiming // the record is in no list or heap now
}

// Remove removes a record. Callers remove records that are done, dead letters, or no longer in the log.
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

// RemoveBelow removes the records of a partition before an offset.
func (t *Table) RemoveBelow(partition format.Partition, before format.Offset) {
	var below []Place
	for p := range t.entries {
		if p.Partition == partition && p.Offset < before {
			below = append(below, p)
		}
	}
	slices.SortFunc(below, func(a, b Place) int { return b.Compare(a) }) // in descending order, so that no removal unblocks a record that has to be removed, too
	for _, p := range below {
		t.Remove(p)
	}
}

// Due counts the records in phase later whose time has come, up to most.
func (t *Table) Due(now time.Time, most int) int { return t.again.due(0, now, most) }

// WaitUntil counts the records that wait until exactly the given time. Records that were never handed out
// are not counted.
func (t *Table) WaitUntil(at time.Time) (n int) {
	for _, e := range t.entries {
		if (e.phase == later || e.phase == blocked) && !e.first && e.at.Equal(at) {
			n++
		}
	}
	return n
}

// PutBack ends delivery d, which failed. The record may be handed out again from the time from on. PutBack leaves
// unchanged a record that waits for an earlier one of its key. It returns false if the table does not have the record.
func (t *Table) PutBack(d Delivery, from time.Time) bool {
	e := t.entries[d.Place]
	if e == nil || e.phase == blocked {
		return e != nil
	}
	t.leave(e)
	e.Attempt, e.first = d.Attempt, false
	t.putLater(e, from)
	return true
}

// Claiming reports whether the record of d still needs the claim for which Take returned d in Claims. The
// claim is not needed if a worker has put the record back meanwhile, or if the record is done.
func (t *Table) Claiming(d Delivery) bool {
	e := t.entries[d.Place]
	return e != nil && e.phase == claiming && e.Attempt == d.Attempt
}

// Claimed notes that attempt d is in the log, so that the record may be handed out with this attempt.
// If the previous delivery is still leased, Claimed ends that lease.
func (t *Table) Claimed(d Delivery) {
	e := t.entries[d.Place]
	if e == nil || e.phase == blocked || e.Attempt >= d.Attempt {
		return
	}
	t.leave(e)
	e.Attempt, e.first, e.maySucceed, e.phase = d.Attempt, false, false, ready
	t.ready.push(e)
}

// Unclaimed notes that a claim of the record's next attempt has failed. mayCommit says that the outcome of
// the claim is unknown instead: the claim may be in the log, or may get there later. again is the earliest
// time at which Take asks for another claim of this record.
func (t *Table) Unclaimed(p Place, again time.Time, mayCommit bool) {
	if e := t.entries[p]; e != nil && e.phase == claiming {
		e.maySucceed = e.maySucceed || mayCommit
		t.putLater(e, again)
	}
}

// Unneeded removes a record that Take returned in Claims as delivery d. The caller calls Unneeded when it
// finds that the record is done or a dead letter, so that no claim is needed. Unneeded keeps the record if
// the record was added again since, or if its next attempt was counted since.
func (t *Table) Unneeded(d Delivery) {
	if e := t.entries[d.Place]; e != nil && e.phase == claiming && e.Attempt == d.Attempt {
		t.Remove(d.Place)
	}
}

// Return takes back a delivery that no worker got.
func (t *Table) Return(d Delivery) {
	e := t.entries[d.Place]
	if e == nil || e.phase != leased || e.Attempt != d.Attempt {
		return
	}
	t.leave(e)
	e.phase = ready
	t.ready.push(e)
}

// Extend moves the end of the lease of delivery d. It also renews a lease that has run out, if no worker got
// the record since. Extend returns false if d is not the record's last delivery, or if a claim of the next
// attempt is under way or may be in the log.
func (t *Table) Extend(d Delivery, until time.Time) bool {
	e := t.entries[d.Place]
	if e == nil || e.Attempt != d.Attempt || e.phase != leased && e.phase != later || e.first || e.maySucceed {
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

// Delivered calls f with the last delivery of every record that was handed out. It leaves out a first
// delivery that no worker got: the next owner may make this delivery again.
func (t *Table) Delivered(f func(Delivery)) {
	for _, e := range t.entries {
		if e.Attempt > 1 || e.Attempt == 1 && e.phase != ready {
			f(e.Delivery)
		}
	}
}

// Expire ends the leases that have run out by now. Their records wait for the next delivery.
func (t *Table) Expire(now time.Time) {
	for len(t.out) > 0 && !t.out[0].at.After(now) {
		e := t.out[0]
		t.leave(e)
		t.putLater(e, now)
	}
}

// NextEnd returns when the first lease ends; false if no record is leased.
func (t *Table) NextEnd() (at time.Time, ok bool) {
	if len(t.out) == 0 {
		return time.Time{}, false
	}
	return t.out[0].at, true
}

// Next returns the next time at which a lease runs out or a waiting record becomes due; false
// if there is no such time.
func (t *Table) Next() (at time.Time, ok bool) {
	if len(t.again) > 0 {
		at, ok = t.again[0].at, true
	}
	if len(t.out) > 0 && (!ok || t.out[0].at.Before(at)) {
		at, ok = t.out[0].at, true
	}
	return at, ok
}
