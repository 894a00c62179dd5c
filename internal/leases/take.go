package leases

import (
	"container/heap"
	"time"
)

// Taken is what [Table.Take] found.
type Taken struct {
	// Out has the deliveries that are leased now.
	Out []Delivery
	// Claims has the last deliveries of records that need a claim now: at most as many as the caller of
	// Take allows. If the record has attempts left, the caller commits the claim; otherwise it makes the
	// record a dead letter. It reports the outcome with Claimed, Unclaimed, Unneeded or Remove.
	Claims []Delivery
}

// Take leases up to most records until the given time. If a Holder is given, it counts these records. Records
// that need a claim (see the package comment) are not leased yet: Take returns up to claims of them in
// Claims.
//
// If there are both fresh records and other records (handed out before, or delayed and due now), Take
// takes half of most from each kind, or more from one kind if the other has too few. So many fresh
// records don't make the other records wait, and many retries don't make the fresh records wait.
func (t *Table) Take(now, until time.Time, most, claims int, to *Holder) (got Taken) {
	t.Expire(now)
	share := most
	if t.Fresh() > 0 {
		share = most / 2
		if most%2 == 1 && t.turn {
			share++
		}
		if most%2 == 1 && (t.ready.len() > 0 || t.due(now)) {
			t.turn = !t.turn
		}
	}
	t.takeAgain(now, until, share, claims, to, &got)
	for len(got.Out) < most {
		e := t.fresh.pop()
		if e == nil {
			break
		}
		t.hand(e, until, to, &got)
	}
	if left := most - len(got.Out) - len(got.Claims); left > 0 {
		t.takeAgain(now, until, left, claims, to, &got)
	}
	return got
}

func (t *Table) due(now time.Time) bool { return len(t.again) > 0 && !t.again[0].at.After(now) }

func (t *Table) hand(e *entry, until time.Time, to *Holder, got *Taken) {
	if e.first {
		e.Attempt, e.first = 1, false
	}
	e.holder = to
	t.lease(e, until)
	got.Out = append(got.Out, e.Delivery)
}

// takeAgain takes up to most records that are not in the list of fresh records.
func (t *Table) takeAgain(now, until time.Time, most, claims int, to *Holder, got *Taken) {
	for ; most > 0; most-- {
		e := t.ready.pop()
		if e != nil {
			t.hand(e, until, to, got)
			continue
		}
		if !t.due(now) || !t.again[0].first && len(got.Claims) >= claims {
			return
		}
		e = heap.Pop(&t.again).(*entry)
		if e.first {
			t.hand(e, until, to, got)
			continue
		}
		e.phase = claiming
		got.Claims = append(got.Claims, e.Delivery)
	}
}

// fifo is a list of records in one phase, first in, first out. A record that leaves the phase stays in the
// field list until pop skips the record.
type fifo struct {
	list []*entry
	gone int // how many records of list have left the phase
	of   phase
}

func (l *fifo) len() int { return len(l.list) - l.gone }

func (l *fifo) push(e *entry) {
	l.of = e.phase
	l.list = append(l.list, e)
}

// pop removes and returns the first record; nil if there is none.
func (l *fifo) pop() *entry {
	for len(l.list) > 0 {
		e := l.list[0]
		l.list[0] = nil
		l.list = l.list[1:]
		if e.phase == l.of {
			e.phase = claiming // the record is in no list or heap now
			return e
		}
		l.gone--
	}
	l.list = nil
	return nil
}

// byTime is a heap of records, ordered by entry.at.
type byTime []*entry

func (h byTime) Len() int { return len(h) }
func (h byTime) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].Compare(h[j].Place) < 0
}

// due counts the records whose time has come, up to most, in the part of the heap that begins at index i:
// the record at i, and the records below it in the tree.
func (h byTime) due(i int, now time.Time, most int) (n int) {
	if i >= len(h) || most <= 0 || h[i].at.After(now) {
		return 0
	}
	n = 1 + h.due(2*i+1, now, most-1)
	return n + h.due(2*i+2, now, most-n)
}

func (h byTime) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *byTime) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *byTime) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
