package state

import (
	"slices"
	"sort"
	"time"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// KeyedFor is for how long, in the fold's time, an append is remembered by its
// idempotency key: the 24 hours that are promised, and one more, in which a broker
// may still commit a retry that came in the last moment. It is part of the format:
// every broker forgets at the same commit.
const KeyedFor = 25 * time.Hour

// Keyed is an append that is remembered by its idempotency key.
type Keyed struct {
	// Key is a hash of the key and what it is for, Print one of the request.
	Key, Print format.Digest
	Time       int64 // fold's time in microseconds
	Ranges     []format.KeyedRange
}

// expired tells whether the append is forgotten at that time.
func (k *Keyed) expired(at int64) bool { return k.Time <= at-KeyedFor.Microseconds() }

// keyed is the appends that are remembered, the oldest first. Entries are never
// changed, so views share them.
type keyed struct {
	first uint64 // number of list[0], counted from the first that ever was
	list  []Keyed
	index map[format.Digest]uint64 // number by key
	gone  int                      // from the list, whose memory it may still have
}

// keyedMemory is about what an append that is remembered takes, with its place in the map.
const keyedMemory = int64(unsafe.Sizeof(Keyed{})) + 2*24

func (k *Keyed) memory() int64 {
	return keyedMemory + int64(len(k.Ranges))*int64(unsafe.Sizeof(format.KeyedRange{}))
}

// Keyed returns the append that is remembered under a key at that time.
func (s *State) Keyed(key format.Digest, at int64) (Keyed, bool) {
	n, ok := s.keyed.index[key]
	if !ok || s.keyed.list[n-s.keyed.first].expired(at) {
		return Keyed{}, false
	}
	return s.keyed.list[n-s.keyed.first], true
}

// KeyedCount returns how many appends are remembered at that time.
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
	s.memory += k.memory()
}

// expireKeyed forgets what is too old at the time of the fold.
func (s *State) expireKeyed() {
	n := len(s.keyed.list) - s.KeyedCount(s.time)
	if n == 0 {
		return
	}
	for i := range s.keyed.list[:n] {
		k := &s.keyed.list[i]
		delete(s.keyed.index, k.Key)
		s.memory -= k.memory()
	}
	s.keyed.first += uint64(n)
	s.keyed.list = s.keyed.list[n:]
	s.keyed.gone += n
	if s.keyed.gone > 3*len(s.keyed.list) {
		s.keyed.list = slices.Clone(s.keyed.list) // a map and a list keep what they once grew to
		s.keyed.index = rebuilt(s.keyed.index)
		s.keyed.gone = 0
	}
}
