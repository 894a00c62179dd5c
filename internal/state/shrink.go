package state

import (
	"maps"
	"slices"
)

// shrinkMin is how much a map or list must have held to be worth a copy.
const shrinkMin = 64

// shrunkMap returns m, or a copy of it if it holds less than a quarter of the most that it held,
// because a map keeps the memory of its largest size. Call it after a deletion, with a count that
// belongs to the map.
func shrunkMap[M ~map[K]V, K comparable, V any](m M, most *int) M {
	*most = max(*most, len(m)+1)
	if *most < shrinkMin || len(m) >= *most/4 {
		return m
	}
	*most = len(m)
	return rebuilt(m)
}

// rebuilt returns a copy of m with memory for the present elements only; [maps.Clone] keeps all.
func rebuilt[M ~map[K]V, K comparable, V any](m M) M {
	c := make(M, len(m))
	maps.Copy(c, m)
	return c
}

// shrunkList does the same for a list that was cut at its end.
func shrunkList[S ~[]E, E any](l S) S {
	if cap(l) < shrinkMin || len(l) >= cap(l)/4 {
		return l
	}
	return slices.Clone(l)
}
