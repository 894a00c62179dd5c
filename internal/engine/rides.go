package engine

import (
	"fmt"
	"slices"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/mesh"
)

// A request that rides waits for a commit that is made anyway. It has a batch set of its own, which is in no queue of the batcher:
// so it makes no commit due, and the open batch set is no fuller because of it. This broker's next commit takes it along. A broker
// that hands its requests over tells the winner that it has such requests, so that the winner calls for them when it commits. If the
// commit is not made, they wait on. But once they are in a bundle, the log decides them, as all requests of the bundle: if the winner
// ends before it has committed the bundle, the broker commits the bundle itself.

// The requests that ride are small and few: they may wait for long, and are in memory meanwhile.
const (
	ridesMax      = 1000
	ridesBytesMax = 64 << 10
)

// joinRideLocked adds a request that rides.
func (b *batcher) joinRideLocked(r *Request) error {
	bytes := r.bytes
	for _, set := range b.rides {
		bytes += set.bytes
	}
	if len(b.rides) >= ridesMax || bytes > ridesBytesMax {
		return &budget.FullError{
			Detail: fmt.Sprintf("at most %d requests that ride, with %d bytes together, may wait for a commit", ridesMax, ridesBytesMax), Limit: ridesBytesMax,
		}
	}
	set := &batchSet{rides: true, requests: []*Request{r}, bytes: r.bytes, began: r.began, filling: map[partitionKey]*batch{}}
	for _, a := range r.Appends {
		set.add(r, a)
	}
	r.holders = 1
	b.rides = append(b.rides, set)
	b.notify()
	return nil
}

// takeRides seals and returns the sets of the requests that ride; if toHandOver is true, only of those that can be handed over.
func (b *batcher) takeRides(toHandOver bool) (taken []*batchSet) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.rides = slices.DeleteFunc(b.rides, func(set *batchSet) bool {
		r := set.requests[0]
		if r.withdrawn || toHandOver && !r.fits() {
			return false
		}
		sealLocked(set)
		taken = append(taken, set)
		return true
	})
	return taken
}

// putBackRides makes requests that ride wait again, since they are in no commit.
func (b *batcher) putBackRides(sets []*batchSet) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, set := range sets {
		r := set.requests[0]
		r.sealed, r.withdrawn = false, r.holders == 0
	}
	b.rides = append(sets, b.rides...)
}

// takeEndedRides removes and returns the sets of the requests that ride no longer: because they were withdrawn or settled, or
// because the engine is closing. The caller must refuse them.
func (b *batcher) takeEndedRides() (ended []*batchSet) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rides = slices.DeleteFunc(b.rides, func(set *batchSet) bool {
		if r := set.requests[0]; b.closed || r.withdrawn || r.settled {
			ended = append(ended, set)
			return true
		}
		return false
	})
	return ended
}

// ridesFit tells whether a request that rides can be handed over.
func (b *batcher) ridesFit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.rides, func(set *batchSet) bool { return set.requests[0].fits() })
}

// endRides ends the requests that ride no longer.
func (e *Engine) endRides() {
	if ended := e.batcher.takeEndedRides(); len(ended) > 0 {
		e.finish(ended, func(*Request) error { return ErrClosed })
	}
}

// offerRides tells the winner of requests that ride, unless it knows of them.
func (e *Engine) offerRides(winner format.SessionID) {
	if e.hand.rideTo != winner && e.batcher.ridesFit() && e.mesh.Hand(winner, mesh.Ride{}) {
		e.hand.rideTo = winner
	}
}

// refusedRide returns the refusal of a request that rides, if its change is refused now; else errAgain: the request rides on. The
// winner has refused the change, or has put off the whole request. Other requests would go into a commit of this broker then, which
// decides them, but no commit is made for one that rides.
func (e *Engine) refusedRide(r *Request) error {
	if r.Change == nil {
		return errAgain
	}
	s := e.live.State
	if _, err := r.Change.Apply(s.Draft(s.NextTime(e.StoreNow().UnixMicro()))); err != nil {
		return err
	}
	return errAgain
}
