package engine

import (
	"encoding/hex"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simple-event-broker/seb/internal/format"
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

// BootIDNow returns the kernel's name for the present boot of this machine; zero if it has none.
func BootIDNow() (id format.BootID) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err == nil && len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}
