package state

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func (s *sorted[T]) check(t *rapid.T, want []T, from T, compare func(a, b T) int) {
	if s.count != len(want) {
		t.Fatalf("%d items, want %d", s.count, len(want))
	}
	for _, c := range s.chunks {
		if len(c) == 0 || len(c) > sortedChunkMax {
			t.Fatalf("a chunk of %d items", len(c))
		}
	}
	at, _ := slices.BinarySearchFunc(want, from, compare)
	if got := slices.Collect(s.from(from, compare)); !slices.EqualFunc(got, want[at:], func(a, b T) bool { return compare(a, b) == 0 }) {
		t.Fatalf("from %v on: %v, want %v", from, got, want[at:])
	}
}

func TestSortedIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s sorted[int]
		var want []int
		// Runs fill chunks, single items split and empty them.
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			first := rapid.IntRange(0, 3000).Draw(t, "first")
			run := rapid.SampledFrom([]int{1, 1, 40, 700}).Draw(t, "run")
			adds := rapid.Bool().Draw(t, "adds")
			for x := first; x < first+run; x++ {
				at, found := slices.BinarySearch(want, x)
				switch {
				case adds && !found:
					s.add(x, cmp.Compare[int])
					want = slices.Insert(want, at, x)
				case !adds:
					s.remove(x, cmp.Compare[int])
					if found {
						want = slices.Delete(want, at, at+1)
					}
				}
			}
			s.check(t, want, rapid.IntRange(0, 3100).Draw(t, "from"), cmp.Compare[int])
		}
	})
}

func TestSmallestAreTheFirstInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOfDistinct(rapid.IntRange(0, 1000), rapid.ID[int]).Draw(t, "items")
		most := rapid.IntRange(0, 20).Draw(t, "most")
		got := smallest(slices.Values(items), most, cmp.Compare[int])
		slices.Sort(items)
		if !slices.Equal(got, items[:min(most, len(items))]) {
			t.Fatalf("%v, want the first %d of %v", got, most, items)
		}
	})
}
