package dispatch

import "time"

const rateSpan = 30 * time.Second

// rate counts events, and tells how many happened per second in about the last minute. Callers hold a
// lock.
type rate struct {
	since     time.Time // start of the current span
	now, past int64     // events in the current span, and in the previous one
	total     int64
}

func (r *rate) add(now time.Time, n int64) {
	r.turn(now)
	r.now += n
	r.total += n
}

func (r *rate) turn(now time.Time) {
	switch age := now.Sub(r.since); {
	case age < rateSpan:
	case age < 2*rateSpan:
		r.since, r.past, r.now = r.since.Add(rateSpan), r.now, 0
	default:
		r.since, r.past, r.now = now, 0, 0
	}
}

// perSecond returns the number of events per second in the current span and the previous one.
func (r *rate) perSecond(now time.Time) float64 {
	r.turn(now)
	span := now.Sub(r.since)
	if r.past > 0 {
		span += rateSpan
	}
	return float64(r.past+r.now) / max(1, span.Seconds())
}
