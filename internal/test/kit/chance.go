package kit

import (
	"math/rand/v2"
	"runtime"
)

// NewRand returns random numbers that are the same in each run.
func NewRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// Heap returns the size of all reachable objects, in bytes.
func Heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
