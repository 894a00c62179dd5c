package state

import (
	"math"
	"time"
)

// Moment pairs a reading of this machine's monotonic clock with the log's time at the same
// moment. The log's time comes from the store's clock. A broker uses the monotonic clock to
// measure how much time has passed since At.
type Moment struct {
	At time.Time
	US int64 // the log's time at the moment At, in microseconds since 1970
}

// When returns the time of this machine's clock at which the log's time will be us
// microseconds since 1970. It returns m.At if us is less than m.US.
func (m Moment) When(us int64) time.Time {
	left := min(max(0, us-m.US), math.MaxInt64/int64(time.Microsecond))
	return m.At.Add(time.Duration(left) * time.Microsecond)
}
