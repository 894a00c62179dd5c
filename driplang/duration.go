package driplang

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

var units = map[string]time.Duration{
	"s": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": day, "day": day, "days": day,
	"w": week, "week": week, "weeks": week,
}

// ParseDuration reads a duration such as "7d", "1h30m" or "2 days": numbers, each with a unit (s, m, h, d, w, or seconds to
// weeks), from 1 s to 366 days. A day has 24 hours.
func ParseDuration(s string) (time.Duration, error) {
	l := newLexer(s)
	l.space()
	d, wrong := l.duration()
	if l.space(); wrong == nil && !l.ended() {
		wrong = l.pos.errorf("expected a number with a unit (%s), found %s", withinUnits, l.found())
	}
	if wrong != nil {
		return 0, errors.New(wrong.Message)
	}
	return d, nil
}

// FormatDuration writes a duration of whole seconds as [ParseDuration] reads it: in days, hours, minutes and seconds, as "1d12h".
func FormatDuration(d time.Duration) string {
	var b strings.Builder
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := d / u.of; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d %= u.of
		}
	}
	return b.String()
}

// duration reads numbers with units, up to the first that is something else.
func (l *lexer) duration() (time.Duration, *Error) {
	at := l.pos
	var sum time.Duration
	for first := true; first || isDigit(l.next()); first = false {
		n, ok := l.number()
		if !ok {
			return 0, l.pos.errorf("expected a number with a unit (%s), found %s", withinUnits, l.found())
		}
		l.space()
		unread := *l
		unit, known := units[l.letters()]
		if !known {
			*l = unread
			return 0, unread.pos.errorf("expected a unit (%s), found %s", withinUnits, l.found())
		}
		if n > int(MaxWithin/unit) || sum+time.Duration(n)*unit > MaxWithin {
			return 0, at.errorf("a window has from 1 s to %d days", int(MaxWithin/day))
		}
		sum += time.Duration(n) * unit
		l.space()
	}
	if sum < minWithin {
		return 0, at.errorf("a window has from 1 s to %d days", int(MaxWithin/day))
	}
	return sum, nil
}
