package dispatch

import (
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// Info is what only the owner of a queue knows about the queue.
type Info struct {
	Exact     bool // this broker is still the owner
	Leased    int64
	Held      int64     // records held back because a lost owner may have handed them out
	HeldUntil time.Time // when the held records can go out again; zero if Held is 0
	// Received, Acknowledged and DeadLetters count records since this broker took the queue over. The rates
	// are records per second, in about the last minute.
	Received, Acknowledged, DeadLetters int64
	ReceivedRate, AcknowledgedRate      float64
}

// Info returns the current figures.
func (d *Dispatcher) Info() (info Info) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	info.Exact = !d.closed
	info.Leased = int64(d.table.Leased(now))
	if info.Held = d.heldLocked(now); info.Held > 0 {
		info.HeldUntil = now.Add(d.held.Sub(now)).UTC()
	}
	info.ReceivedRate, info.AcknowledgedRate = d.received.perSecond(now), d.acknowledged.perSecond(now)
	info.Received, info.Acknowledged, info.DeadLetters = d.received.total, d.acknowledged.total, d.deadLetters
	return info
}

// Known returns how many records the table has.
func (d *Dispatcher) Known() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.table.Len()
}

// DelaysAhead returns how many runs of delayed records were not scanned yet.
func (d *Dispatcher) DelaysAhead() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, list := range d.ahead {
		n += len(list)
	}
	return n
}

// Prefetched calls f once for each chunk of records that were read ahead. It returns how many bytes of
// Options.Memory all chunks take.
func (x *Dispatchers) Prefetched(f func(Records)) (bytes int64) {
	for _, d := range x.list() {
		d.mu.Lock()
		for _, c := range d.chunks {
			f(c.records)
		}
		d.mu.Unlock()
	}
	x.chunks.mu.Lock()
	defer x.chunks.mu.Unlock()
	return x.chunks.bytes
}

// Behind returns how many dispatchers could add a new dispatch limit to a commit with the given entries
// (see [Dispatchers.Ride]).
func (x *Dispatchers) Behind(entries []format.Entry) int { return len(x.behind(entries)) }
