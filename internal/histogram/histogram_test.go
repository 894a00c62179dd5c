package histogram

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/simple-event-broker/seb/metric"
)

func TestBucketsHoldWhatIsAtMostTheirBound(t *testing.T) {
	h := New([]float64{1, 2, 4})
	for _, x := range []float64{-1, 0.5, 1, 1.5, 2, 4.25, 100} {
		h.Observe(x)
	}
	want := &metric.Distribution{Count: 7, Sum: 108.25, Buckets: []metric.Bucket{{Max: 1, Count: 3}, {Max: 2, Count: 5}, {Max: 4, Count: 5}}}
	if diff := cmp.Diff(want, h.Read()); diff != "" {
		t.Error(diff)
	}
}

func TestExponentialBoundsAreThoseOfPrometheus(t *testing.T) {
	if got, want := Exponential(0.0005, 2, 17), prometheus.ExponentialBuckets(0.0005, 2, 17); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
