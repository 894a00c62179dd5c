package state

import (
	"maps"
	"slices"
)

// shrinkMin is a number of elements. A map or list that never had room for so many elements is
// not copied, because a copy would save little memory.
const shrinkMin = 64

// shrunkMap returns m, or a smaller copy: a map keeps the memory of its largest size, so
// shrunkMap copies m when it holds less than a quarter of that size. most is the largest size
// so far; each map needs its own variable for it. Callers must call shrunkMap after each
// deletion.
func shrunkMap[M ~map[K]V, K comparable, V any](m M, most *int) M {
	*most = max(*most, len(m)+1)
	if *most < shrinkMin || len(m) >= *most/4 {
		return m
	}
	*most = len(m)
	return rebuilt(m)
}

// rebuilt returns a copy of m that has memory for the present elements only ([maps.Clone] keeps
// all memory).
func rebuilt[M ~map[K]V, K comparable, V any](m M) M {
	c := make(M, len(m))
	maps.Copy(c, m)
	return c
}

// shrunkList returns l, or a copy if l fills less than a quarter of its capacity.
func shrunkList[S ~[]E, E any](l S) S {
	if cap(l) < shrinkMin || len(l) >= cap(l)/4 {
		return l
	}
	return slices.Clone(l)
}
