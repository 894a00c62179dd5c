package engine

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootClock returns a clock that goes on while the machine is suspended. The monotonic clock of package
// time stops meanwhile on Linux.
func BootClock() func() time.Duration {
	return func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			panic("engine: the kernel has no boot-time clock: " + err.Error())
		}
		return time.Duration(ts.Nano())
	}
}
