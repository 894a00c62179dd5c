package dispatch

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/simple-event-broker/seb/internal/leases"
)

// openingMax is how long, at most, a receiver waits after its deadline if records wait only for a commit: one
// that moves the dispatch limit, or one with record claims.
const openingMax = 5 * time.Second

// ReceiveOptions are the options of [Dispatchers.Receive].
type ReceiveOptions struct {
	Max      int           // how many records at most
	MaxBytes int64         // how many bytes all records may have together; the first record is returned whatever its size
	Lease    time.Duration // 0 means the queue's lease
	InFlight *InFlight     // may be nil
	Deadline time.Time     // when to stop waiting for a first record
	// If Admit is set, Receive calls Admit before it takes records. Admit returns how many of the Max
	// records Receive may take. If Receive then takes no record, it calls release.
	Admit func(ctx context.Context) (n int, release func(), err error)
}

// Received is a record that a receiver gets.
type Received struct {
	Token   Token // all fields but Cluster are set
	Records Records
	Index   int // index of the record in Records
	Attempt int // counted from the last redrive of the record
	Until   time.Time
}

// Receive leases records of a queue, and reads them. It returns no records if none came before the
// deadline. open returns the queue's dispatcher; Receive calls open again when that dispatcher has
// ended.
//
// The errors are those of open, of Admit, and of the broker. While the log can't be read, Receive
// hands out nothing: another broker may own the queue by now.
func (x *Dispatchers) Receive(ctx context.Context, o ReceiveOptions, open func() (*Dispatcher, error)) ([]Received, error) {
	r := &receiver{b: x.b, o: o}
	defer r.leave()
	for {
		d, err := open()
		if err != nil {
			return nil, err
		}
		got, err := r.from(ctx, d)
		if err != nil || len(got) > 0 || r.over {
			return got, err
		}
	}
}

// receiver is one call of Receive.
type receiver struct {
	b      Broker
	o      ReceiveOptions
	leaves func() // what Broker.Follow returned; nil before the receiver waits
	over   bool   // the deadline has passed
}

func (r *receiver) leave() {
	if r.leaves != nil {
		r.leaves()
	}
}

// from receives records from a dispatcher. It returns nothing if the dispatcher has ended, or if the
// deadline has passed.
func (r *receiver) from(ctx context.Context, d *Dispatcher) ([]Received, error) {
	for {
		got, turn, err := r.take(ctx, d)
		if err != nil || len(got) > 0 || turn == nil {
			return got, err
		}
		if err := r.wait(ctx, d, turn); err != nil || r.over {
			d.GiveTurn(turn)
			if r.leaves != nil {
				d.wake() // this receiver may have been the one that wakes when the next record comes due: another receiver must do that now
			}
			return nil, err
		}
	}
}

// take leases records that may be handed out now. If there are none, it returns a channel that is
// closed when the receiver should try again; the channel is nil if the dispatcher has ended.
func (r *receiver) take(ctx context.Context, d *Dispatcher) ([]Received, chan struct{}, error) {
	admitted, release := r.o.Max, func() {}
	if r.o.Admit != nil {
		var err error
		if admitted, release, err = r.o.Admit(ctx); err != nil {
			d.wake() // if it was this receiver's turn, the next receiver in line gets the turn
			return nil, nil, err
		}
	}
	got, turn, err := r.takeAdmitted(ctx, d, admitted)
	if len(got) == 0 {
		release()
	}
	return got, turn, err
}

func (r *receiver) takeAdmitted(ctx context.Context, d *Dispatcher, admitted int) (_ []Received, turn chan struct{}, _ error) {
	for {
		if err := r.b.SyncToAct(ctx); err != nil { // the last sync may be old after waits for the turn, Admit or Load
			d.wake() // another receiver gets the turn
			return nil, nil, err
		}
		taken := d.Take(time.Now(), Want{Max: r.o.Max, Lease: r.o.Lease, InFlight: r.o.InFlight, Admitted: admitted})
		switch {
		case taken.Need != nil:
			if err := d.Load(ctx, *taken.Need); err != nil && !isDeleted(err) {
				d.wake()
				return nil, nil, err
			}
		case len(taken.Out) > 0:
			got, err := r.read(ctx, d, taken)
			if err != nil || len(got) > 0 {
				return got, nil, err
			}
		default:
			return nil, taken.Turn, nil
		}
	}
}

// wait waits until it is the receiver's turn, or until a record comes due. If records wait only for a commit, wait
// goes on for up to openingMax after the deadline: see [Dispatcher.opening].
func (r *receiver) wait(ctx context.Context, d *Dispatcher, turn chan struct{}) error {
	now, deadline := time.Now(), r.o.Deadline
	var opened <-chan struct{}
	if !now.Before(deadline) {
		opened, deadline = d.opening(), deadline.Add(openingMax)
		if opened == nil && now.Before(deadline) && isClosed(turn) {
			return nil // the receiver's turn has come: it tries once more
		}
		if opened == nil || !now.Before(deadline) {
			r.over = true
			return nil
		}
	}
	if r.leaves == nil {
		r.leaves = r.b.Follow()
	}
	until := deadline
	if at, ok := d.nextDue(turn, r.o.InFlight); ok && at.Before(until) {
		until = at
	}
	timer := time.NewTimer(until.Sub(now))
	defer timer.Stop()
	select {
	case <-turn:
		// turn is also closed when another receiver gives up: there need not be a record. So if
		// openingMax has passed since this receiver's deadline, it gives up too.
		r.over = opened != nil && !time.Now().Before(deadline)
	case <-opened:
		d.GiveTurn(turn)
	case <-timer.C:
		if r.over = opened != nil && !time.Now().Before(deadline); !r.over {
			d.GiveTurn(turn)
		}
	case <-d.gone:
	case <-ctx.Done():
		return ctx.Err()
	case <-r.b.Done():
		return r.b.SyncToAct(ctx) // the error says why the broker ended
	}
	return nil
}

// read reads the records of deliveries. It gives deliveries back to the dispatcher if they exceed
// MaxBytes, can't be read now, or were not read before half of the lease had passed. A delivery that is
// given back doesn't count as an attempt. A record whose object is missing or damaged stays leased
// until the lease ends.
func (r *receiver) read(ctx context.Context, d *Dispatcher, taken Taken) ([]Received, error) {
	got := make([]Received, 0, len(taken.Out))
	left, enough := r.o.MaxBytes, time.Until(taken.Until)/2
	for i, x := range taken.Out {
		records, at, err := d.record(ctx, x)
		if isDeleted(err) {
			continue
		}
		var size int64
		if err == nil {
			size = records.Bytes(at)
		}
		full := left < size || time.Until(taken.Until) < enough
		if left -= size; err != nil || full && len(got) > 0 {
			again := taken.Out[i:]
			if of, ok := errors.AsType[*ReadError](err); ok && of.Lost {
				// The first of these records stays leased, since its object is missing or damaged. When
				// the lease ends, the attempt counts as failed.
				again = again[1:]
			}
			d.Return(again...)
			if len(got) == 0 {
				return nil, err
			}
			break // if the error persists, the next call of Receive returns it
		}
		got = append(got, Received{Token{Queue: d.queue, Delivery: x}, records, at, d.Attempt(x), taken.Until})
	}
	d.handed(len(got))
	return got, nil
}

// isDeleted tells whether err means that records, or their topic, were deleted. If the
// topic was deleted, its dispatchers end, and receivers get an error when they call open.
func isDeleted(err error) bool {
	of, ok := errors.AsType[*ReadError](err)
	return ok && of.Deleted
}

// isClosed tells whether a channel that carries no values is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Want is what a receiver asks for.
type Want struct {
	Max      int           // how many records at most
	Lease    time.Duration // 0 means the queue's lease
	InFlight *InFlight     // may be nil
	// Admitted is how many records the receiver may take now. It is at most Max.
	Admitted int
}

// Taken is what a receiver gets.
type Taken struct {
	Out   []leases.Delivery
	Until time.Time // when the leases end
	// If Out is empty and Need is nil, the receiver waits until Turn is closed, and tries again. Turn
	// is nil if the dispatcher has ended.
	Turn chan struct{}
	// If Need is not nil, the receiver has to load the records from this place on, and try again.
	Need *leases.Place
}

// Take leases records that may be handed out now, or puts the receiver in line.
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
		d.wakeLocked() // if it was this receiver's turn, the next receiver in line gets the turn
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
			d.wakeLocked() // there may be more records
			return got
		}
	}
	got.Turn = make(chan struct{})
	d.waiting = append(d.waiting, inLine{got.Turn, most})
	d.wanted += most
	return got
}

// handLocked leases records to a receiver: up to most, which is how many the receiver may take now. wanted
// is how many records the receiver wants. handLocked also makes record claims for records that are due for
// another attempt, if this receiver and the receivers in line want more records.
func (d *Dispatcher) handLocked(now, until time.Time, most, wanted int, holder *leases.Holder) (out []leases.Delivery) {
	for {
		got := d.table.Take(now, until, most-len(out), d.claimsLocked(wanted), holder)
		out = append(out, got.Out...)
		if dead := d.claimLocked(got.Claims); dead == 0 {
			return out
		}
	}
}

// claimsLocked returns how many more record claims the owner may make: as many as the receivers in line
// want records, plus most for one further receiver, less the claims under way and the records that are
// already claimed and can be handed out. More claims could do harm: if an owner is lost between a claim
// and the delivery, the attempt is used up although no worker got the record.
func (d *Dispatcher) claimsLocked(most int) int {
	return max(0, d.wanted+most-d.claiming-d.table.Ready())
}

// GiveTurn takes a receiver that gives up out of the line. If it was that receiver's turn already, the
// next receiver gets the turn.
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

// nextDue returns when the receiver that waits for the channel turn must wake even if nothing is
// committed until then: when records can be handed out, or when the owner has to write an entry that
// shows that it runs.
func (d *Dispatcher) nextDue(turn chan struct{}, inFlight *InFlight) (at time.Time, ok bool) {
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
		if end, some := d.table.NextEnd(); some { // the first end of all leases; if it is the lease of another worker, the receiver waits again
			earlier(end)
		}
		return at, ok
	}
	if d.config.Paused {
		return at, ok
	}
	if next, some := d.table.Next(); some && (next.After(now) || d.claimsLocked(0) > 0) {
		earlier(next)
	} // otherwise all claims that claimsLocked allows are under way, and settled wakes a receiver when they end
	if d.holds && d.held.After(now) {
		earlier(d.held)
	}
	if len(d.delayed) > 0 && d.roomLocked() {
		earlier(d.delayed[0].due)
	}
	return at, ok
}

// handed counts n records that receivers got.
func (d *Dispatcher) handed(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.received.add(time.Now(), int64(n))
}

// Return takes back deliveries that no receiver got. The next receiver gets the records with the same
// attempt numbers.
func (d *Dispatcher) Return(out ...leases.Delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range out {
		d.table.Return(x)
	}
	d.wakeLocked()
}
