package state

import (
	"maps"
	"slices"
)

// shrinkMin is how much a map or list must have held to be worth a copy.
const shrinkMin = 64

// shrunkMap returns m, or a copy of what is left in it once that is less than a quarter of
// the most it held: a map keeps the memory of all that it ever held. Call it after a deletion,
// with a count that belongs to the map.
func shrunkMap[M ~map[K]V, K comparable, V any](m M, most *int) M {
	*most = max(*most, len(m)+1)
	if *most < shrinkMin || len(m) >= *most/4 {
		return m
	}
	*most = len(m)
	return rebuilt(m)
}

// rebuilt returns a copy of m that has memory for what m holds. [maps.Clone] keeps what it had.
func rebuilt[M ~map[K]V, K comparable, V any](m M) M {
	c := make(M, len(m))
	maps.Copy(c, m)
	return c
}

// shrunkList is the same of a list that was cut at its end.
func shrunkList[S ~[]E, E any](l S) S {
	if cap(l) < shrinkMin || len(l) >= cap(l)/4 {
		return l
	}
	return slices.Clone(l)
}
