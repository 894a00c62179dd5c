package dispatch

import (
	"cmp"
	"time"

	"github.com/simple-event-broker/seb/internal/leases"
)

// Want is what a receiver asks for.
type Want struct {
	Max      int           // how many records at most
	Lease    time.Duration // 0 means as the queue has it
	InFlight *InFlight     // may be nil
	// Admitted is how many records the receiver may take now: at most Max.
	Admitted int
}

// Taken is what a receiver gets.
type Taken struct {
	Out   []leases.Delivery
	Until time.Time // when their leases end
	// Turn is closed when the receiver, which got nothing, should try again; nil if the dispatcher is closed.
	Turn chan struct{}
	// Need names records that the receiver has to load before it tries again; nil if there are none.
	Need *leases.Place
}

// Take leases what is there, or puts the receiver in line.
func (d *Dispatcher) Take(now time.Time, w Want) (got Taken) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return Taken{}
	}
	lack := 0
	defer func() { d.followLocked(now, lack) }()
	most, holder, full := w.InFlight.roomLocked(d, now, w.Max)
	if full != nil {
		d.wakeLocked() // it may have been this one's turn
		return Taken{Turn: full}
	}
	if !d.config.Paused {
		if need := d.walkLocked(now, most); need != nil {
			return Taken{Need: need}
		}
		got.Until = now.Add(cmp.Or(w.Lease, d.config.Lease))
		admitted := min(most, w.Admitted)
		got.Out = d.handLocked(now, got.Until, admitted, most, holder)
		d.pace.add(now, len(got.Out))
		if lack = admitted - len(got.Out); len(got.Out) > 0 {
			d.wakeLocked() // there may be more
			return got
		}
	}
	got.Turn = make(chan struct{})
	d.waiting = append(d.waiting, inLine{got.Turn, most})
	d.wanted += most
	return got
}

// handLocked leases up to most records that may go out, and has the next attempts of others
// counted: of as many as the receiver wants, which may be more.
func (d *Dispatcher) handLocked(now, until time.Time, most, wanted int, holder *leases.Holder) (out []leases.Delivery) {
	for {
		got := d.table.Take(now, until, most-len(out), d.claimsLocked(wanted), holder)
		out = append(out, got.Out...)
		if parked := d.claimLocked(got.Claims); parked == 0 {
			return out
		}
	}
}

// claimsLocked returns how many attempts more may be counted, so that receivers who wait and
// one who wants that many get all they want. Each is lost if the owner is before it has
// handed it out.
func (d *Dispatcher) claimsLocked(most int) int {
	return max(0, d.wanted+most-d.claiming-d.table.Ready())
}

// GiveTurn takes a receiver out of the line that won't look again, and gives its turn to
// the next if it has come.
func (d *Dispatcher) GiveTurn(turn chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, w := range d.waiting {
		if w.turn == turn {
			d.wanted -= w.most
			d.waiting = append(d.waiting[:i:i], d.waiting[i+1:]...)
			return
		}
	}
	d.wakeLocked()
}

// NextDue returns when the receiver that waits for that turn must wake although nothing was
// committed: something can be handed out, or the owner has to show itself in the log.
func (d *Dispatcher) NextDue(turn chan struct{}, inFlight *InFlight) (at time.Time, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	earlier := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	now := time.Now()
	if now.Before(d.contested) && d.moved == nil {
		earlier(d.shown.Add(OwnerShows))
	}
	if inFlight.fullLocked(turn) {
		if end, some := d.table.NextEnd(); some { // of whomever: it is the table that notices
			earlier(end)
		}
		return at, ok
	}
	if d.config.Paused {
		return at, ok
	}
	if next, some := d.table.Next(); some && (next.After(now) || d.claimsLocked(0) > 0) {
		earlier(next)
	} // else its turn comes when a claim is settled
	if d.holds && d.held.After(now) {
		earlier(d.held)
	}
	if len(d.delayed) > 0 && d.roomLocked() {
		earlier(d.delayed[0].due)
	}
	return at, ok
}

// Handed counts records that receivers get.
func (d *Dispatcher) Handed(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.received.add(time.Now(), int64(n))
}

// Return takes deliveries back that their receivers did not get. They are no attempts: the
// next receiver gets them.
func (d *Dispatcher) Return(out ...leases.Delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range out {
		d.table.Return(x)
	}
	d.wakeLocked()
}
