package state

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func (s *sorted[T]) check(t rapid.TB, want []T, from T, compare func(a, b T) int) {
	if s.count != len(want) {
		t.Fatalf("%d items, want %d", s.count, len(want))
	}
	for i, c := range s.chunks {
		if len(c) == 0 || len(c) > sortedChunkMax || cap(c) >= shrinkMin && len(c) < cap(c)/2 {
			t.Fatalf("a chunk of %d items, with memory for %d", len(c), cap(c))
		}
		if i > 0 && len(s.chunks[i-1])+len(c) <= sortedChunkMax/2 {
			t.Fatalf("a chunk of %d items behind one of %d", len(c), len(s.chunks[i-1]))
		}
	}
	if cap(s.chunks) > max(shrinkMin, 4*len(s.chunks)) {
		t.Fatalf("%d chunks, with memory for %d", len(s.chunks), cap(s.chunks))
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
		// Adding and removing runs of numbers fills and empties chunks; single numbers split
		// them.
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			first := rapid.IntRange(0, 3000).Draw(t, "first")
			run := rapid.SampledFrom([]int{1, 1, 40, 700}).Draw(t, "run")
			adds := rapid.Bool().Draw(t, "adds")
			down := rapid.Bool().Draw(t, "down")
			for n := range run {
				x := first + n
				if down {
					x = first + run - n
				}
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

// Elements that are added in descending order fill their chunks too. After most elements were
// removed, the set takes little memory.
func TestSortedTakesMemoryForWhatItHolds(t *testing.T) {
	var s sorted[int]
	var want []int
	for x := range sortedChunkMax {
		s.add(x, cmp.Compare[int])
		want = append(want, x)
	}
	const last = 300 * sortedChunkMax
	for x := last; x >= sortedChunkMax; x-- {
		s.add(x, cmp.Compare[int])
	}
	for x := sortedChunkMax; x <= last; x++ {
		want = append(want, x)
	}
	s.check(t, want, 0, cmp.Compare[int])
	var left []int
	for _, x := range want {
		if x%sortedChunkMax == 0 {
			left = append(left, x)
		} else {
			s.remove(x, cmp.Compare[int])
		}
	}
	s.check(t, left, 0, cmp.Compare[int])
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
