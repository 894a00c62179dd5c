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
	// anchor is the first date that agrees with all later ones up to errorMax.
	anchor   Stamp
	errorMax time.Duration
	jump     time.Duration // the largest step forward that the dates ever made
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
	return d.Store.Add(d.age(boot, now))
}

func (d storeDate) age(boot time.Duration, now time.Time) time.Duration {
	return max(boot-d.Boot, now.Sub(d.came))
}

// note adds a date of the store; came is the local time at which it arrived.
func (c *storeClock) note(at Stamp, came time.Time) {
	if ahead := at.Store.Sub(c.anchor.Store.Add(at.Boot - c.anchor.Boot)); c.noted == 0 || ahead.Abs() > c.errorMax {
		if c.noted > 0 {
			c.jump = max(c.jump, ahead)
		}
		c.anchor = at
	}
	c.dates[c.noted%datesKept] = storeDate{at, came}
	c.noted++
}

// steady returns for how long the dates of the store have agreed with the clock since boot.
func (c *storeClock) steady(boot time.Duration) time.Duration {
	if c.noted == 0 {
		return 0
	}
	return boot - c.anchor.Boot
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

// age returns the time that has passed since the last date; 0 before the first one.
func (c *storeClock) age(boot time.Duration, now time.Time) time.Duration {
	if c.noted == 0 {
		return 0
	}
	return c.dates[(c.noted-1)%datesKept].age(boot, now)
}
