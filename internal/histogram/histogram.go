// Package histogram counts observations in fixed buckets, without names or labels.
package histogram

import (
	"slices"
	"sync"

	"github.com/simple-event-broker/seb/metric"
)

// Histogram counts observations. It is safe for concurrent use.
type Histogram struct {
	bounds []float64

	mu     sync.Mutex
	counts []uint64 // observations per bucket, not cumulative; the last bucket is for values above all bounds
	sum    float64
}

// New returns a histogram with one bucket for each bound, and one for larger values. A value that equals a
// bound is counted in the bucket of that bound. The bounds must be ascending. New does not copy them.
func New(bounds []float64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// Exponential returns count bounds, each factor times as large as the bound before: Exponential(5, 2, 3)
// returns 5, 10, 20.
func Exponential(first, factor float64, count int) []float64 {
	bounds := make([]float64, count)
	for i := range bounds {
		bounds[i] = first
		first *= factor
	}
	return bounds
}

// Observe counts x.
func (h *Histogram) Observe(x float64) {
	i, _ := slices.BinarySearch(h.bounds, x)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[i]++
	h.sum += x
}

// Read returns the counts and the sum of all observations so far.
func (h *Histogram) Read() *metric.Distribution {
	d := &metric.Distribution{Buckets: make([]metric.Bucket, len(h.bounds))}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, bound := range h.bounds {
		d.Count += h.counts[i]
		d.Buckets[i] = metric.Bucket{Max: bound, Count: d.Count}
	}
	d.Count += h.counts[len(h.bounds)]
	d.Sum = h.sum
	return d
}
