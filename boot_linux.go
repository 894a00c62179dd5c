package seb

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock returns a clock that goes on while the machine is suspended, which
// the monotonic clock of package time doesn't on Linux.
func bootClock() func() time.Duration {
	return func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			panic("seb: the kernel has no boot-time clock: " + err.Error())
		}
		return time.Duration(ts.Nano())
	}
}
