package state

import (
	"slices"
	"sort"
	"time"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// KeyedFor is how long, in the log's time, the state keeps the answer to an append with an
// idempotency key, even if the topic is deleted meanwhile. Seb promises 24 hours. The extra hour
// is longer than a request may wait for its commit: if a retry comes within the 24 hours, the state
// still has the answer when a broker builds the commit of the retry. KeyedFor is part of the
// format: every broker forgets an answer at the same commit.
const KeyedFor = 25 * time.Hour

// Keyed is an append with an idempotency key, as the state keeps it.
type Keyed struct {
	// Key is a hash of three things: the idempotency key, the scope of that key (such as a
	// topic), and the caller. Print is a hash of the request.
	Key, Print format.Digest
	Time       int64 // the log's time in microseconds
	Ranges     []format.KeyedRange
}

// expired reports whether, at the given time, the state has forgotten the append.
func (k *Keyed) expired(at int64) bool { return k.Time <= at-KeyedFor.Microseconds() }

// keyed is a list of appends with an idempotency key, the oldest first. The elements never
// change, so a View shares them.
type keyed struct {
	first uint64 // number of list[0], counted from the first append that this State has got, which has 0
	list  []Keyed
	index map[format.Digest]uint64 // the number of the append with that Keyed.Key
	bytes int64                    // memory of list, without what was cut off
	gone  int                      // how many elements were cut off the front of list, and still take memory

	pages   []page // hold the first elements of list; a View shares it
	unread  bool   // list lacks the elements in pages
	unpaged int64  // about how many bytes the elements that are in no page take in a snapshot
}

// keyedMemory is the approximate memory in bytes of one append and its entry in the map, without
// the append's ranges.
const keyedMemory = int64(unsafe.Sizeof(Keyed{})) + 2*24

func (k *Keyed) memory() int64 {
	return keyedMemory + int64(len(k.Ranges))*int64(unsafe.Sizeof(format.KeyedRange{}))
}

// Keyed returns the append with that key, even if its topic is deleted. It returns false if
// there is no such append, or if the append's idempotency key has expired by the time at.
func (s *State) Keyed(key format.Digest, at int64) (Keyed, bool) {
	n, ok := s.keyed.index[key]
	if !ok || s.keyed.list[n-s.keyed.first].expired(at) {
		return Keyed{}, false
	}
	return s.keyed.list[n-s.keyed.first], true
}

// KeyedCount returns how many appends the state has not forgotten at the given time.
func (s *State) KeyedCount(at int64) int {
	list := s.keyed.list
	return len(list) - sort.Search(len(list), func(i int) bool { return !list[i].expired(at) })
}

func (s *State) addKeyed(k Keyed) {
	if s.keyed.index == nil {
		s.keyed.index = map[format.Digest]uint64{}
	}
	s.keyed.index[k.Key] = s.keyed.first + uint64(len(s.keyed.list))
	s.keyed.list = append(s.keyed.list, k)
	s.keyed.bytes += k.memory()
	s.keyed.unpaged += k.snapshotBytes()
	s.memory += k.memory()
}

// expireKeyed forgets the appends that are too old at the log's time. Nothing else removes an
// append, not even the deletion of its topic.
func (s *State) expireKeyed() {
	n := len(s.keyed.list) - s.KeyedCount(s.time)
	if n == 0 {
		return
	}
	paged := s.keyed.paged()
	for i := range s.keyed.list[:n] {
		k := &s.keyed.list[i]
		if i >= paged {
			s.keyed.unpaged -= k.snapshotBytes()
		}
		delete(s.keyed.index, k.Key)
		s.keyed.bytes -= k.memory()
		s.memory -= k.memory()
	}
	s.keyed.first += uint64(n)
	s.keyed.list = s.keyed.list[n:]
	s.keyed.gone += n
	if s.keyed.gone > 3*len(s.keyed.list) {
		s.keyed.list = slices.Clone(s.keyed.list) // a list and a map that shrink keep their memory until they are copied
		s.keyed.index = rebuilt(s.keyed.index)
		s.keyed.gone = 0
	}
	s.dropPages()
}
