package state

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/format"
)

func TestDoneIsASetOfOffsets(t *testing.T) {
	const end = 40
	rapid.Check(t, func(t *rapid.T) {
		var (
			d done
			m [end]bool
		)
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			from := format.Offset(rapid.Int64Range(0, end).Draw(t, "from"))
			to := format.Offset(rapid.Int64Range(0, int64(min(end, from+4))).Draw(t, "to"))
			if rapid.IntRange(0, 9).Draw(t, "raise") == 0 {
				from = 0
				d.raise(to)
			} else {
				d.add(from, to)
			}
			for o := from; o < to; o++ {
				m[o] = true
			}
		}
		floor, gaps, count := format.Offset(0), 0, int64(0)
		for floor < end && m[floor] {
			floor++
		}
		for o := range format.Offset(end) {
			next := o
			for next < end && m[next] {
				next++
			}
			if to := min(end, o+3); d.overlaps(o, to) != slices.Contains(m[o:to], true) {
				t.Fatalf("offsets %d to %d: %v: %+v", o, to, d.overlaps(o, to), d)
			}
			if d.has(o) != m[o] || d.next(o) != next {
				t.Fatalf("offset %d: %v, next %d; want %v, %d: %+v", o, d.has(o), d.next(o), m[o], next, d)
			}
			if m[o] {
				count++
			}
			if o > floor && m[o] && !m[o-1] {
				gaps++
			}
		}
		if d.floor != floor || len(d.above) != gaps || d.count(0) != count {
			t.Fatalf("floor %d, %d spans, %d offsets; want %d, %d, %d: %+v", d.floor, len(d.above), d.count(0), floor, gaps, count, d)
		}
		if half := d.count(end / 2); half > end/2 || half != count-d.countBelow(end/2) {
			t.Fatalf("%d of the upper half", half)
		}
	})
}

// countBelow returns how many offsets below start are in the set.
func (d *done) countBelow(start format.Offset) (n int64) {
	for o := range start {
		if d.has(o) {
			n++
		}
	}
	return n
}

func BenchmarkDoneOutOfOrder(b *testing.B) {
	const gaps = 1 << 16
	var d done
	for o := format.Offset(1); o < 2*gaps; o += 2 {
		d.add(o, o+1)
	}
	spans := append([]span(nil), d.above...)
	for i := 0; b.Loop(); i++ {
		if i%1000 == 0 {
			d.floor, d.above = 0, append(d.above[:0], spans...)
		}
		d.add(2+2*format.Offset(i%1000), 3+2*format.Offset(i%1000)) // near the front of the list, where adding costs most
	}
}
