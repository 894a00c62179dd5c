package dispatch

import (
	"time"

	"github.com/simple-event-broker/seb/internal/leases"
)

// InFlight bounds how many records of one queue a worker has at a time. A record counts until the
// worker answers, through any broker, or the lease ends. The count restarts at zero when the queue gets
// another owner. Only one Take at a time may use an InFlight.
type InFlight struct {
	Max int

	at  *Dispatcher // the dispatcher whose records are counted
	out *inFlightAt
}

// inFlightAt counts the records that a worker has from one dispatcher, whose lock guards the count.
type inFlightAt struct {
	leases.Holder
	freed chan struct{} // closed when the count falls; nil if no receiver waits for that
}

// roomLocked returns how many of d's records a worker that wants up to most records may get now, and the
// holder that counts them. If the worker already has Max records, room is 0, and roomLocked returns the
// channel full, which is closed when the worker has fewer records.
func (f *InFlight) roomLocked(d *Dispatcher, now time.Time, most int) (room int, holder *leases.Holder, full chan struct{}) {
	if f == nil {
		return most, nil, nil
	}
	if f.at != d {
		out := &inFlightAt{}
		out.Freed = out.wake
		f.at, f.out = d, out
	}
	d.table.Expire(now)
	if room = min(most, f.Max-f.out.Out()); room > 0 {
		return room, &f.out.Holder, nil
	}
	if f.out.freed == nil {
		f.out.freed = make(chan struct{})
	}
	return 0, nil, f.out.freed
}

// fullLocked tells whether turn is the channel that roomLocked last returned as full.
func (f *InFlight) fullLocked(turn chan struct{}) bool { return f != nil && f.out.freed == turn }

func (o *inFlightAt) wake() {
	if o.freed != nil {
		close(o.freed)
		o.freed = nil
	}
}
