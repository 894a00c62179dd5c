package seb

import (
	"time"

	"github.com/simple-event-broker/seb/internal/leases"
)

// InFlight bounds how many messages of one queue a worker has at a time that are neither
// answered, through whichever broker, nor out of their lease: see
// [ReceiveOptions.InFlight]. It counts anew when another broker takes the queue over, or
// this one takes it back. One Receive at a time may use it.
type InFlight struct {
	max int
	at  *desk // whose messages are counted
	out *inFlightAt
}

// inFlightAt is what a worker has of one desk, whose lock guards it.
type inFlightAt struct {
	leases.Holder
	freed chan struct{} // is closed when there is one less; nil if nobody waits for that
}

// NewInFlight returns a bound of so many messages, 1 to 1,000.
func NewInFlight(most int) (*InFlight, error) {
	if most < 1 || most > receiveMax {
		return nil, limited(CodeInvalidRequest, receiveMax, "%d records in flight; it must be 1 to %d", most, receiveMax)
	}
	return &InFlight{max: most}, nil
}

// roomLocked returns how many of a desk's records the worker may get that wants most of
// them, and who counts them; if none, what is closed when that may have changed.
func (f *InFlight) roomLocked(d *desk, now time.Time, most int) (room int, holder *leases.Holder, full chan struct{}) {
	if f == nil {
		return most, nil, nil
	}
	if f.at != d {
		out := &inFlightAt{}
		out.Freed = out.wake
		f.at, f.out = d, out
	}
	d.table.Expire(now)
	if room = min(most, f.max-f.out.Out()); room > 0 {
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
