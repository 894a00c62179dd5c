package state

import (
	"maps"
	"slices"
)

// shrinkMin is the number of elements that a map or list must have held to be worth a copy.
const shrinkMin = 64

// shrunkMap returns m, or a copy if m holds less than a quarter of its largest size, because a
// map keeps the memory of its largest size. most is the largest size so far; each map needs its
// own variable for it. Call shrunkMap after each deletion.
func shrunkMap[M ~map[K]V, K comparable, V any](m M, most *int) M {
	*most = max(*most, len(m)+1)
	if *most < shrinkMin || len(m) >= *most/4 {
		return m
	}
	*most = len(m)
	return rebuilt(m)
}

// rebuilt returns a copy of m with memory for the present elements only; [maps.Clone] keeps all
// memory.
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
