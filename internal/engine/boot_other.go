//go:build !linux

package engine

import (
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// BootClock returns the monotonic clock of package time. On Windows this clock goes on while the machine
// is suspended. On some other systems it stops: there, a broker learns only from the dates of the
// store's answers that a log lease has ended during a suspension.
func BootClock() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}

// BootIDNow returns zero: the clock of [BootClock] begins with the process, so no other process can compare its times with it.
func BootIDNow() format.BootID { return format.BootID{} }
