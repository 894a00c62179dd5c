package commitlog

import (
	"slices"
	"time"
)

// datesKept is the number of dates from which storeClock computes the store's time. With nine dates, a few
// wrong dates hardly change the median.
const datesKept = 9

// storeClock estimates the store's time. It keeps the dates of the store's last answers, adds to each the
// local time that has passed since the answer came, and takes the median.
type storeClock struct {
	dates [datesKept]storeDate
	noted int // number of dates ever noted
}

// storeDate is the date in an answer of the store, and when the answer arrived by two local clocks: the
// clock since boot (Stamp.Boot) and the clock of [time.Now] (came). The first may stop while a virtual
// machine is saved as a snapshot, the second while a machine sleeps. So carried adds the longer of the
// two times that have passed by these clocks.
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
