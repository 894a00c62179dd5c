package state

import (
	"math"
	"time"
)

// Moment says what the log's time was when this machine's monotonic clock showed At. The log's
// time comes from the store's dates. The monotonic clock measures how much of a delay has
// passed since At.
type Moment struct {
	At time.Time
	US int64 // microseconds since 1970
}

// When returns the time of this machine's clock at which the log's time will be us, in
// microseconds since 1970. It returns m.At if us is before m.US.
func (m Moment) When(us int64) time.Time {
	left := min(max(0, us-m.US), math.MaxInt64/int64(time.Microsecond))
	return m.At.Add(time.Duration(left) * time.Microsecond)
}
