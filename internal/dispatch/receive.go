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
		d.wakeLocked() // the turn may have been this receiver's
		return Taken{Turn: full}
	}
	if !d.config.Paused {
		if need := d.scanLocked(now, most); need != nil {
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

// handLocked leases up to most records, and commits the next attempts of others: up to the number
// that the receiver wants, which may be larger.
func (d *Dispatcher) handLocked(now, until time.Time, most, wanted int, holder *leases.Holder) (out []leases.Delivery) {
	for {
		got := d.table.Take(now, until, most-len(out), d.claimsLocked(wanted), holder)
		out = append(out, got.Out...)
		if dead := d.claimLocked(got.Claims); dead == 0 {
			return out
		}
	}
}

// claimsLocked returns how many more attempts may be committed, so that waiting receivers and one that
// wants most get what they want. If the owner is lost before it hands one out, that attempt is used up.
func (d *Dispatcher) claimsLocked(most int) int {
	return max(0, d.wanted+most-d.claiming-d.table.Ready())
}

// GiveTurn takes a receiver that gives up out of the line. If it had its turn, the next one gets it.
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
		if end, some := d.table.NextEnd(); some { // of any worker: taking from the table frees it
			earlier(end)
		}
		return at, ok
	}
	if d.config.Paused {
		return at, ok
	}
	if next, some := d.table.Next(); some && (next.After(now) || d.claimsLocked(0) > 0) {
		earlier(next)
	} // else a claim that is settled wakes it
	if d.holds && d.held.After(now) {
		earlier(d.held)
	}
	if len(d.delayed) > 0 && d.roomLocked() {
		earlier(d.delayed[0].due)
	}
	return at, ok
}

// Handed counts records that receivers got.
func (d *Dispatcher) Handed(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.received.add(time.Now(), int64(n))
}

// Return takes back deliveries that their receivers did not get. The next receiver gets them, as the
// same attempts.
func (d *Dispatcher) Return(out ...leases.Delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range out {
		d.table.Return(x)
	}
	d.wakeLocked()
}
