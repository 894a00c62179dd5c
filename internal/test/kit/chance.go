package kit

import (
	"math/rand/v2"
	"runtime"
)

// NewRand returns chance that is the same each time.
func NewRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// Heap returns the bytes of what is reachable.
func Heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
