package httpapi

import "time"

// tempo is how slow a client may be.
type tempo struct {
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
func (p *progress) deadline(t tempo, now time.Time) time.Time {
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
