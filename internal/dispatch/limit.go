package dispatch

import (
	"context"
	"math"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/internal/wait"
)

// The dispatch limit of a partition is where the fresh records end that the owner may hand
// out. It is in the log before they go out (the formats call it window), so that the next
// owner knows which records may be with workers. Whatever lies between the last record that
// was handed out and the limit is uncertain when the owner is lost: the limit stays about a
// second of deliveries ahead, and comes back when they slow down.
const (
	// reachMin is how many records the limit is ahead at least.
	reachMin = 8
	// reachMax is how many it is ahead at most.
	reachMax = 8192
	// paceSpan: the limit stays ahead by the deliveries of this much time.
	paceSpan = time.Second
	// paceFade is how fast the busiest such time is forgotten: two thirds of it in that long.
	paceFade = 10 * time.Second
	// limitRides is how long a move of the limit waits for a commit that it can share. Where
	// workers answer through this broker there is one: only theirs through others make none.
	limitRides = 250 * time.Millisecond
	// OwnerShows is how often the owner shows itself in the log while it has receivers, if other
	// brokers can't ask it.
	OwnerShows = 10 * time.Second
	// ownerContested is for how long after the takeover it does so, if there was an owner
	// before: one that is still there would have come back by then, and each time costs a
	// request.
	ownerContested = 10 * time.Minute
)

// pace tells how many records are taken in about a second, when that was most lately.
type pace struct {
	at    time.Time
	taken float64 // in about the last second
	most  float64 // the largest that was, faded
}

func (p *pace) fade(now time.Time) {
	if since := now.Sub(p.at).Seconds(); since > 0 {
		p.taken *= math.Exp(-since / paceSpan.Seconds())
		p.most = max(p.taken, p.most*math.Exp(-since/paceFade.Seconds()))
		p.at = now
	}
}

// add takes note of records that were taken.
func (p *pace) add(now time.Time, n int) {
	p.fade(now)
	p.taken += float64(n)
	p.most = max(p.most, p.taken)
}

// need takes note of records that would have been taken.
func (p *pace) need(now time.Time, n int64) {
	p.fade(now)
	p.most = max(p.most, float64(n))
}

func (p *pace) reach(now time.Time) int64 {
	p.fade(now)
	return min(reachMax, max(reachMin, int64(math.Ceil(p.most))))
}

// FirstReach returns how far ahead the limit of each partition is for a new owner that is
// asked for most records.
func FirstReach(most int, partitions uint32) int64 {
	return max(reachMin, (int64(most)+int64(partitions)-1)/int64(partitions))
}

// reachLocked returns how far ahead the limit of each partition is to be. One of several
// hands out no more than walkRecords before it is the next one's turn.
func (d *Dispatcher) reachLocked(now time.Time) int64 {
	reach := d.pace.reach(now)
	return min(reach, max(walkRecords, 2*reach/int64(max(1, len(d.parts)))))
}

// limitLocked returns where the records of a partition end that may be handed out: a limit
// that is on its way back counts already.
func (d *Dispatcher) limitLocked(q *state.Queue, i int) int64 {
	limit := q.Window(int32(i))
	if lower := d.parts[i].lower; lower > 0 {
		limit = min(limit, lower)
	}
	return limit
}

// followLocked has the limits follow what is handed out, and the log hear of this owner
// where nobody can ask it. lack is how many more records the receiver wanted.
// A move shares the next commit that this broker makes; it asks for one only where there
// was none for a while, or receivers wait for it.
func (d *Dispatcher) followLocked(now time.Time, lack int) {
	near, stuck := d.nearLocked(now)
	if stuck && lack > 0 {
		d.pace.need(now, int64(max(lack, d.wanted)))
		if d.moved == nil { // else it is on its way already to where it should be
			d.pace.need(now, 2*d.pace.reach(now))
		}
	}
	silent := now.Before(d.contested) && now.Sub(d.shown) >= OwnerShows
	switch waits := stuck && len(d.waiting) > 0; {
	case waits && d.moved != nil && !d.urged:
		d.urged = true // the commit that is waited for must not linger
		d.all.b.Go(func() { _ = d.moveLimits(d.all.opts.Life, true, false) })
	case d.moved != nil:
	case waits || silent || near && now.Sub(d.behind) >= limitRides:
		d.moved, d.urged, d.shown = make(chan struct{}), waits, now
		d.all.b.Go(func() {
			if err := d.moveLimits(d.all.opts.Life, waits, silent); err != nil {
				wait.For(d.all.opts.Life, retryAfter)
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			close(d.moved)
			d.moved = nil
			d.wakeLocked()
		})
	}
}

// nearLocked tells whether little is left of a limit, and whether one keeps records back.
// It marks the dispatcher if a limit should move with the next commit.
func (d *Dispatcher) nearLocked(now time.Time) (near, stuck bool) {
	reach, moves := d.reachLocked(now), false
	d.viewOwned(func(t *state.Topic, q *state.Queue) {
		for i, p := range d.parts {
			left := d.limitLocked(q, i) - p.next
			moves = moves || shouldMove(left, reach)
			near = near || left <= reach/4
			stuck = stuck || left <= 0 && p.next < t.Partitions[i].End
		}
	})
	if moves && d.behind.IsZero() {
		d.behind = now
		d.all.mark(d)
	}
	return near, stuck
}

// shouldMove tells whether a limit with so many records left should move, ahead or back.
func shouldMove(left, reach int64) bool { return left <= reach*3/4 || left > reach*3/2 }

// Show has the log hear of the owner.
func (d *Dispatcher) Show(ctx context.Context) error { return d.moveLimits(ctx, false, true) }

// moveLimits commits where the limits are to be, without linger if that is urgent. An owner
// that shows itself does so also if they stay where they are.
func (d *Dispatcher) moveLimits(ctx context.Context, urgent, shows bool) error {
	return d.all.b.Commit(ctx, Change{Urgent: urgent, Entries: func(dr *state.Draft) ([]format.Item, error) {
		if err := d.CheckOwner(dr); err != nil {
			return nil, err
		}
		items := d.limitItems(dr)
		if len(items) == 0 && shows {
			items = append(items, &format.WindowMoved{Queue: d.queue, Epoch: d.epoch, Window: dr.QueueWindow(d.queue, 0)})
		}
		return items, nil
	}})
}

// limitItems returns the moves of limits that the commit under construction should have.
// When it is called, what became of those in earlier commits is known.
func (d *Dispatcher) limitItems(dr *state.Draft) (items []format.Item) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.CheckOwner(dr) != nil {
		return nil
	}
	reach := d.reachLocked(now)
	for i := range d.parts {
		p, window := &d.parts[i], dr.QueueWindow(d.queue, uint32(i))
		end, ok := dr.End(d.topic, uint32(i))
		if !ok {
			continue
		}
		goal := p.next + max(reach, min(int64(d.wanted), end-p.next, reachMax))
		switch left := window - p.next; {
		case goal > window && (shouldMove(left, reach) || d.wanted > 0 && end > window):
			p.lower = 0
		case goal < window && shouldMove(left, reach):
			p.lower = goal // before the log has it, nothing beyond goes out
		default:
			if p.lower != window {
				p.lower = 0
			}
			continue
		}
		items = append(items, &format.WindowMoved{Queue: d.queue, Epoch: d.epoch, Partition: uint32(i), Window: goal})
	}
	if len(items) == 0 {
		d.behind = time.Time{}
		d.all.unmark(d)
	}
	return items
}

// Ride returns the moves of dispatch limits that a commit of those items should have: of queues
// that it appends records to, and of those whose limits should move with the next commit.
func (x *Dispatchers) Ride(d *state.Draft, items []format.Item) (moves []format.Item) {
	for _, y := range x.behind(items) {
		moves = append(moves, y.limitItems(d)...)
	}
	return moves
}

// mark has the limits of a dispatcher move with the next commit.
func (x *Dispatchers) mark(d *Dispatcher) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byID[d.queue] == d {
		x.marked[d.queue] = d
	}
}

func (x *Dispatchers) unmark(d *Dispatcher) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.marked[d.queue] == d {
		delete(x.marked, d.queue)
	}
}

// behind returns the dispatchers whose limits should be looked at for a commit of those items, each once.
func (x *Dispatchers) behind(items []format.Item) (list []*Dispatcher) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range x.marked {
		list = append(list, d)
	}
	topics := map[uint64]bool{}
	for _, it := range items {
		if y, ok := it.(*format.Batch); ok && !topics[y.Topic] {
			topics[y.Topic] = true
			for _, d := range x.byTopic[y.Topic] {
				if x.marked[d.queue] != d {
					list = append(list, d)
				}
			}
		}
	}
	return list
}
