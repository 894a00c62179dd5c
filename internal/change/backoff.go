package change

import (
	"math/rand/v2"
	"time"
)

// Backoff says how long a record waits for its next delivery after failures: Min after the first
// failure, and twice as long after each further failure, up to Max.
type Backoff struct{ Min, Max time.Duration }

// After returns how long a record waits after the given number of failures. To spread retries, After
// subtracts a random part of up to half of the wait.
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
