package dispatch

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/internal/wait"
)

// The dispatch limit of a partition is the offset up to which the owner may hand out fresh records.
// The limit is in the log (as window) before these records go out, so that the next owner knows which
// records may be with workers. When an owner is lost, all its records below the limit become uncertain,
// even records that it never handed out. To keep these few, the limit stays ahead of delivery by only
// about one second of deliveries, and is lowered when deliveries slow down. This holds for all partitions
// together: the limits cover the existing records that the scan reaches first.
const (
	// reachMin is the least number of records by which the limits are ahead of delivery.
	reachMin = 8
	// reachMax is the largest number of records by which the limits are ahead of delivery.
	reachMax = 8192
	// paceSpan is how long receivers should need to take the records between delivery and the limit.
	paceSpan = time.Second
	// paceFade is the time in which pace.most falls by about two thirds.
	paceFade = 10 * time.Second
	// limitRides is how long the owner waits for another commit of its own before it makes a commit just
	// for a new limit: the limit can be a part of the other commit. Workers' answers cause such commits,
	// unless the workers answer through other brokers.
	limitRides = 250 * time.Millisecond
	// OwnerShows is the interval at which an owner writes an entry to the log to show that it runs.
	// Brokers that can't ask the owner rely on these entries.
	OwnerShows = 10 * time.Second
	// ownerContested is how long an owner with receivers writes these entries after it took the queue over
	// from an owner that it could not ask, or that did not answer. If the previous owner still runs, it
	// tries to take the queue back within this time. Without this bound, the new owner would send the store
	// a request every OwnerShows for ever.
	ownerContested = 10 * time.Minute
)

// pace estimates the largest number of records that receivers recently took within a second.
type pace struct {
	at    time.Time
	taken float64 // records taken in about the last second
	most  float64 // the largest value of taken so far, fading with time
}

func (p *pace) fade(now time.Time) {
	if since := now.Sub(p.at).Seconds(); since > 0 {
		p.taken *= math.Exp(-since / paceSpan.Seconds())
		p.most = max(p.taken, p.most*math.Exp(-since/paceFade.Seconds()))
		p.at = now
	}
}

// add counts n records that receivers took.
func (p *pace) add(now time.Time, n int) {
	p.fade(now)
	p.taken += float64(n)
	p.most = max(p.most, p.taken)
}

// need raises the estimate to at least n records: receivers would have taken n records if the limit had
// not kept them back.
func (p *pace) need(now time.Time, n int64) {
	p.fade(now)
	p.most = max(p.most, float64(n))
}

func (p *pace) reach(now time.Time) int64 {
	p.fade(now)
	return min(reachMax, max(reachMin, int64(math.Ceil(p.most))))
}

// spread distributes the records that receivers take in a second over the limits of partitions. Its method
// next is called for each partition, in the order of the scan.
type spread struct {
	left int64 // how many existing records the further limits may cover
	most int64 // by how many records a single limit is ahead of delivery at most
}

// spreadOver returns a spread of reach records over the limits of n partitions. A limit covers at most twice
// the partition's equal part, but at least scanRecords, since up to scanRecords records of one partition are
// handed out before the next partition's turn.
func spreadOver(n int, reach int64) spread {
	return spread{left: reach, most: min(reach, max(scanRecords, 2*reach/int64(max(1, n))))}
}

// next returns by how many records a limit should be ahead of delivery in a partition with this number of
// existing records that were not delivered. In a partition without such records the limit is ahead of the
// partition's end. So what another broker appends there needs no commit before it goes out.
func (s *spread) next(existing int64) int64 {
	if existing <= 0 {
		return s.most
	}
	share := min(s.most, s.left)
	s.left -= min(share, existing)
	return share
}

// sharesLocked returns by how many records the limit of each partition should be ahead of delivery. end
// returns the end of a partition. The caller must not keep the list.
func (d *Dispatcher) sharesLocked(now time.Time, end func(i int) format.Offset) []int64 {
	all := spreadOver(len(d.parts), max(d.pace.reach(now), min(int64(d.wanted), reachMax)))
	d.shares = slices.Grow(d.shares[:0], len(d.parts))[:len(d.parts)]
	for k := range d.parts {
		i := (d.turn + k) % len(d.parts)
		d.shares[i] = all.next(int64(end(i) - d.parts[i].next))
	}
	return d.shares
}

// limitLocked returns the dispatch limit of a partition. While a commit that lowers the limit is under
// way, limitLocked already returns the lower limit.
func (d *Dispatcher) limitLocked(q *state.Queue, i int) format.Offset {
	limit := q.DispatchLimit(format.Partition(i))
	if p := &d.parts[i]; p.lowered {
		limit = min(limit, p.lower)
	}
	return limit
}

// followLocked moves the limits after a receiver took records; lack is how many more records the
// receiver wanted. The new limits become part of this broker's next commit. They get a commit of their
// own if no commit comes within limitRides, or if receivers wait for them. While the previous owner may
// want the queue back, followLocked also writes an entry to the log every OwnerShows.
func (d *Dispatcher) followLocked(now time.Time, lack int) {
	near, stuck := d.nearLocked(now)
	if stuck && lack > 0 {
		d.pace.need(now, int64(max(lack, d.wanted)))
		if d.moved == nil { // while a commit is under way, its new limits may be enough
			d.pace.need(now, 2*d.pace.reach(now))
		}
	}
	silent := now.Before(d.contested) && now.Sub(d.shown) >= OwnerShows
	switch waits := stuck && len(d.waiting) > 0; {
	case waits && d.moved != nil && !d.urged:
		d.urged = true // receivers wait now for the commit under way: make it urgent
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

// nearLocked tells whether the scan is near a limit, and whether the limits keep records back although the
// scan has come to all of them (stuck). If a limit should move, nearLocked marks the dispatcher, so that the
// next commit moves the limit.
func (d *Dispatcher) nearLocked(now time.Time) (near, stuck bool) {
	moves, open := false, false
	d.viewOwned(func(t *state.Topic, q *state.Queue) {
		shares := d.sharesLocked(now, func(i int) format.Offset { return t.Partitions[i].End })
		for i, p := range d.parts {
			left, more := int64(d.limitLocked(q, i)-p.next), p.next < t.Partitions[i].End
			moves = moves || shouldMove(left, shares[i])
			near = near || shares[i] > 0 && left <= shares[i]/4
			stuck = stuck || more && left <= 0
			open = open || more && left > 0
		}
	})
	if moves && d.behind.IsZero() {
		d.behind = now
		d.all.mark(d)
	}
	return near, stuck && !open
}

// shouldMove tells whether a limit should move. left is by how many records the limit is ahead of
// delivery, and share is by how many records it should be ahead. A small difference is no reason for a
// commit.
func shouldMove(left, share int64) bool { return share > 0 && left <= share*3/4 || left > share*3/2 }

// Show writes an entry to the log. From this entry, brokers that can't ask this owner learn that the
// owner still runs.
func (d *Dispatcher) Show(ctx context.Context) error { return d.moveLimits(ctx, false, true) }

// moveLimits commits new limits. If shows is set, the commit has an entry even if no limit moves.
func (d *Dispatcher) moveLimits(ctx context.Context, urgent, shows bool) error {
	return d.all.b.Commit(ctx, Request{Change: moveLimits{d, shows}, Urgent: urgent})
}

// moveLimits is a change that moves the limits. Apply computes the new limits from the progress of the
// scan at the time of the call.
type moveLimits struct {
	d     *Dispatcher
	shows bool // the commit has an entry even if no limit moves
}

// Apply implements Change.
func (x moveLimits) Apply(dr *state.Draft) ([]format.Entry, error) {
	if err := x.d.checkOwner(dr); err != nil {
		return nil, err
	}
	entries := x.d.limitMoves(dr)
	if len(entries) == 0 && x.shows {
		entries = append(entries, &format.WindowMoved{Queue: x.d.queue, Epoch: x.d.epoch, Window: dr.QueueDispatchLimit(x.d.queue, 0)})
	}
	return entries, nil
}

// limitMoves returns the entries with new limits for the commit under construction. The caller must
// know the outcome of every earlier commit of this broker.
func (d *Dispatcher) limitMoves(dr *state.Draft) (entries []format.Entry) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.checkOwner(dr) != nil {
		return nil
	}
	ends := make([]format.Offset, len(d.parts))
	for i := range ends {
		ends[i], _ = dr.End(d.topic, format.Partition(i)) // 0 for a partition that the draft's topic does not have
	}
	for i, share := range d.sharesLocked(now, func(i int) format.Offset { return ends[i] }) {
		p, window := &d.parts[i], dr.QueueDispatchLimit(d.queue, format.Partition(i))
		if _, ok := dr.End(d.topic, format.Partition(i)); !ok {
			continue
		}
		goal := p.next + format.Offset(share)
		switch left := int64(window - p.next); {
		case share > 0 && goal > window && (shouldMove(left, share) || d.wanted > 0 && ends[i] > window):
			p.lowered = false
		case goal < window && shouldMove(left, share):
			// The owner keeps to the lower limit from now on, although the limit is not in the log yet.
			p.lowered, p.lower = true, goal
		default:
			if p.lower != window {
				p.lowered = false
			}
			continue
		}
		entries = append(entries, &format.WindowMoved{Queue: d.queue, Epoch: d.epoch, Partition: format.Partition(i), Window: goal})
	}
	if len(entries) == 0 {
		d.behind = time.Time{}
		d.all.unmark(d)
	}
	return entries
}

// Ride returns entries with new dispatch limits. The broker adds them to a commit with the given entries.
// The new limits are for queues of topics to which the commit appends, and for queues whose limits should
// move with the next commit.
func (x *Dispatchers) Ride(d *state.Draft, entries []format.Entry) (moves []format.Entry) {
	for _, y := range x.behind(entries) {
		moves = append(moves, y.limitMoves(d)...)
	}
	return moves
}

// mark notes that the next commit should move the limits of a dispatcher.
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

// behind returns the dispatchers that may add new limits to a commit with the given entries.
func (x *Dispatchers) behind(entries []format.Entry) (list []*Dispatcher) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range x.marked {
		list = append(list, d)
	}
	topics := map[format.TopicID]bool{}
	for _, it := range entries {
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
