package seb

import (
	"math/rand/v2"
	"time"
)

// backoff returns how long a record waits after its attempts have failed.
func (c QueueConfig) backoff(attempts int) time.Duration {
	d := c.BackoffMin
	for range attempts - 1 {
		if d = 2 * d; d >= c.BackoffMax {
			break
		}
	}
	d = min(d, c.BackoffMax)
	return d - rand.N(d/2+1)
}
