package httpapi

import "time"

// slowLimit is how slow a client may be.
type slowLimit struct {
	stallMax          time.Duration // longest silence, and how far behind the rate it may fall
	bytesPerSecondMin int64
}

// progress is how far one body has come, in either direction. The zero
// progress begins with its first deadline.
type progress struct {
	start time.Time
	bytes int64
}

// deadline returns when the next bytes must have moved.
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

// pace is how far a body has come that holds memory which others may want.
type pace struct {
	bytes int64 // that have come

	paid int64     // of these, what due takes into account
	due  time.Time // when more must have come; zero before the first deadline
}

// heldFor is how long a client may take for as much as it has sent: the more the broker
// holds of a body, the faster the rest of it must come.
const heldFor = time.Minute

// deadline returns when the next bytes must have moved. What came faster than it had to
// counts for no more than the longest silence: a client that has sent much can't stop then.
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
