package commitlog

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWildDatesMoveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		boot := func() time.Duration { return time.Since(begun) }
		c := &storeClock{}
		tell := func(ahead time.Duration) {
			time.Sleep(time.Second)
			c.note(Stamp{Store: time.Now().Add(ahead), Boot: boot()}, time.Now())
		}
		ahead := func() time.Duration { return time.Until(c.now(boot(), time.Now())) }
		for range 3 {
			tell(0)
		}
		for _, wild := range []time.Duration{20 * time.Minute, -20 * time.Minute, time.Hour} {
			tell(wild)
			if got := ahead(); got != 0 {
				t.Fatalf("after a date that is off by %v the store's time is off by %v", wild, got)
			}
			tell(0)
			tell(0)
		}
		for range datesKept {
			tell(10 * time.Minute)
		}
		if got := ahead(); got != 10*time.Minute {
			t.Errorf("the store's clock was set 10m ahead, and it is told as %v ahead", got)
		}
	})
}

func TestStoreTimeGoesOnBetweenItsDates(t *testing.T) {
	tests := map[string]struct{ boot, slept time.Duration }{
		"the clock since boot stands still": {0, time.Hour},
		"the monotonic clock stands still":  {time.Hour, 0},
		"both go on":                        {time.Hour, time.Hour},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, at := &storeClock{}, time.Now()
				c.note(Stamp{Store: at}, at)
				time.Sleep(test.slept)
				if got := c.now(test.boot, time.Now()).Sub(at); got != time.Hour {
					t.Errorf("an hour later the store's time is %v later", got)
				}
				if got := c.age(test.boot, time.Now()); got != time.Hour {
					t.Errorf("an hour later the last date is %v old", got)
				}
				c.note(Stamp{Store: at, Boot: test.boot}, time.Now())
				if got := c.age(test.boot, time.Now()); got != 0 {
					t.Errorf("a date of now is %v old", got)
				}
			})
		})
	}
}
