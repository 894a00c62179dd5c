package httpapi

import "time"

// slowLimit is how slow a client may be.
type slowLimit struct {
	stallMax          time.Duration // the longest silence, and how far the client may fall behind bytesPerSecondMin
	bytesPerSecondMin int64
}

// progress counts the bytes of one body, received or sent. The zero value is ready to use: its
// time begins with the first deadline.
type progress struct {
	start time.Time
	bytes int64
}

// deadline returns when the next bytes must have been received or sent.
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

// pace counts the bytes of a body that a client sends, and for which the broker holds memory that
// others may want. Its deadlines are stricter than those of progress.
type pace struct {
	bytes int64 // received so far

	paid int64     // the bytes that due already takes into account
	due  time.Time // when more bytes must have come; zero before the first deadline
}

// heldFor sets the rate at which a client must go on to send: a client that has sent 6 MB must send at
// least 6 MB per heldFor. So the more the broker holds of a body, the faster the rest must come.
const heldFor = time.Minute

// deadline returns when the next bytes must have come: at most t.stallMax from now. A client that has
// sent faster than required can't use the time that it has gained for a longer pause.
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
