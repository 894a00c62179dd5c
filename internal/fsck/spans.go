package fsck

import (
	"sort"

	"github.com/simple-event-broker/seb/internal/format"
)

// span is a run of slots, both ends included.
type span struct{ from, to format.Seq }

func (s span) count() uint64 { return uint64(s.to-s.from) + 1 }

// spans is a set of slots, in ascending order. A log has few gaps, so even a long log needs few spans.
type spans []span

// add appends a slot that is greater than all others.
func (s *spans) add(q format.Seq) {
	if last := len(*s) - 1; last >= 0 && (*s)[last].to+1 == q {
		(*s)[last].to = q
		return
	}
	*s = append(*s, span{q, q})
}

func (s spans) first() uint64 {
	if len(s) == 0 {
		return 0
	}
	return uint64(s[0].from)
}

func (s spans) last() uint64 {
	if len(s) == 0 {
		return 0
	}
	return uint64(s[len(s)-1].to)
}

func (s spans) count() (n uint64) {
	for _, x := range s {
		n += x.count()
	}
	return n
}

func (s spans) has(q format.Seq) bool { return s.runOf(q) > 0 }

// runOf returns the first slot of the span that contains q, or 0 if no span contains q.
func (s spans) runOf(q format.Seq) format.Seq {
	i := sort.Search(len(s), func(i int) bool { return s[i].to >= q })
	if i == len(s) || s[i].from > q {
		return 0
	}
	return s[i].from
}

// gaps returns the slots from 1 to end that are not in s.
func (s spans) gaps(end format.Seq) spans {
	var out spans
	next := format.Seq(1)
	for _, x := range s {
		if x.from > end {
			break
		}
		if x.from > next {
			out = append(out, span{next, x.from - 1})
		}
		next = x.to + 1
		if next == 0 {
			return out // x.to is the largest possible slot
		}
	}
	if next <= end {
		out = append(out, span{next, end})
	}
	return out
}

// without returns the slots of s that are not in other.
func (s spans) without(other spans) spans {
	var out spans
	for _, x := range s {
		for _, o := range other {
			if o.to < x.from || o.from > x.to {
				continue
			}
			if o.from > x.from {
				out = append(out, span{x.from, o.from - 1})
			}
			if o.to >= x.to {
				x.from, x.to = 1, 0 // nothing is left
				break
			}
			x.from = o.to + 1
		}
		if x.from <= x.to {
			out = append(out, x)
		}
	}
	return out
}
