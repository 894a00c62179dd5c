package state

import (
	"slices"
	"sort"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// done is a set of offsets, such as those of done records: all offsets below floor, and the
// offsets in the spans above floor. The memory of the set depends on the number of gaps, not on
// the number of offsets.
type done struct {
	floor format.Offset
	above []span // ascending; no span touches another or floor
}

// span is the range of offsets [from, to).
type span struct{ from, to format.Offset }

const spanMemory = int64(unsafe.Sizeof(span{}))

// after returns the index of the first span that ends after an offset.
func (d *done) after(offset format.Offset) int {
	return sort.Search(len(d.above), func(i int) bool { return d.above[i].to > offset })
}

// has reports whether an offset is in the set.
func (d *done) has(offset format.Offset) bool { return d.next(offset) != offset }

// overlaps reports whether any offset of [from, to) is in the set.
func (d *done) overlaps(from, to format.Offset) bool {
	i := d.after(from)
	return from < d.floor || i < len(d.above) && d.above[i].from < to
}

// next returns the smallest offset that is not in the set and is at least the given offset.
func (d *done) next(offset format.Offset) format.Offset {
	offset = max(offset, d.floor)
	if i := d.after(offset); i < len(d.above) && d.above[i].from <= offset {
		return d.above[i].to
	}
	return offset
}

// add adds the offsets of [from, to). It changes d.above in place: callers that still need the
// old set must clone d.above first.
func (d *done) add(from, to format.Offset) {
	from, to = max(from, d.floor), max(to, d.floor)
	if from >= to {
		return
	}
	// Merge the new span with the spans that it touches.
	first := sort.Search(len(d.above), func(i int) bool { return d.above[i].to >= from })
	last := first
	for last < len(d.above) && d.above[last].from <= to {
		from, to = min(from, d.above[last].from), max(to, d.above[last].to)
		last++
	}
	if from > d.floor {
		d.above = shrunkList(slices.Replace(d.above, first, last, span{from, to}))
		return
	}
	d.floor = to
	d.above = shrunkList(slices.Delete(d.above, 0, last))
}

// raise adds all offsets below floor.
func (d *done) raise(floor format.Offset) { d.add(d.floor, floor) }

// holds reports whether all offsets of other are in d.
func (d *done) holds(other *done) bool {
	for _, s := range other.above {
		if d.next(s.from) < s.to {
			return false
		}
	}
	return d.floor >= other.floor
}

// count returns how many offsets of the set are at least start.
func (d *done) count(start format.Offset) int64 {
	n := max(0, int64(d.floor-start))
	for _, s := range d.above {
		n += max(0, int64(s.to-max(s.from, start)))
	}
	return n
}
