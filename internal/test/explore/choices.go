package explore

import "math/rand/v2"

// choices decides between the things that can happen in a step. It decides at random, or it goes
// through all combinations of decisions, one after the other.
type choices struct {
	rand  *rand.Rand // nil means all combinations
	taken []choice
	pos   int
}

type choice struct{ index, count uint8 }

// pick returns a number from 0 to count - 1.
func (c *choices) pick(count int) int {
	switch {
	case count <= 1:
		return 0
	case c.rand != nil:
		return c.rand.IntN(count)
	case c.pos == len(c.taken):
		c.taken = append(c.taken, choice{count: uint8(count)})
	}
	c.pos++
	return int(c.taken[c.pos-1].index)
}

// rarely returns true if all combinations are tried. If choices are random, rarely(20) returns true in
// one of 20 calls, on average.
func (c *choices) rarely(times int) bool { return c.rand == nil || c.rand.IntN(times) == 0 }

// next moves on to the next combination. It returns false after the last one.
func (c *choices) next() bool {
	c.pos = 0
	for n := len(c.taken); n > 0; n-- {
		last := &c.taken[n-1]
		if last.index++; last.index < last.count {
			return true
		}
		c.taken = c.taken[:n-1]
	}
	return false
}
