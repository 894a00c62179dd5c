package engine

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
)

// batcher collects requests into batch sets. New requests join the open set. Queued sets take no
// further requests: they wait for their uploads, or until earlier sets are committed.
type batcher struct {
	batching Batching
	spending *spending
	wake     chan struct{}         // wakes the commit loop
	put      func(*batchSet) error // uploads a sealed batch set; returns nil once the store has all its data objects, an error that wraps objstore.ErrFull or errGivenUp if the requests must be refused, and any other error if the engine ends
	uploads  sync.WaitGroup

	mu     sync.Mutex
	open   *batchSet
	queued []*batchSet
	rides  []*batchSet // of the requests that ride, one for each
	busy   bool        // a commit is under way
	closed bool
	keyed  map[format.Digest]*Request // the undecided requests with an idempotency key, by the hash of the key
}

func (b *batcher) notify() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// admitLocked returns the batch set for the next request: the open set, or a new one if Batching
// admits no further request to the open set.
func (b *batcher) admitLocked(now time.Time) *batchSet {
	if o := b.open; o != nil && len(o.requests) > 0 && !b.batching.Admits(b.spending.fill(o, now)) {
		o.alone = true
		b.queued = append(b.queued, o)
		b.open = nil
	}
	if b.open == nil {
		b.open = &batchSet{filling: map[partitionKey]*batch{}, began: now}
	}
	return b.open
}

// join adds r to the open batch set, copies the records of r, and returns r. There is one exception: if
// an earlier request with the same idempotency key is still undecided, join returns the earlier request,
// and the caller of r waits for the outcome of that request. This exception does not apply if the earlier
// request was withdrawn, or if none of its callers may still make requests. join returns an error if the
// engine is closing, or if the earlier request has other contents than r.
//
// A request that is urgent, or that has waited for a sync already, does not wait for further requests. A request that rides joins no
// batch set of others.
func (b *batcher) join(r *Request) (*Request, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	if r.Rides {
		return r, b.joinRideLocked(r)
	}
	if r.Key != nil {
		if first := b.keyed[r.Key.hash()]; first != nil && !first.withdrawn && first.refusal == nil {
			if first.Key.Print != r.Key.Print {
				return nil, ErrKeyReused
			}
			first.holders++
			if len(r.Callers) == 0 {
				first.Callers = nil
			} else if len(first.Callers) > 0 {
				first.Callers = append(first.Callers, r.Callers...)
			}
			return first, nil
		}
		b.keyed[r.Key.hash()] = r
	}
	o := b.admitLocked(r.began)
	r.holders = 1
	o.requests = append(o.requests, r)
	o.bytes += r.bytes
	o.urgent = o.urgent || r.Urgent || r.Synced
	o.unfit = o.unfit || !r.fits()
	for _, a := range r.Appends {
		o.add(r, a)
	}
	if o.bytes >= dataObjectBytes && (b.busy || len(b.queued) > 0) {
		b.uploadOpenLocked()
	}
	b.notify()
	return r, nil
}

// allowed returns nil if a request has no callers, or if at least one of its callers may still make
// requests; otherwise it returns the refusal. After a refusal, a later call may return nil, unless another
// request with the same idempotency key has joined in between: a commit can't have two requests with the
// same key.
func (b *batcher) allowed(r *Request, in Keyring, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.refusal != nil && r.Key != nil && b.keyed[r.Key.hash()] != r {
		return r.refusal
	}
	r.refusal = nil
	for _, c := range r.Callers {
		if r.refusal = c.May(in, now); r.refusal == nil {
			break
		}
	}
	return r.refusal
}

// upload begins to upload the next batch set if it has more than max bytes, and reports whether its upload is under way.
func (b *batcher) upload(max int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queued) == 0 && b.open != nil && b.open.bytes > max {
		b.uploadOpenLocked()
	}
	if len(b.queued) == 0 {
		return false
	}
	q := b.queued[0]
	if !q.upload && q.bytes > max {
		b.uploadLocked(q)
	}
	return q.upload && !q.uploaded
}

// callers returns the callers of a request.
func (b *batcher) callers(r *Request) []Caller {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(r.Callers)
}

// withdraw notes that a caller of a request has given up. Once all callers of the request have given
// up, the request is withdrawn, and will be in no commit. withdraw returns false if the request is not
// withdrawn: because other callers still wait, or because the batch set is already sealed.
func (b *batcher) withdraw(r *Request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.holders--
	if r.holders == 0 && !r.sealed {
		r.withdrawn = true
		if r.Rides {
			b.notify() // no commit may come that ends it
		}
	}
	return r.withdrawn
}

// decided forgets the idempotency key of a request whose outcome is known.
func (b *batcher) decided(r *Request) {
	if r.Key == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keyed[r.Key.hash()] == r {
		delete(b.keyed, r.Key.hash())
	}
}

// uploadOpenLocked seals the open batch set and uploads its records as data objects
// while an earlier commit is still under way.
func (b *batcher) uploadOpenLocked() {
	o := b.open
	b.open = nil
	b.queued = append(b.queued, o)
	b.uploadLocked(o)
}

func (b *batcher) uploadLocked(o *batchSet) {
	sealLocked(o)
	o.upload, o.uploaded, o.changed = true, false, false
	b.uploads.Go(func() {
		err := b.put(o)
		b.mu.Lock()
		o.uploaded = err == nil
		if errors.Is(err, objstore.ErrFull) || errors.Is(err, errGivenUp) {
			o.refused = err
		}
		b.mu.Unlock()
		b.notify()
	})
}

func sealLocked(o *batchSet) {
	for _, r := range o.requests {
		r.sealed = !r.withdrawn
	}
}

// due returns how long to wait until a commit should begin; ok is false when no batch set can be
// committed yet.
func (b *batcher) due(now time.Time) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queued) > 0 {
		q := b.queued[0]
		return 0, !q.upload || q.uploaded || q.refused != nil
	}
	o := b.open
	switch {
	case o == nil || len(o.requests) == 0:
		return 0, false
	case o.urgent || b.closed:
		return 0, true
	}
	return max(0, b.batching.Wait(b.spending.fill(o, now))), true
}

// takeRefused removes and returns the batch sets whose data objects could not be uploaded. The caller must refuse their requests.
func (b *batcher) takeRefused() (refused []*batchSet) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queued = slices.DeleteFunc(b.queued, func(q *batchSet) bool {
		if q.refused != nil {
			refused = append(refused, q)
		}
		return q.refused != nil
	})
	return refused
}

// takeSets seals and returns the batch sets of the next commit, oldest first. A set of more than
// inlineMax bytes is uploaded instead of being written into the commit. takeSets returns an empty
// list if the first set has to be uploaded before the commit.
func (b *batcher) takeSets(inlineMax int64) []*batchSet {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queued) == 0 && b.open != nil {
		b.queued = append(b.queued, b.open)
		b.open = nil
	}
	var taken []*batchSet
	for len(b.queued) > 0 {
		q := b.queued[0]
		if !q.upload && q.bytes > inlineMax {
			b.uploadLocked(q)
		}
		if q.upload && !q.uploaded || q.alone && len(taken) > 0 {
			break
		}
		sealLocked(q)
		taken = append(taken, q)
		b.queued = b.queued[1:]
		if q.alone {
			break
		}
		if len(b.queued) == 0 && b.open != nil && b.open.bytes <= inlineMax && b.batching.Admits(b.spending.fill(b.open, time.Now())) {
			// All earlier sets are in this commit. So the open set joins the commit, too, instead of
			// waiting for the next one.
			b.queued = append(b.queued, b.open)
			b.open = nil
		}
	}
	b.busy = len(taken) > 0
	return taken
}

// putBack puts sets that could not be committed back at the head of b.queued. If useless returns true
// for a set, the data objects of the set can't be used, and putBack uploads the set again.
func (b *batcher) putBack(sets []*batchSet, useless func(*batchSet) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queued = append(sets, b.queued...)
	for _, q := range sets {
		q.unfit = !fits([]*batchSet{q})
		if useless(q) {
			b.uploadLocked(q)
		}
	}
}

// fits tells whether all requests that wait can be handed over to another broker.
func (b *batcher) fits() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !slices.ContainsFunc(b.queued, func(q *batchSet) bool { return q.unfit }) && (b.open == nil || !b.open.unfit)
}

// takeUnfit removes the requests that can't be handed over, and returns them in sets of their own. The caller must refuse them.
func (b *batcher) takeUnfit() (unfit []*batchSet) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open != nil && b.open.unfit {
		b.queued = append(b.queued, b.open)
		b.open = nil
	}
	for i, q := range b.queued {
		if !q.unfit || q.upload && !q.uploaded {
			continue
		}
		sealLocked(q)
		q.finish()
		rest := q.without(func(r *Request) bool { return r.withdrawn || r.fits() })
		if unfit = append(unfit, q); rest == nil {
			rest = &batchSet{}
		}
		b.queued[i] = rest
	}
	b.queued = slices.DeleteFunc(b.queued, func(q *batchSet) bool { return len(q.requests) == 0 })
	return unfit
}

// idle notes that no commit is under way.
func (b *batcher) idle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = false
}

// close makes join refuse requests. The requests that have joined no longer wait for further requests.
func (b *batcher) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.notify()
}

// drain seals, removes and returns all batch sets. The caller must refuse their requests.
func (b *batcher) drain() []*batchSet {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Concat(b.queued, b.rides)
	if b.open != nil {
		all = append(all, b.open)
	}
	for _, q := range all {
		sealLocked(q)
	}
	b.queued, b.open, b.rides = nil, nil, nil
	return all
}

// empty tells whether no request waits, apart from those that ride.
func (b *batcher) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queued) == 0 && (b.open == nil || len(b.open.requests) == 0)
}
