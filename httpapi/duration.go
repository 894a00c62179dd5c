package httpapi

import (
	"math"
	"regexp"
	"strconv"
	"time"
)

var daysOrWeeks = regexp.MustCompile(`([0-9]+\.?[0-9]*|\.[0-9]+)([dw])`)

// ParseDuration parses a duration in a request or on a command line. It reads what [time.ParseDuration] reads, and in
// addition the units d, a day of 24 hours, and w, a week of 7 days, such as 30d and 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	return time.ParseDuration(daysOrWeeks.ReplaceAllStringFunc(text, inNanoseconds))
}

// inNanoseconds returns a number of days or weeks, such as 1.5d, in nanoseconds. If it can't, since the number is too
// large, it returns part unchanged, which time.ParseDuration then refuses because of its unit.
func inNanoseconds(part string) string {
	n, hours := part[:len(part)-1], int64(24)
	if part[len(n)] == 'w' {
		hours = 7 * 24
	}
	d, err := time.ParseDuration(n + "h") // exact, also for a fraction such as 0.1
	if err != nil || int64(d) > math.MaxInt64/hours {
		return part
	}
	return strconv.FormatInt(int64(d)*hours, 10) + "ns"
}
