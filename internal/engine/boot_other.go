//go:build !linux

package engine

import "time"

// BootClock returns the monotonic clock of package time, which goes on while
// the machine is suspended on Windows, but not on all other systems: there only
// the store's clock ends a lease during a suspension.
func BootClock() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
