package commitlog

import (
	"slices"
	"time"
)

// datesKept is how many of the store's dates tell its time: enough that a few wild ones among
// them move nothing.
const datesKept = 9

// storeClock tells the store's time: the median of its last dates, each advanced by the local
// clocks.
type storeClock struct {
	dates [datesKept]storeDate
	noted int // dates ever noted
}

// storeDate is a date of the store, and when it came. The clock since boot stands still in a
// virtual machine that is restored from a snapshot, and the monotonic clock while a machine
// sleeps: the one that ran faster counts.
type storeDate struct {
	Stamp
	came time.Time
}

func (d storeDate) carried(boot time.Duration, now time.Time) time.Time {
	return d.Store.Add(max(boot-d.Boot, now.Sub(d.came)))
}

// note takes a date of the store that came at a time.
func (c *storeClock) note(at Stamp, came time.Time) {
	c.dates[c.noted%datesKept] = storeDate{at, came}
	c.noted++
}

// now returns the store's time; the zero time before the first date.
func (c *storeClock) now(boot time.Duration, now time.Time) time.Time {
	n := min(c.noted, datesKept)
	if n == 0 {
		return time.Time{}
	}
	var carried [datesKept]time.Time
	for i, d := range c.dates[:n] {
		carried[i] = d.carried(boot, now)
	}
	slices.SortFunc(carried[:n], time.Time.Compare)
	return carried[(n-1)/2]
}
