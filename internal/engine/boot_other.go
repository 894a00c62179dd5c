//go:build !linux

package engine

import "time"

// BootClock returns the monotonic clock of package time. On Windows it goes on while the
// machine is suspended. On some other systems it does not: there only the store's clock ends
// a log lease during a suspension.
func BootClock() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
