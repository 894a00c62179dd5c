package commitlog

import (
	"slices"
	"time"
)

// datesKept is the number of last dates from which storeClock computes the store's time: enough
// that a few wrong dates do not change the result.
const datesKept = 9

// storeClock computes the store's time: the median of its last dates, each advanced by the local
// clocks.
type storeClock struct {
	dates [datesKept]storeDate
	noted int // number of dates ever noted
}

// storeDate is a date of the store, and when it arrived by the two local clocks. The clock since
// boot stops in a virtual machine that is restored from a snapshot; the monotonic clock stops
// while a machine sleeps. So the date is advanced by the clock that ran faster.
type storeDate struct {
	Stamp
	came time.Time
}

func (d storeDate) carried(boot time.Duration, now time.Time) time.Time {
	return d.Store.Add(max(boot-d.Boot, now.Sub(d.came)))
}

// note adds a date of the store; came is the local time at which it arrived.
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
