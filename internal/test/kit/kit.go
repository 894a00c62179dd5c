// Package kit has what the tests of whole brokers share: options for virtual time, checks, and
// functions for actions that a test expects to succeed. It uses only the public API of a broker.
package kit

import (
	"time"

	"github.com/simple-event-broker/seb"
)

// InVirtualTime returns o with a BootClock that follows package time. In a testing/synctest test, package
// time is virtual, and the kernel's clock, which a broker uses by default, does not follow it.
func InVirtualTime(o seb.Options) seb.Options {
	before := time.Date(1999, 12, 1, 0, 0, 0, 0, time.UTC) // virtual time begins in 2000
	o.BootClock = func() time.Duration { return time.Since(before) }
	return o
}

// MemoryInUse returns how much of a broker's memory budget is in use, in bytes.
func MemoryInUse(b *seb.Broker) int64 {
	for _, f := range b.Metrics() {
		if f.Name == "seb_memory_used_bytes" {
			return int64(f.Series[0].Value)
		}
	}
	panic("the broker has no metric seb_memory_used_bytes")
}
