package dispatch

import (
	"time"

	"github.com/simple-event-broker/seb/internal/leases"
)

// InFlight bounds how many records of one queue a worker has at a time that are neither
// answered, through whichever broker, nor out of their lease. It counts from zero when another
// broker takes the queue over, or this one takes it back. One Take at a time may use it.
type InFlight struct {
	Max int

	at  *Dispatcher // whose records are counted
	out *inFlightAt
}

// inFlightAt is what a worker has of one dispatcher, whose lock guards it.
type inFlightAt struct {
	leases.Holder
	freed chan struct{} // is closed when there is one less; nil if nobody waits for that
}

// roomLocked returns how many of a dispatcher's records the worker may get that wants most of
// them, and what counts them. If there is no room, full is closed when there may be some.
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

// fullLocked tells whether a turn is one that comes when there is room again.
func (f *InFlight) fullLocked(turn chan struct{}) bool { return f != nil && f.out.freed == turn }

func (o *inFlightAt) wake() {
	if o.freed != nil {
		close(o.freed)
		o.freed = nil
	}
}
