package change

import (
	"math/rand/v2"
	"time"
)

// Backoff says how long records that failed wait for their next delivery: Min after the first failure,
// and twice as long after each further one, up to Max.
type Backoff struct{ Min, Max time.Duration }

// After returns the wait of a record that failed that many times, minus a random part of up to half of
// it.
func (b Backoff) After(failures int) time.Duration {
	d := b.Min
	for range failures - 1 {
		if d = 2 * d; d >= b.Max {
			break
		}
	}
	d = min(d, b.Max)
	return d - rand.N(d/2+1)
}
