package trigger

import (
	"encoding/binary"
	"slices"
	"strings"
)

// firedEntities are the entities of a page that have fired, and when. There may be millions in all pages, and most of them are never
// asked for again. So they are packed: a few bytes each, in addition to the entity and its times. The zero value has none.
type firedEntities struct {
	packed []byte   // for each entity: the length of its name, the name, the length of its times, the times
	order  []uint32 // where each entity is in packed, sorted by the name
	unused int      // bytes of packed that no entity uses
}

// at returns the entity at a place of packed.
func (f *firedEntities) at(place uint32) (entity string, times firedTimes, size int) {
	r := reader{rest: f.packed[place:]}
	entity, times = r.text(), firedTimes(r.text())
	return entity, times, len(f.packed) - int(place) - len(r.rest)
}

// find returns the index of an entity in order, or where it belongs.
func (f *firedEntities) find(entity string) (int, bool) {
	return slices.BinarySearchFunc(f.order, entity, func(place uint32, entity string) int {
		length, n := binary.Uvarint(f.packed[place:])
		name := f.packed[int(place)+n:]
		return strings.Compare(string(name[:length]), entity)
	})
}

// times returns when an entity has fired; empty if it has not.
func (f *firedEntities) times(entity string) firedTimes {
	if f == nil {
		return ""
	}
	i, has := f.find(entity)
	if !has {
		return ""
	}
	_, times, _ := f.at(f.order[i])
	return times
}

// set sets when an entity has fired; empty forgets that.
func (f *firedEntities) set(entity string, times firedTimes) {
	i, has := f.find(entity)
	if has {
		_, _, size := f.at(f.order[i])
		f.unused += size
		f.order = slices.Delete(f.order, i, i+1)
	}
	if f.unused > len(f.packed)/2 {
		f.repack()
	}
	if times == "" {
		return
	}
	f.order, f.packed = sparing(f.order, 1), sparing(f.packed, len(entity)+len(times)+2*binary.MaxVarintLen64)
	f.order = slices.Insert(f.order, i, uint32(len(f.packed)))
	f.packed = appendText(appendText(f.packed, entity), string(times))
}

// sparing makes room for n more elements, and not for many more than that.
func sparing[T any](s []T, n int) []T {
	if cap(s)-len(s) >= n {
		return s
	}
	return append(make([]T, 0, len(s)+n+len(s)/32), s...)
}

// repack frees what no entity uses.
func (f *firedEntities) repack() {
	packed := make([]byte, 0, len(f.packed)-f.unused)
	for i, place := range f.order {
		_, _, size := f.at(place)
		f.order[i] = uint32(len(packed))
		packed = append(packed, f.packed[place:int(place)+size]...)
	}
	f.packed, f.unused = packed, 0
}

// all calls do for each entity, sorted by name.
func (f *firedEntities) all(do func(entity string, times firedTimes)) {
	for _, place := range f.order {
		entity, times, _ := f.at(place)
		do(entity, times)
	}
}
