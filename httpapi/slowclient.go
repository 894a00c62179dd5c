package httpapi

import "time"

// slowLimit is how slow a client may be.
type slowLimit struct {
	stallMax          time.Duration // the longest silence, and the longest delay compared with a transfer at bytesPerSecondMin
	bytesPerSecondMin int64
}

// progress counts the bytes that were sent of one answer, or of one burst of an event stream. The zero value
// is ready to use. The time of a progress begins with the first call of deadline.
type progress struct {
	start time.Time
	bytes int64
}

// deadline returns the time by which the next bytes must have been sent.
func (p *progress) deadline(t slowLimit, now time.Time) time.Time {
	if p.start.IsZero() {
		p.start = now
	}
	earned := time.Duration(float64(p.bytes) / float64(t.bytesPerSecondMin) * float64(time.Second))
	silence, behind := now.Add(t.stallMax), p.start.Add(t.stallMax+earned)
	if behind.Before(silence) {
		return behind
	}
	return silence
}

// pace counts the bytes of a request's body that were received. The deadlines of a pace are stricter than those
// of a progress, since the body takes memory that other requests may need.
type pace struct {
	bytes int64 // received so far

	paid int64     // the bytes that due already takes into account
	due  time.Time // when more bytes must have come; zero before the first call of deadline
}

// heldFor sets the rate at which a client must continue: a client that has sent 6 MB must continue with at
// least 6 MB per minute (heldFor). So the more of a body is in memory, the faster the rest must come.
const heldFor = time.Minute

// deadline returns the time by which the next bytes must have come: at most t.stallMax from now. A client that
// has sent faster than required can't save the time that it has gained for a longer pause.
func (p *pace) deadline(t slowLimit, now time.Time) time.Time {
	latest := now.Add(t.stallMax)
	if p.due.IsZero() {
		p.due = latest
	}
	rate := max(float64(t.bytesPerSecondMin), float64(p.bytes)/heldFor.Seconds())
	p.due = p.due.Add(time.Duration(float64(p.bytes-p.paid) / rate * float64(time.Second)))
	p.paid = p.bytes
	if p.due.After(latest) {
		p.due = latest
	}
	return p.due
}
