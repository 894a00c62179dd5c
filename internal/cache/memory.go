package cache

import (
	"bytes"
	"container/list"
	"sync"
)

// entryOverhead is the memory in bytes that an entry takes without its batch: its slot in the
// map, its list element, and the entry itself.
const entryOverhead = 256

// memory is the upper layer of the cache. It evicts the least recently used batch first.
type memory struct {
	mu      sync.Mutex
	max     int64
	bytes   int64
	byRange map[Range]*list.Element // elements of order
	order   *list.List              // of *entry, most recently used first
	hits    uint64
	evicted uint64
}

type entry struct {
	r Range
	b []byte
}

// cost returns the memory of an entry in bytes. It counts the capacity of b, since all of it
// stays allocated.
func (e *entry) cost() int64 { return int64(cap(e.b)) + entryOverhead }

func (m *memory) init(bytesMax int64) {
	m.max = bytesMax
	m.byRange = make(map[Range]*list.Element)
	m.order = list.New()
}

func (m *memory) get(r Range) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.byRange[r]
	if !ok {
		return nil
	}
	m.hits++
	m.order.MoveToFront(e)
	return e.Value.(*entry).b
}

func (m *memory) has(r Range) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.byRange[r]
	return ok
}

func (m *memory) add(r Range, b []byte) {
	if cap(b) > 2*len(b) {
		// b has much unused capacity, or is a small slice of a large allocation.
		b = bytes.Clone(b)
	}
	e := &entry{r, b}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.byRange[r]; ok {
		m.order.MoveToFront(old)
		return
	}
	if e.cost() > m.max {
		return // even an empty cache has no room for e
	}
	m.evictToLocked(m.max - e.cost())
	m.byRange[r] = m.order.PushFront(e)
	m.bytes += e.cost()
}

func (m *memory) setMax(bytesMax int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.max = bytesMax
	m.evictToLocked(bytesMax)
}

func (m *memory) shrink(n int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.bytes
	m.evictToLocked(before - n)
	return before - m.bytes
}

// evictToLocked evicts entries until at most bytesMax bytes remain.
func (m *memory) evictToLocked(bytesMax int64) {
	for m.bytes > max(bytesMax, 0) {
		last := m.order.Back()
		e := m.order.Remove(last).(*entry)
		delete(m.byRange, e.r)
		m.bytes -= e.cost()
		m.evicted++
	}
}

func (m *memory) stats(s *Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.MemoryBytes, s.MemoryMax, s.MemoryEntries = m.bytes, m.max, len(m.byRange)
	s.MemoryHits, s.MemoryEvicted = m.hits, m.evicted
}
