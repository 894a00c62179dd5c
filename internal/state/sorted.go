package state

import (
	"iter"
	"slices"
	"sort"
)

// sorted is a set of elements, in the order of a function compare. Callers pass compare to each
// method, and must always pass the same function. The elements are in chunks. So adding or
// removing an element does not move all others, and an iteration can begin anywhere.
//
// A removal also frees memory: a large chunk is copied when it fills less than half of its
// capacity, and merged with a neighbour when the two fill at most half of a chunk.
type sorted[T any] struct {
	chunks [][]T // none is empty
	count  int
}

// sortedChunkMax is how many elements a chunk may hold.
const sortedChunkMax = 512

// chunkOf returns the index of the chunk that has x, or to which add would add x; 0 if the set
// is empty.
func (s *sorted[T]) chunkOf(x T, compare func(a, b T) int) int {
	return max(0, sort.Search(len(s.chunks), func(i int) bool { return compare(s.chunks[i][0], x) > 0 })-1)
}

// add adds x. The set must not have an equal element.
func (s *sorted[T]) add(x T, compare func(a, b T) int) {
	s.count++
	if len(s.chunks) == 0 {
		s.chunks = [][]T{{x}}
		return
	}
	i := s.chunkOf(x, compare)
	c := s.chunks[i]
	at, _ := slices.BinarySearchFunc(c, x, compare)
	switch {
	case len(c) < sortedChunkMax:
		s.chunks[i] = slices.Insert(c, at, x)
	case at == len(c) && i == len(s.chunks)-1: // don't split the chunk: so all chunks become full if elements come in ascending order
		s.chunks = slices.Insert(s.chunks, i+1, []T{x})
	default:
		half := len(c) / 2
		behind := slices.Clone(c[half:])
		clear(c[half:])
		s.chunks[i] = c[:half]
		s.chunks = slices.Insert(s.chunks, i+1, behind)
		if at > half {
			i, at = i+1, at-half
		}
		s.chunks[i] = slices.Insert(s.chunks[i], at, x)
	}
}

// remove removes the element that is equal to x, if the set has it.
func (s *sorted[T]) remove(x T, compare func(a, b T) int) {
	if len(s.chunks) == 0 {
		return
	}
	i := s.chunkOf(x, compare)
	at, found := slices.BinarySearchFunc(s.chunks[i], x, compare)
	if !found {
		return
	}
	s.count--
	s.chunks[i] = slices.Delete(s.chunks[i], at, at+1)
	s.tidy(i)
}

// tidy frees memory after an element was removed from the chunk with index i. It removes this
// chunk if the chunk is empty. It merges the chunk with a neighbour if the two fill at most half of a
// chunk. Otherwise it copies the chunk if the chunk is large and fills less than half of its capacity.
func (s *sorted[T]) tidy(i int) {
	c := s.chunks[i]
	gone := len(c) == 0
	for _, j := range [...]int{i - 1, i + 1} {
		if gone || j < 0 || j >= len(s.chunks) || len(s.chunks[j])+len(c) > sortedChunkMax/2 {
			continue
		}
		s.chunks[j] = slices.Concat(s.chunks[min(i, j)], s.chunks[max(i, j)])
		gone = true
	}
	switch {
	case gone:
		s.chunks = shrunkList(slices.Delete(s.chunks, i, i+1))
	case cap(c) >= shrinkMin && len(c) < cap(c)/2:
		s.chunks[i] = slices.Clone(c)
	}
}

// from iterates over the elements that are not before x, in order. The set must not change
// during the iteration.
func (s *sorted[T]) from(x T, compare func(a, b T) int) iter.Seq[T] {
	return func(yield func(T) bool) {
		if len(s.chunks) == 0 {
			return
		}
		i := s.chunkOf(x, compare)
		at, _ := slices.BinarySearchFunc(s.chunks[i], x, compare)
		for _, c := range s.chunks[i:] {
			for _, item := range c[at:] {
				if !yield(item) {
					return
				}
			}
			at = 0
		}
	}
}

// smallest returns the smallest items, sorted by compare. It returns at most the given number
// of items, and needs memory only for the items that it returns.
func smallest[T any](items iter.Seq[T], most int, compare func(a, b T) int) []T {
	var list []T
	for x := range items {
		full := len(list) == most
		if full && (most == 0 || compare(list[most-1], x) <= 0) {
			continue
		}
		if full {
			list = list[:most-1]
		}
		at, _ := slices.BinarySearchFunc(list, x, compare)
		list = slices.Insert(list, at, x)
	}
	return list
}
