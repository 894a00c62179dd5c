package state

import (
	"math"
	"time"
)

// Moment is what the log's time was at a moment of this machine's monotonic clock. The log's
// time is the store's; from that moment on the monotonic clock tells how much of a delay is over.
type Moment struct {
	At time.Time
	US int64 // microseconds since 1970
}

// When returns when a time of the log comes, in microseconds since 1970: at once if it has passed.
func (m Moment) When(us int64) time.Time {
	left := min(max(0, us-m.US), math.MaxInt64/int64(time.Microsecond))
	return m.At.Add(time.Duration(left) * time.Microsecond)
}
