package fsck

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/format"
)

const most = 20 // the highest slot in these tests

func drawSpans(t *rapid.T, label string) spans {
	var s spans
	for q := format.Seq(1); q <= most; q++ {
		if rapid.Bool().Draw(t, label) {
			s.add(q)
		}
	}
	return s
}

// Spans must behave like sets of slots.
func TestSpansAreSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, other := drawSpans(t, "s"), drawSpans(t, "other")
		end := format.Seq(rapid.IntRange(0, most+2).Draw(t, "end"))
		gaps, rest := s.gaps(end), s.without(other)
		var count uint64
		for q := format.Seq(1); q <= most+2; q++ {
			if got, want := gaps.has(q), q <= end && !s.has(q); got != want {
				t.Fatalf("gaps of %v up to %d have %d: %v", s, end, q, got)
			}
			if got, want := rest.has(q), s.has(q) && !other.has(q); got != want {
				t.Fatalf("%v without %v has %d: %v", s, other, q, got)
			}
			if s.has(q) {
				count++
			}
		}
		if s.count() != count {
			t.Fatalf("%v has %d slots, it says %d", s, count, s.count())
		}
	})
}

func TestSpansGoToTheLastNumber(t *testing.T) {
	var s spans
	s.add(math.MaxUint64 - 1)
	s.add(math.MaxUint64)
	if got := s.gaps(math.MaxUint64); !slices.Equal(got, spans{{1, math.MaxUint64 - 2}}) || s.count() != 2 {
		t.Errorf("gaps of %v are %v", s, got)
	}
}
