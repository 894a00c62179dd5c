package seb

import "github.com/simple-event-broker/seb/internal/dispatch"

// InFlight bounds how many messages of one queue a worker has at a time. A message counts until
// the worker has answered it, through any broker, or its lease has ended: see
// [ReceiveOptions.InFlight]. The count restarts at zero when the queue changes its owner. One
// Receive at a time may use it.
type InFlight struct{ in dispatch.InFlight }

// NewInFlight returns a bound of most messages, 1 to 1,000.
func NewInFlight(most int) (_ *InFlight, err error) {
	defer reads(&err)
	if most < 1 || most > receiveMax {
		return nil, limited(CodeInvalidRequest, receiveMax, "%d records in flight; it must be 1 to %d", most, receiveMax)
	}
	return &InFlight{dispatch.InFlight{Max: most}}, nil
}

// inner returns what a dispatcher counts with; nil if f is nil.
func (f *InFlight) inner() *dispatch.InFlight {
	if f == nil {
		return nil
	}
	return &f.in
}
