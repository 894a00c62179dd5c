package trigger

import (
	"cmp"
	"container/heap"
)

// timer is the next deadline of an entity. A timer whose entity waits for another deadline meanwhile is ignored when it is due.
type timer struct {
	due int64 // microseconds since 1970
	key entityKey
}

// timers are ordered by the deadline, and at one deadline by trigger, entity and version.
type timers struct{ heap timerHeap }

// set adds a timer.
func (t *timers) set(x timer) { heap.Push(&t.heap, x) }

// next removes the first timer, if it is due up to a time. It returns equal timers once.
func (t *timers) next(to int64) (first timer, ok bool) {
	if len(t.heap) == 0 || t.heap[0].due > to {
		return timer{}, false
	}
	first = heap.Pop(&t.heap).(timer)
	for len(t.heap) > 0 && t.heap[0] == first {
		heap.Pop(&t.heap)
	}
	return first, true
}

// first returns when the first timer is due.
func (t *timers) first() (due int64, ok bool) {
	if len(t.heap) == 0 {
		return 0, false
	}
	return t.heap[0].due, true
}

type timerHeap []timer

func (h timerHeap) Len() int      { return len(h) }
func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h timerHeap) Less(i, j int) bool {
	a, b := &h[i], &h[j]
	if a.due != b.due {
		return a.due < b.due
	}
	return cmp.Or(
		cmp.Compare(a.key.of.name, b.key.of.name), cmp.Compare(a.key.entity, b.key.entity), cmp.Compare(a.key.of.number, b.key.of.number),
	) < 0
}

// Push implements heap.Interface.
func (h *timerHeap) Push(x any) { *h = append(*h, x.(timer)) }

// Pop implements heap.Interface.
func (h *timerHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
