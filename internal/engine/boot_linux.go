package engine

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootClock returns a clock that goes on while the machine is suspended. On Linux, the monotonic clock of
// package time stops while the machine is suspended.
func BootClock() func() time.Duration {
	return func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			panic("engine: the kernel has no boot-time clock: " + err.Error())
		}
		return time.Duration(ts.Nano())
	}
}
