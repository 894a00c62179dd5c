//go:build !linux

package engine

import "time"

// BootClock returns the monotonic clock of package time. On Windows this clock goes on while the machine
// is suspended. On some other systems it stops: there, a broker learns only from the dates of the
// store's answers that a log lease has ended during a suspension.
func BootClock() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
