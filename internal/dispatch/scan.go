package dispatch

import (
	"container/heap"
	"hash/maphash"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// walkLocked makes records known that may be handed out, until there are enough fresh
// ones. Where keys keep their order it has to read the records; then it returns the place
// of some that it needs, which the caller loads before it calls again.
func (d *Dispatcher) walkLocked(now time.Time, enough int) (need *leases.Place) {
	d.riseLocked(now)
	d.riseHeldLocked(now, enough)
	for d.wantsLocked(enough) {
		i, ok := d.nextPartLocked()
		if !ok {
			return nil
		}
		if d.config.Ordered {
			if from := d.parts[i].next; d.chunks.at(int32(i), from) == nil {
				return &leases.Place{Partition: int32(i), Offset: from}
			}
		}
		d.viewOwned(func(t *state.Topic, q *state.Queue) { d.stepLocked(t, q, i, now, enough) })
	}
	return nil
}

// wantsLocked tells whether more records are to become known, so that there are enough fresh ones.
func (d *Dispatcher) wantsLocked(enough int) bool { return d.table.Fresh() < enough && d.roomLocked() }

// roomLocked tells whether more records may become known.
func (d *Dispatcher) roomLocked() bool {
	return d.table.Len() < knownMax && d.table.Blocked() < blockedMax
}

// nextPartLocked returns a partition that has records which were not looked at and may be
// handed out. It skips what is done.
func (d *Dispatcher) nextPartLocked() (i int, ok bool) {
	d.viewOwned(func(t *state.Topic, q *state.Queue) {
		d.growLocked(len(t.Partitions))
		for k := 0; k < len(d.parts) && !ok; k++ {
			i = (d.turn + k) % len(d.parts)
			p := &d.parts[i]
			p.next = q.NextUndone(int32(i), max(p.next, t.Partitions[i].Start))
			ok = p.next < min(t.Partitions[i].End, d.limitLocked(q, i))
		}
	})
	return i, ok
}

// stepLocked looks at the next records of a partition, until there are enough fresh ones. It
// is another one's turn when it has looked at walkRecords.
func (d *Dispatcher) stepLocked(t *state.Topic, q *state.Queue, i int, now time.Time, enough int) {
	p := &d.parts[i]
	if uncertain := min(t.Partitions[i].End, q.Doubt(int32(i))); p.next < uncertain && !d.config.Ordered {
		d.holdLocked(q, int32(i), uncertain, now)
		return
	}
	if d.turn != i || d.walked >= walkRecords {
		d.turn, d.walked = i, 0
	}
	limit := min(t.Partitions[i].End, d.limitLocked(q, i), p.next+walkRecords-d.walked)
	var known *chunk
	if d.config.Ordered {
		if known = d.chunks.at(int32(i), p.next); known == nil {
			return
		}
		limit = min(limit, known.to)
	}
	from := p.next
	for o := p.next; o < limit && d.wantsLocked(enough); o = q.NextUndone(int32(i), o+1) {
		at := leases.Place{Partition: int32(i), Offset: o}
		run, delayed := d.delayAt(at, now)
		switch {
		case delayed && known == nil:
			run := delay{run.due, at.Partition, o, min(limit, run.to)}
			heap.Push(&d.delayed, run)
			o = run.to - 1
		case delayed: // those of its key that come later wait for it
			d.meetLocked(q, at, keyOf(known.key(o)), run.due)
		case known != nil:
			d.meetLocked(q, at, keyOf(known.key(o)), time.Time{})
		default:
			d.meetLocked(q, at, leases.NoKey, time.Time{})
		}
		p.next = o + 1
	}
	if d.wantsLocked(enough) {
		p.next = max(p.next, limit)
	}
	if d.walked += p.next - from; d.walked >= walkRecords || p.next >= limit {
		d.turn = i + 1
	}
}

// meetLocked makes one record known that is not done, and is not due before then. An earlier
// owner to which the store told a later time may have handed it out all the same.
func (d *Dispatcher) meetLocked(q *state.Queue, at leases.Place, key uint64, due time.Time) {
	a, listed := q.Last(at.Partition, at.Offset)
	delivery := leases.Delivery{Place: at, Number: a.Number}
	rest, rests := d.rests[at]
	delete(d.rests, at)
	again := func(from time.Time) {
		if due.After(from) {
			from = due
		}
		d.table.AddAgain(delivery, key, from)
	}
	switch {
	case a.Parked:
	case mayBeOut(a, listed):
		from := d.held // its worker may still be at it
		if until := d.extended[at]; until.After(from) {
			from = until
		}
		delete(d.extended, at)
		again(from)
	case rests:
		again(rest)
	case listed:
		again(d.opened.When(a.NotBefore))
	case due.IsZero():
		d.table.Add(at, key)
	default:
		d.table.AddDelayed(at, key, due)
	}
}

// mayBeOut tells whether an owner that was lost may have handed out the last delivery that
// the log knows of a record which is not done.
func mayBeOut(a state.Attempt, listed bool) bool {
	return !a.Parked && a.Number > 0 && (!listed || a.Tries() > 0 && a.NotBefore == 0)
}

// riseLocked makes known what has come due.
func (d *Dispatcher) riseLocked(now time.Time) {
	if len(d.delayed) == 0 || d.delayed[0].due.After(now) {
		return
	}
	d.view(func(_ *state.Topic, q *state.Queue) {
		for len(d.delayed) > 0 && !d.delayed[0].due.After(now) && d.roomLocked() {
			x := &d.delayed[0]
			if x.from = q.NextUndone(x.partition, x.from); x.from < x.to {
				d.meetLocked(q, leases.Place{Partition: x.partition, Offset: x.from}, leases.NoKey, time.Time{})
				x.from++
				continue
			}
			heap.Pop(&d.delayed)
		}
	})
}

// delay is a run of records that were passed over, since they are not due before then.
type delay struct {
	due       time.Time
	partition int32
	from, to  int64
}

// delays is a heap: the first is due first.
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

// aheadRun is a run of delayed records that were not looked at, from an offset up to another.
type aheadRun struct {
	from, to int64
	due      time.Time
}

// delay takes note of delayed records. Nobody may come for long to look at them, so it forgets
// those that are due.
func (d *Dispatcher) delay(partition int32, x aheadRun, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.ahead[partition]
	if len(list) == cap(list) {
		list = slices.DeleteFunc(list, func(y aheadRun) bool { return !y.due.After(now) })
		list = slices.Grow(list, len(list)+1) // so that it is looked through once for each time that it doubles
	}
	d.ahead[partition] = append(list, x)
}

// delayAt returns the run of delayed records that an offset is in, if it is not due.
// Offsets ascend from call to call.
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

// keyOf returns what stands for a record's key. That two keys may have the same does no
// harm: it orders what need not be.
func keyOf(key []byte) uint64 {
	if key == nil {
		return leases.NoKey
	}
	return max(1, maphash.Bytes(keySeed, key))
}
