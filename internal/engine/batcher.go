package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
)

// batchBytes is about the size at which a merged batch is closed: the unit that
// is read and verified.
const batchBytes = 1 * mib

// partitionKey names a partition for as long as its topic lives.
type partitionKey struct {
	topic     uint64
	partition int32
}

// batch is records of one partition on their way into a commit. The records of
// several requests share one, so that the state grows with commits and not with
// requests.
type batch struct {
	key     partitionKey
	builder record.Builder
	shares  []*batchShare
	only    *Request // whose records alone it holds, since a commit may have to leave them out; nil if it is shared

	// Set when the batch set is sealed.
	bytes   []byte
	count   uint32
	maxTime int64

	// Set when a commit is built on it.
	row format.Batch
}

// batchShare is an append's share of a batch.
type batchShare struct {
	request *Request
	append  *Append
	batch   *batch
	first   int // index of its first record in the batch
	count   int
}

// batchSet is the requests that wait for one commit together.
type batchSet struct {
	requests []*Request
	batches  []*batch
	filling  map[partitionKey]*batch // the batches that still take records
	bytes    int64
	began    time.Time
	urgent   bool // holds a request that is committed without linger
	alone    bool // takes no more requests, and shares its commit with no other batch set

	// Set when the records go into data objects. upload and uploaded are
	// guarded by batcher.mu; objects is set before uploaded.
	upload, uploaded bool
	objects          []*dataObject
	changed          bool // records were taken out since the upload
}

// batcher collects requests into batch sets. The newest is open; those queued
// before it wait for their uploads, or for their turn.
type batcher struct {
	batching Batching
	wake     chan struct{}        // of the commit loop
	put      func(*batchSet) bool // uploads a sealed batch set; true when its objects are there, false when the broker ends
	uploads  sync.WaitGroup

	mu     sync.Mutex
	open   *batchSet
	queued []*batchSet
	busy   bool // a commit is under way
	closed bool
	keyed  map[format.Digest]*Request // the undecided requests that have an idempotency key
}

func (g *batcher) notify() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// admitLocked returns the open batch set, after it has begun a new one if that is due.
func (g *batcher) admitLocked(now time.Time) *batchSet {
	if o := g.open; o != nil && len(o.requests) > 0 && !g.batching.Admits(o.fill(now)) {
		o.alone = true
		g.queued = append(g.queued, o)
		g.open = nil
	}
	if g.open == nil {
		g.open = &batchSet{filling: map[partitionKey]*batch{}, began: now}
	}
	return g.open
}

func (g *batchSet) fill(now time.Time) Fill {
	return Fill{Requests: len(g.requests), Bytes: g.bytes, Age: now.Sub(g.began)}
}

// join adds a request to the open batch set, with its records, which it copies. It
// returns the request to wait for: r, or the undecided one of the same idempotency
// key, unless the access of all its callers has ended. It fails when the broker is
// closing, and when that key is another request's.
//
// A request whose caller has synced is committed without linger too: it is rare, and
// has waited for the sync already.
func (g *batcher) join(r *Request) (*Request, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, ErrClosed
	}
	if r.Key != nil {
		if first := g.keyed[r.Key.hash()]; first != nil && !first.withdrawn && first.refusal == nil {
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
		g.keyed[r.Key.hash()] = r
	}
	o := g.admitLocked(r.began)
	r.holders = 1
	o.requests = append(o.requests, r)
	o.bytes += r.bytes
	o.urgent = o.urgent || r.Urgent || r.Synced
	for _, a := range r.Appends {
		o.add(r, a)
	}
	if o.bytes >= dataObjectBytes && (g.busy || len(g.queued) > 0) {
		g.uploadOpenLocked()
	}
	g.notify()
	return r, nil
}

// allowed returns nil if a request is the program's own, or if the access of one of its callers
// still holds; else the refusal. A refusal is final once another request has taken the
// idempotency key: a commit can't have two requests of one key.
func (g *batcher) allowed(r *Request, in Keyring, now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.refusal != nil && r.Key != nil && g.keyed[r.Key.hash()] != r {
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

// add copies the records of one of r's appends into batches.
func (o *batchSet) add(r *Request, a *Append) {
	var (
		cur    *batchShare
		mine   map[partitionKey]*batchShare // with several partitions, this append's last share in each
		spread = len(a.Partitions) > 0
		rec    record.Record
	)
	for i := range a.Count {
		key := partitionKey{a.ID, a.PartitionOf(i)}
		rec = record.Record{Headers: rec.Headers[:0], Timestamp: r.wall}
		a.Records.Record(i, &rec)
		if rec.Value == nil {
			rec.Value = []byte{} // a null value would mean a tombstone
		}
		switch {
		case cur == nil:
			cur = o.share(r, a, key)
			if !spread {
				cur.batch.builder.Grow(int(min(a.Bytes, batchBytes)))
			}
		case cur.batch.key != key:
			if mine == nil {
				mine = map[partitionKey]*batchShare{}
			}
			mine[cur.batch.key] = cur
			cur = mine[key]
		}
		if cur == nil || cur.batch.builder.Size() >= batchBytes {
			cur = o.share(r, a, key)
		}
		cur.batch.builder.Append(&rec)
		cur.count++
	}
	a.Records, a.Partitions = nil, nil // the caller may reuse them
}

// share begins an append's share of the batch that takes a partition's records. A request that a
// commit may have to leave out gets batches of its own.
func (o *batchSet) share(r *Request, a *Append, key partitionKey) *batchShare {
	var only *Request
	if r.whole() {
		only = r
	}
	b := o.filling[key]
	if b == nil || b.only != only || b.builder.Size() >= batchBytes {
		b = &batch{key: key, only: only}
		o.filling[key] = b
		o.batches = append(o.batches, b)
	}
	p := &batchShare{request: r, append: a, batch: b, first: b.builder.Count()}
	b.shares = append(b.shares, p)
	a.shares = append(a.shares, p)
	return p
}

// withdraw takes a request out of its batch set, once all callers that wait for it have
// given up. It returns false when others still wait, or when the batch set is sealed
// already.
func (g *batcher) withdraw(r *Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.holders--
	if r.holders == 0 && !r.sealed {
		r.withdrawn = true
	}
	return r.withdrawn
}

// decided forgets the idempotency key of a request whose outcome is known.
func (g *batcher) decided(r *Request) {
	if r.Key == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.keyed[r.Key.hash()] == r {
		delete(g.keyed, r.Key.hash())
	}
}

// uploadOpenLocked seals the open batch set and uploads its records as data objects
// while an earlier commit is still under way.
func (g *batcher) uploadOpenLocked() {
	o := g.open
	g.open = nil
	g.queued = append(g.queued, o)
	g.uploadLocked(o)
}

func (g *batcher) uploadLocked(o *batchSet) {
	sealLocked(o)
	o.upload, o.uploaded, o.changed = true, false, false
	g.uploads.Go(func() {
		ok := g.put(o)
		g.mu.Lock()
		o.uploaded = ok
		g.mu.Unlock()
		g.notify()
	})
}

func sealLocked(o *batchSet) {
	for _, r := range o.requests {
		r.sealed = !r.withdrawn
	}
}

// due returns how long to wait until a commit should begin; ok is false when
// nothing can be committed.
func (g *batcher) due(now time.Time) (wait time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queued) > 0 {
		q := g.queued[0]
		return 0, !q.upload || q.uploaded
	}
	o := g.open
	switch {
	case o == nil || len(o.requests) == 0:
		return 0, false
	case o.urgent || g.closed:
		return 0, true
	}
	return max(0, g.batching.Wait(o.fill(now))), true
}

// takeSets returns the batch sets of the next commit, sealed, in the order in which they
// came, and an empty list if they have to be uploaded first. Inline payload beyond
// inlineMax is uploaded instead.
func (g *batcher) takeSets(inlineMax int64) []*batchSet {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queued) == 0 && g.open != nil {
		g.queued = append(g.queued, g.open)
		g.open = nil
	}
	var taken []*batchSet
	for len(g.queued) > 0 {
		q := g.queued[0]
		if !q.upload && q.bytes > inlineMax {
			g.uploadLocked(q)
		}
		if q.upload && !q.uploaded || q.alone && len(taken) > 0 {
			break
		}
		sealLocked(q)
		taken = append(taken, q)
		g.queued = g.queued[1:]
		if q.alone {
			break
		}
		if len(g.queued) == 0 && g.open != nil && g.open.bytes <= inlineMax && g.batching.Admits(g.open.fill(time.Now())) {
			// All earlier sets are in this commit, so this one joins it at no cost.
			g.queued = append(g.queued, g.open)
			g.open = nil
		}
	}
	g.busy = len(taken) > 0
	return taken
}

// putBack returns sets that could not be committed to the head of the queue, and uploads
// those again whose data objects can't be used.
func (g *batcher) putBack(sets []*batchSet, useless func(*batchSet) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queued = append(sets, g.queued...)
	for _, q := range sets {
		if useless(q) {
			g.uploadLocked(q)
		}
	}
}

// idle tells that no commit is under way.
func (g *batcher) idle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy = false
}

// close refuses further requests; those that wait are committed without linger.
func (g *batcher) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.notify()
}

// drain takes all batch sets, so that the caller refuses their requests.
func (g *batcher) drain() []*batchSet {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.queued
	if g.open != nil {
		all = append(all, g.open)
	}
	for _, q := range all {
		sealLocked(q)
	}
	g.queued, g.open = nil, nil
	return all
}

// empty tells whether nothing waits.
func (g *batcher) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queued) == 0 && (g.open == nil || len(g.open.requests) == 0)
}

// finish turns the records into batches, without those of withdrawn requests.
// The batch set is sealed: nobody else touches it.
func (o *batchSet) finish() {
	if o.filling == nil {
		return // finished already, for a commit that was not made
	}
	o.filling = nil
	o.batches = slices.DeleteFunc(o.batches, func(b *batch) bool { return !b.finish() })
}

// takeOut takes the records of settled requests out of a finished batch set.
func (o *batchSet) takeOut() {
	settled := func(p *batchShare) bool { return p.request.settled }
	o.batches = slices.DeleteFunc(o.batches, func(b *batch) bool {
		return slices.ContainsFunc(b.shares, settled) && !b.finish()
	})
	o.changed = o.upload
}

// finish completes a batch, without the records of requests that won't be in the
// commit; false means that it is empty. It may be called again when there are
// more such requests.
func (b *batch) finish() bool {
	var (
		gone  []record.Span
		moved int
		kept  = b.shares[:0]
	)
	for _, p := range b.shares {
		if p.request.withdrawn || p.request.settled {
			gone = append(gone, record.Span{From: p.first, To: p.first + p.count})
			moved += p.count
			continue
		}
		p.first -= moved
		kept = append(kept, p)
	}
	b.shares = kept
	if len(gone) > 0 {
		b.builder = *b.builder.Without(gone)
	}
	whole := b.builder // a copy: more records may have to be taken out later
	b.bytes = whole.Finish()
	if b.bytes == nil {
		return false
	}
	head, err := record.Parse(b.bytes)
	if err != nil {
		panic("engine: a batch built here does not parse: " + err.Error())
	}
	b.count, b.maxTime = uint32(head.Count), head.MaxTimestamp
	b.row.CRC, b.row.Size = head.CRC, uint32(len(b.bytes))
	return true
}
