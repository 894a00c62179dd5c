package dispatch

import (
	"container/heap"
	"hash/maphash"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// scanLocked enters records into the table until the table has enough fresh ones. For an ordered queue,
// the scan needs the keys of the records. If the next record is not in memory, scanLocked returns the
// place of that record: the caller loads the records from there on, and calls scanLocked again.
func (d *Dispatcher) scanLocked(now time.Time, enough int) (need *leases.Place) {
	d.enterDueLocked(now)
	d.enterHeldRecordsLocked(now, enough)
	for d.wantsLocked(enough) {
		i, ok := d.nextPartLocked()
		if !ok {
			return nil
		}
		if d.config.Ordered {
			if from := d.parts[i].next; d.chunks.at(format.Partition(i), from) == nil {
				return &leases.Place{Partition: format.Partition(i), Offset: from}
			}
		}
		d.viewOwned(func(t *state.Topic, q *state.Queue) { d.scanPartLocked(t, q, i, now, enough) })
	}
	return nil
}

// wantsLocked tells whether the scan should go on: the table has too few fresh records, and room for
// more.
func (d *Dispatcher) wantsLocked(enough int) bool { return d.table.Fresh() < enough && d.roomLocked() }

// roomLocked tells whether the table has room for more records.
func (d *Dispatcher) roomLocked() bool {
	return d.table.Len() < knownMax && d.table.Blocked() < blockedMax
}

// nextPartLocked returns the next partition that has records to scan below the dispatch limit. Records
// that are done need no scan.
func (d *Dispatcher) nextPartLocked() (i int, ok bool) {
	d.viewOwned(func(t *state.Topic, q *state.Queue) {
		d.growLocked(len(t.Partitions))
		for k := 0; k < len(d.parts) && !ok; k++ {
			i = (d.turn + k) % len(d.parts)
			p := &d.parts[i]
			p.next = q.NextUndone(format.Partition(i), max(p.next, t.Partitions[i].Start))
			ok = p.next < min(t.Partitions[i].End, d.limitLocked(q, i))
		}
	})
	return i, ok
}

// scanPartLocked scans the next records of a partition, until the table has enough fresh ones. After
// scanRecords records, the next partition has its turn.
func (d *Dispatcher) scanPartLocked(t *state.Topic, q *state.Queue, i int, now time.Time, enough int) {
	p := &d.parts[i]
	if uncertain := min(t.Partitions[i].End, q.UncertainEnd(format.Partition(i))); p.next < uncertain && !d.config.Ordered {
		d.holdRangeLocked(q, format.Partition(i), uncertain, now)
		return
	}
	if d.turn != i || d.scanned >= scanRecords {
		d.turn, d.scanned = i, 0
	}
	limit := min(t.Partitions[i].End, d.limitLocked(q, i), p.next+scanRecords-format.Offset(d.scanned))
	var known *chunk
	if d.config.Ordered {
		if known = d.chunks.at(format.Partition(i), p.next); known == nil {
			return
		}
		limit = min(limit, known.to)
	}
	from := p.next
	for o := p.next; o < limit && d.wantsLocked(enough); o = q.NextUndone(format.Partition(i), o+1) {
		at := leases.Place{Partition: format.Partition(i), Offset: o}
		run, delayed := d.delayAt(at, now)
		switch {
		case delayed && known == nil:
			run := delay{run.due, at.Partition, o, min(limit, run.to)}
			heap.Push(&d.delayed, run)
			o = run.to - 1
		case delayed: // in the table, so that later records with the same key wait for it
			d.enterLocked(q, at, keyOf(known.key(o)), run.due)
		case known != nil:
			d.enterLocked(q, at, keyOf(known.key(o)), time.Time{})
		default:
			d.enterLocked(q, at, leases.NoKey, time.Time{})
		}
		p.next = o + 1
	}
	if d.wantsLocked(enough) {
		p.next = max(p.next, limit)
	}
	if d.scanned += int64(p.next - from); d.scanned >= scanRecords || p.next >= limit {
		d.turn = i + 1
	}
}

// enterLocked enters a record that is not done into the table. due is zero unless the record is
// delayed. Even a delayed record that is not due may be with a worker: if the store's clock was set
// back, an earlier owner may have seen a later time, and handed out the record.
func (d *Dispatcher) enterLocked(q *state.Queue, at leases.Place, key uint64, due time.Time) {
	a, listed := q.Last(at.Partition, at.Offset)
	delivery := leases.Delivery{Place: at, Attempt: a.Number}
	rest, putBacks := d.putBacks[at]
	delete(d.putBacks, at)
	again := func(from time.Time) {
		if due.After(from) {
			from = due
		}
		d.table.AddAgain(delivery, key, from)
	}
	switch {
	case a.DeadLetter:
	case mayBeOut(a, listed):
		from := d.held // an earlier owner's worker may still process the record
		if until := d.extended[at]; until.After(from) {
			from = until
		}
		delete(d.extended, at)
		again(from)
	case putBacks:
		again(rest)
	case listed:
		again(d.opened.When(a.NotBefore))
	case due.IsZero():
		d.table.Add(at, key)
	default:
		d.table.AddDelayed(at, key, due)
	}
}

// mayBeOut tells whether a record may be with a worker that got it from an earlier owner. a and listed are
// what [state.Queue.Last] returned. The record must not be done.
func mayBeOut(a state.Attempt, listed bool) bool {
	return !a.DeadLetter && a.Number > 0 && (!listed || a.Used() > 0 && a.NotBefore == 0)
}

// enterDueLocked puts delayed records that are due into the table.
func (d *Dispatcher) enterDueLocked(now time.Time) {
	if len(d.delayed) == 0 || d.delayed[0].due.After(now) {
		return
	}
	d.view(func(_ *state.Topic, q *state.Queue) {
		for len(d.delayed) > 0 && !d.delayed[0].due.After(now) && d.roomLocked() {
			x := &d.delayed[0]
			if x.from = q.NextUndone(x.partition, x.from); x.from < x.to {
				d.enterLocked(q, leases.Place{Partition: x.partition, Offset: x.from}, leases.NoKey, time.Time{})
				x.from++
				continue
			}
			heap.Pop(&d.delayed)
		}
	})
}

// delay is a run of records that were scanned before they were due.
type delay struct {
	due       time.Time
	partition format.Partition
	from, to  format.Offset
}

// delays is a heap, ordered by due.
type delays []delay

func (d delays) Len() int { return len(d) }
func (d delays) Less(i, j int) bool {
	return d[i].due.Before(d[j].due) || d[i].due.Equal(d[j].due) && d[i].from < d[j].from
}
func (d delays) Swap(i, j int) { d[i], d[j] = d[j], d[i] }

// Push implements heap.Interface.
func (d *delays) Push(x any) { *d = append(*d, x.(delay)) }

// Pop implements heap.Interface.
func (d *delays) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// aheadRun is a run of delayed records that were not scanned yet: from inclusive, to exclusive.
type aheadRun struct {
	from, to format.Offset
	due      time.Time
}

// delay notes a run of delayed records. When the partition's list is full, delay first drops the runs
// that are due, so that the list does not grow without bound while nothing is scanned.
func (d *Dispatcher) delay(partition format.Partition, x aheadRun, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.ahead[partition]
	if len(list) == cap(list) {
		list = slices.DeleteFunc(list, func(y aheadRun) bool { return !y.due.After(now) })
		list = slices.Grow(list, len(list)+1) // the capacity doubles, so delay rarely searches for runs that are due
	}
	d.ahead[partition] = append(list, x)
}

// delayAt returns the run of delayed records that contains a place; ok is false if there is none, or if
// the run is due. delayAt drops the runs before the place, so callers must pass ascending offsets of
// each partition.
func (d *Dispatcher) delayAt(at leases.Place, now time.Time) (run aheadRun, ok bool) {
	list := d.ahead[at.Partition]
	passed := 0
	for passed < len(list) && list[passed].to <= at.Offset {
		passed++
	}
	if passed > 0 {
		if list = list[passed:]; len(list) == 0 {
			delete(d.ahead, at.Partition)
		} else {
			d.ahead[at.Partition] = list
		}
	}
	if len(list) == 0 {
		return aheadRun{}, false
	}
	return list[0], list[0].from <= at.Offset && list[0].due.After(now)
}

var keySeed = maphash.MakeSeed()

// keyOf returns the hash of a record's key. Two keys may have the same hash: then the records of both keys
// are handed out one at a time, which does no harm.
func keyOf(key []byte) uint64 {
	if key == nil {
		return leases.NoKey
	}
	return max(1, maphash.Bytes(keySeed, key))
}
