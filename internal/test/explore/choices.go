package explore

import "math/rand/v2"

// choices is where everything that could also go another way is decided: by
// chance, or so that all combinations come up one after the other.
type choices struct {
	rand  *rand.Rand // nil: all combinations
	taken []choice
	pos   int
}

type choice struct{ index, count uint8 }

// pick returns a number below count.
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

// rarely returns true, or at random only once in so many times.
func (c *choices) rarely(times int) bool { return c.rand == nil || c.rand.IntN(times) == 0 }

// next goes on to the next combination; it returns false after the last.
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
