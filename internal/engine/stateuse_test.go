package engine

import (
	"testing"
	"time"
)

func TestEachTenthOfTheStateIsReportedOnce(t *testing.T) {
	var last tenths
	for _, step := range []struct {
		percent int64
		told    bool
	}{
		{10, false}, {49, false}, {50, true}, {59, false}, {60, true}, {59, false}, {60, false}, // deletions come and go
		{85, true}, {90, true}, {40, false}, {55, true}, {100, true}, {120, true}, {125, false},
	} {
		if told := last.reached(step.percent, 100, warnTenths); told != step.told {
			t.Errorf("%d%%: told is %v", step.percent, told)
		}
	}
}

func TestTimeThatIsLeftFollowsThePresentGrowth(t *testing.T) {
	const day = 24 * time.Hour
	began := time.Unix(1_700_000_000, 0)
	whole := measurement{at: began.Add(-100 * day)} // the log is 100 days old
	var g growth
	g.begin(began, 1000)
	left := func(at time.Time, bytes, want int64) {
		t.Helper()
		if got := g.left(at, bytes, 2000-bytes, whole); got.Round(time.Hour) != time.Duration(want)*time.Hour {
			t.Errorf("%v after the start, with %d bytes: %v, want %d h", at.Sub(began), bytes, got, want)
		}
	}
	left(began, 1000, 100*24) // as fast as since the log began
	left(began.Add(time.Hour), 1010, 99)
	left(began.Add(time.Hour), 1000, 0) // the state does not grow
	left(began.Add(time.Hour), 900, 0)
	g.note(began.Add(13*time.Hour), 1130)
	g.note(began.Add(26*time.Hour), 1130)
	left(began.Add(27*time.Hour), 1130, 0) // it has not grown for the last half of a day
	left(began.Add(33*time.Hour), 1150, 850)
	g.begin(began, 0)
	if got := g.left(began, 10, 5, measurement{at: began.Add(-time.Minute)}); got != 0 {
		t.Errorf("a minute after the log began: %v", got)
	}
}

func TestWarningsNameDaysOrHours(t *testing.T) {
	for _, x := range []struct {
		use  StateUse
		want string
	}{
		{StateUse{Used: 49, Limit: 100, Left: time.Hour}, ""},
		{StateUse{}, ""},
		{StateUse{Used: 50, Limit: 100}, "the state takes 50% of --state-memory"},
		{StateUse{Used: 61, Limit: 100, Left: 75 * time.Hour}, "the state takes 61% of --state-memory; at the present rate, appends are refused in 3 days"},
		{StateUse{Used: 61, Limit: 100, Left: 90 * time.Minute}, "the state takes 61% of --state-memory; at the present rate, appends are refused in 1h30m0s"},
	} {
		if got := x.use.Warning(); got != x.want {
			t.Errorf("%+v: %q", x.use, got)
		}
	}
}
