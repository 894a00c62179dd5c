package engine

import (
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
	"github.com/simple-event-broker/seb/internal/state"
)

// building is the commit under construction.
type building struct {
	begun   time.Time
	pause   uint16      // when this broker probably commits again, in ms: see format.WriterMark.Pause
	sets    []*batchSet // of this broker, in no bundle
	rides   []*batchSet // of requests that ride
	all     []*batchSet // sets and rides, and those of the bundles in the commit
	seq     format.Seq  // the slot of the commit
	now     time.Time   // the store's time when the build began
	builds  int         // how many slots this broker has built a commit for
	yields  bool        // another broker has won the slot, and gets the requests
	commit  *format.Commit
	limits  bundleLimits           // of the broker whose requests are being built
	bundle  *bundle                // the bundle that is being built, or nil
	keys    map[format.Digest]bool // hashes of the idempotency keys in the commit
	refusal map[*Request]error
	// promised is the memory that the state needs for the entries of idempotency keys and delays. build
	// adds these entries to the commit after all batches, so the draft does not count them before that.
	promised int64
}

// doubtful tells whether an answer may be wrong because of another broker's commit that the engine has
// not read yet. Then the engine must sync and build again before it answers. These answers may be wrong:
//   - an answer that relies on which idempotency keys the log has;
//   - the refusal of an append because its partition does not end at the required offset;
//   - the refusal of a request with a change, or of a part of that change, if the engine has not synced since the
//     request came;
//   - the refusal of a request because the state is full, unless fresh says that the last sync is recent.
func (x *building) doubtful(fresh bool) bool {
	for _, set := range x.sets {
		if slices.ContainsFunc(set.requests, func(r *Request) bool { return r.doubtful || r.refusedPart() }) {
			return true
		}
	}
	for r, err := range x.refusal {
		_, conflict := errors.AsType[*EndConflictError](err)
		_, full := errors.AsType[*StateFullError](err)
		if conflict || full && !fresh || r.Change != nil && !r.Synced {
			return true
		}
	}
	return false
}

// refusedPart reports whether the change refused a part of itself, without a sync since the request came.
func (r *Request) refusedPart() bool {
	change, ok := r.Change.(PartChange)
	return ok && !r.Synced && change.RefusedPart()
}

// build makes the commit for the slot after the last applied slot, from the batch sets in e.building. It
// checks each request against the state and against the requests before it. It returns nil if there are
// no entries to commit, or if a set must be uploaded again.
func (e *Engine) build(next commitlog.Next) (*format.Commit, [][]byte) {
	for {
		c, payload, bad := e.tryBuild(next)
		if bad == nil {
			return c, payload
		}
		e.ban(bad.session, bad.err)
	}
}

// badBundle says that the draft refuses an entry of another broker's bundle.
type badBundle struct {
	session handover.Session
	err     error
}

// tryBuild is build, unless a bundle of another broker is bad.
func (e *Engine) tryBuild(next commitlog.Next) (c *format.Commit, payload [][]byte, bad *badBundle) {
	defer func() {
		switch x := recover().(type) {
		case nil:
		case *badBundle:
			bad = x
		default:
			panic(x)
		}
	}()
	c, payload = e.buildOnce(next)
	return c, payload, nil
}

func (e *Engine) buildOnce(next commitlog.Next) (*format.Commit, [][]byte) {
	var (
		x       = e.building
		c       = &format.Commit{Time: e.live.State.NextTime(next.Now)}
		d       = e.live.State.Draft(c.Time).Measure()
		payload [][]byte
	)
	if x.seq != next.Seq {
		x.builds, x.seq = x.builds+1, next.Seq
	}
	if x.builds > 1 && e.mesh.Takes(format.SessionID(e.hand.winner.Session())) {
		x.yields = true
		return nil, nil
	}
	rand.Read(c.Nonce[:])
	x.now = e.StoreNow()
	clear(x.refusal) // after a lost race, build checks all requests again
	x.promised, x.all = 0, slices.Concat(x.sets, x.rides)
	x.limits = bundleLimits{StateMemory: e.opts.StateMemory, IdempotencyKeys: e.opts.IdempotencyKeys}
	e.settle(x.sets, c.Time)
	e.settle(x.rides, c.Time)
	e.take(c, d, &format.WriterMark{Session: e.opts.Session, Pause: x.pause, Address: e.opts.Address})
	if level := e.levelEntry(); level != nil {
		e.take(c, d, level)
	}
	if seen := e.collector.seen(e); seen != nil {
		e.take(c, d, seen)
	}
	if delay := e.delayEntry(c.Time); delay != nil {
		e.take(c, d, delay)
	}
	if spent := e.tell(); spent != nil {
		e.take(c, d, spent)
	}
	for _, named := range e.nameIntroduced(e.live.State) {
		e.take(c, d, named)
	}
	marks := len(c.Entries) // what stands before makes no commit necessary
	if slices.ContainsFunc(x.sets, e.useless) {
		return nil, nil
	}
	bundles := e.hand.receiver.Build(e.hand.sender.Undecided())
	if len(bundles) > 0 {
		x.keys = x.keysOf(x.sets)
	}
	// Of requests with the same condition, the first one wins. So the order is random, for all brokers to have the same chance.
	ownLast := mathrand.IntN(len(bundles)+1) > 0
	if !ownLast {
		payload = e.buildSets(c, d, x.sets, payload)
	}
	own := inlineBytes(x.sets)
	for _, b := range bundles {
		bundle := b.Payload.(*bundle)
		if int64(c.PayloadSize)+own+bundle.inlineBytes() > inlineBytesMax && len(c.Entries) > marks {
			break
		}
		payload = e.buildBundle(c, d, bundle, payload)
	}
	x.limits = bundleLimits{StateMemory: e.opts.StateMemory, IdempotencyKeys: e.opts.IdempotencyKeys}
	if ownLast && len(x.sets) > 0 {
		e.take(c, d, &format.WriterMark{Session: e.opts.Session, Pause: x.pause}) // else the entries would belong to the last bundle
		payload = e.buildSets(c, d, x.sets, payload)
	}
	x.commit = c
	if len(c.Entries) == marks && !e.hand.settle {
		return nil, nil
	}
	if len(x.sets)+len(x.rides) > 0 && e.hand.sender.MayClaim() {
		e.hand.sender.Claimed()
	}
	if len(x.rides) > 0 {
		if len(x.all) > len(x.sets)+len(x.rides) { // else the entries would belong to the last bundle
			e.take(c, d, &format.WriterMark{Session: e.opts.Session, Pause: x.pause})
		}
		payload = e.buildSets(c, d, x.rides, payload)
	}
	x.promised = 0 // the draft has these entries now
	if e.rider != nil {
		entries := e.rider.Ride(d, c.Entries)
		if e.room(d, state.UseOwners, d.Growth(entries...)) != nil {
			entries = withoutNewLimits(d, entries)
		}
		if len(entries) > 0 && len(x.all) > len(x.sets)+len(x.rides) { // else the entries would belong to the last bundle
			e.take(c, d, &format.WriterMark{Session: e.opts.Session, Pause: x.pause})
		}
		for _, entry := range entries {
			e.take(c, d, entry)
		}
	}
	return c, payload
}

// keysOf returns the hashes of the idempotency keys that the commit has by requests of batch sets.
func (x *building) keysOf(sets []*batchSet) map[format.Digest]bool {
	keys := map[format.Digest]bool{}
	for _, set := range sets {
		for _, r := range set.requests {
			if r.Key == nil || r.withdrawn || r.settled || x.refusal[r] != nil {
				continue
			}
			for _, hash := range r.Key.Hashes {
				keys[hash] = true
			}
		}
	}
	return keys
}

// buildBundle adds a bundle to the commit: its mark, which says what becomes of each request, and its entries.
func (e *Engine) buildBundle(c *format.Commit, d *state.Draft, b *bundle, payload [][]byte) [][]byte {
	mark := &format.BundleMark{Session: format.SessionID(b.Session), Number: b.Number, Draw: b.Draw, Seal: b.Seal}
	e.take(c, d, mark)
	requests := b.requests
	mark.Requests = uint32(len(requests))
	e.building.limits, e.building.bundle = b.limits, b
	defer func() { e.building.bundle = nil }()
	e.building.all = append(e.building.all, b.sets...)
	e.judge(b, c.Time)
	payload = e.buildSets(c, d, b.sets, payload)
	for i, r := range requests {
		err := e.building.refusal[r]
		if r.Change != nil {
			made := 0
			if err == nil {
				made = len(r.entries)
			}
			mark.Changes = append(mark.Changes, uint32(made))
		}
		if err != nil {
			mark.Verdicts = append(mark.Verdicts, verdictOf(i, err))
		}
	}
	return payload
}

// judge refuses the requests of a bundle that must not be in the commit, for the reasons that settle has for other requests. If
// such a request shares batches with others of its set, these belong into a later bundle, and so do all that come after them.
func (e *Engine) judge(b *bundle, at int64) {
	x := e.building
	room := b.limits.IdempotencyKeys - e.live.State.KeyedCount(at) - len(x.keys)
	again := false // a request goes into a later bundle, so those after it do, too
	for _, set := range b.sets {
		shared := false // a request is refused that may share batches
		again = again || e.useless(set)
		for _, r := range set.requests {
			if r.withdrawn || r.settled {
				continue
			}
			err := e.refuse(r, at, room)
			if err == nil && again {
				err = errAgain
			}
			if err == nil && r.Key != nil {
				for _, hash := range r.Key.Hashes {
					x.keys[hash] = true
				}
				room -= len(r.Key.Hashes)
			}
			if err != nil {
				x.refusal[r] = err
				shared = shared || !r.whole()
			}
		}
		if !shared {
			continue
		}
		again = true
		for _, r := range set.requests {
			if !r.withdrawn && !r.settled && x.refusal[r] == nil {
				x.refusal[r] = errAgain
			}
		}
	}
}

// refuse returns why a request of a bundle must not be in the commit at that time; nil if it may be. room is for how many
// hashes of idempotency keys there is room.
func (e *Engine) refuse(r *Request, at int64, room int) error {
	if refusal := e.batcher.allowed(r, e.live.State, e.building.now); refusal != nil {
		return refusal
	}
	if r.Key == nil {
		return nil
	}
	probe := Request{Key: r.Key, Appends: r.Appends} // r changes only when the log has decided
	first, known := replay(e.live.State, &probe, at)
	switch {
	case known && first.Print != r.Key.Print:
		return ErrKeyReused
	case known:
		return errReplayed
	case time.Duration(at-r.came)*time.Microsecond > keyedPatience:
		return ErrWaitedTooLong
	case slices.ContainsFunc(r.Key.Hashes, func(h format.Digest) bool { return e.building.keys[h] }):
		return errAgain
	case room < len(r.Key.Hashes):
		return &KeysFullError{e.building.limits.IdempotencyKeys}
	}
	return nil
}

// buildSets adds the requests of batch sets to the commit, and their batches to its payload, which it returns.
func (e *Engine) buildSets(c *format.Commit, d *state.Draft, sets []*batchSet, payload [][]byte) [][]byte {
	for _, set := range sets {
		for _, r := range set.requests {
			if len(r.Appends) == 0 && !r.withdrawn && !r.settled {
				e.buildChange(c, d, r)
			}
		}
	}
	for _, set := range sets {
		e.buildShared(d, set)
		if !set.upload {
			for _, t := range set.batches {
				if e.buildBatch(c, d, t) {
					t.row.Object, t.row.Pos = 0, c.PayloadSize
					c.PayloadSize += uint32(len(t.bytes))
					payload = append(payload, t.bytes)
				}
			}
			continue
		}
		for _, o := range set.objects {
			if err := d.CheckData(o.ref); e.building.bundle != nil && err != nil {
				e.bad(err)
			}
			used := false
			for _, t := range o.batches {
				if e.buildBatch(c, d, t) {
					t.row.Object, used = uint32(len(c.Data)+1), true
				}
			}
			if used {
				c.Data = append(c.Data, o.ref)
			}
		}
	}
	for _, set := range sets {
		for _, r := range set.requests {
			e.buildKeyed(c, d, r)
			e.buildDelayed(c, d, r)
		}
	}
	return payload
}

// buildChange adds the entries of a request's change to the commit, or refuses the request.
func (e *Engine) buildChange(c *format.Commit, d *state.Draft, r *Request) {
	if r.Change == nil || e.building.refusal[r] != nil {
		return
	}
	refusal := e.batcher.allowed(r, d, e.building.now)
	var entries []format.Entry
	if refusal == nil {
		entries, refusal = e.makeChange(d, r)
	}
	if refusal == nil {
		entries, refusal = e.roomForEntries(d, r, entries)
	}
	if refusal != nil {
		e.building.refusal[r] = refusal
		return
	}
	r.entries = entries
	for _, entry := range entries {
		e.take(c, d, entry)
	}
}

// buildShared checks whether the state has room for the batches that several requests of a batch set may
// share. If not, it refuses all requests with such batches.
func (e *Engine) buildShared(d *state.Draft, set *batchSet) {
	var requests []*Request
	for _, r := range set.requests {
		if len(r.Appends) > 0 && !r.whole() && !r.withdrawn && !r.settled && e.building.refusal[r] == nil {
			requests = append(requests, r)
		}
	}
	var batches []*batch
	for _, t := range set.batches {
		if t.only == nil {
			batches = append(batches, t)
		}
	}
	if len(requests) == 0 {
		return
	}
	if refusal := e.roomForAppends(d, batches, requests, nil); refusal != nil {
		for _, r := range requests {
			e.building.refusal[r] = refusal
		}
	}
}

// buildWhole checks a request that does not share its batches. It adds the entries of the request's change
// to the commit, or refuses the request. The caller then adds the batches of the request, without other
// batches in between, so that the conditions that buildWhole has checked still hold.
func (e *Engine) buildWhole(c *format.Commit, d *state.Draft, r *Request) {
	if refusal := e.batcher.allowed(r, d, e.building.now); refusal != nil {
		e.building.refusal[r] = refusal
		return
	}
	if refusal := checkEnds(d, r); refusal != nil {
		e.building.refusal[r] = refusal
		return
	}
	var entries []format.Entry
	if r.Change != nil {
		var refusal error
		if entries, refusal = e.makeChange(d, r); refusal != nil {
			e.building.refusal[r] = refusal
			return
		}
	}
	if refusal := e.roomForAppends(d, r.batches(), []*Request{r}, entries); refusal != nil {
		e.building.refusal[r] = refusal
		return
	}
	r.entries = entries
	for _, entry := range entries {
		e.take(c, d, entry)
	}
}

// makeChange applies the change of a request to the draft. A refused change of a bundle, or of a part of it, belongs into a
// later commit: the broker that has got the request decides it, and tells its caller why.
func (e *Engine) makeChange(d *state.Draft, r *Request) ([]format.Entry, error) {
	entries, err := r.Change.Apply(d)
	if e.building.bundle == nil {
		return entries, err
	}
	if part, ok := r.Change.(PartChange); err != nil || ok && part.RefusedPart() {
		return nil, errAgain
	}
	return entries, nil
}

// checkEnds refuses a request if one of its topics was deleted, or if a partition does not end where an
// append requires it. If a request has two appends to a partition that ends at 10, and the first has 5
// records, the second may require the end 15.
func checkEnds(d *state.Draft, r *Request) error {
	ends := map[partitionKey]int64{}
	for n, a := range r.Appends {
		for i, p := range a.shares {
			key := p.batch.key
			end, ok := d.End(key.topic, key.partition)
			if !ok {
				return &TopicDeletedError{Part: a.Part, Topic: a.Topic, append: n}
			}
			end += format.Offset(ends[key])
			if i == 0 && a.IfEnd >= 0 && end != a.IfEnd {
				return &EndConflictError{Part: a.Part, Topic: a.Topic, Partition: key.partition, End: end, Want: a.IfEnd, append: n}
			}
			ends[key] += int64(p.count)
		}
	}
	return nil
}

// take adds an entry to the draft and to the commit.
func (e *Engine) take(c *format.Commit, d *state.Draft, entry format.Entry) {
	if err := d.Take(entry); err != nil {
		e.bad(err)
	}
	c.Entries = append(c.Entries, entry)
}

// bad ends the build: the draft refuses what the requests have made. If they are those of another broker, tryBuild goes on.
func (e *Engine) bad(err error) {
	if b := e.building.bundle; b != nil && b.sealedAt.IsZero() {
		panic(&badBundle{b.Session, err})
	}
	panic("engine: " + err.Error())
}

// buildBatch assigns offsets to a batch, and takes the batch into the commit. It returns false if the
// requests of the batch are refused. If the topic of the batch was deleted, buildBatch refuses these
// requests itself.
func (e *Engine) buildBatch(c *format.Commit, d *state.Draft, t *batch) bool {
	t.in = 0
	if r := t.only; r != nil {
		if t == r.first() && e.building.refusal[r] == nil {
			e.buildWhole(c, d, r)
		}
		if e.building.refusal[r] != nil {
			return false
		}
	} else if e.building.refusal[t.shares[0].request] != nil { // buildShared has refused all requests of the batch
		return false
	}
	end, ok := d.End(t.key.topic, t.key.partition)
	if !ok {
		for _, p := range t.shares {
			e.building.refusal[p.request] = &TopicDeletedError{Topic: p.append.Topic}
		}
		return false
	}
	t.row.Topic, t.row.Partition = t.key.topic, t.key.partition
	t.row.Base, t.row.MaxTime, t.row.Count = end, t.maxTime, t.count
	e.take(c, d, &t.row)
	t.in = e.building.seq
	return true
}

// buildKeyed adds the entries by which the log remembers a request's idempotency key, if the request has
// a key and is in the commit.
func (e *Engine) buildKeyed(c *format.Commit, d *state.Draft, r *Request) {
	if r.Key == nil || r.withdrawn || r.settled || e.building.refusal[r] != nil {
		return
	}
	for _, entry := range keyedEntries(r) {
		e.take(c, d, entry)
	}
}

// buildDelayed adds entries that say when a request's delayed records are due, if the request is in the
// commit.
func (e *Engine) buildDelayed(c *format.Commit, d *state.Draft, r *Request) {
	if r.withdrawn || r.settled || e.building.refusal[r] != nil {
		return
	}
	for _, a := range r.Appends {
		due := a.dueAt(c.Time)
		if due <= c.Time {
			continue
		}
		for _, p := range a.shares {
			e.take(c, d, &format.RecordsDelayed{
				Topic: a.ID, Partition: p.batch.key.partition, Count: uint32(p.count), Offset: p.batch.row.Base + format.Offset(p.first), Due: due,
			})
		}
	}
}
