package engine

import (
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// building is the commit under construction.
type building struct {
	begun   time.Time
	pause   uint16 // when this broker probably commits again, in ms: see format.WriterMark.Pause
	sets    []*batchSet
	commit  *format.Commit
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
	var (
		x       = e.building
		c       = &format.Commit{Time: max(next.Now, e.live.State.Time())}
		d       = e.live.State.Draft(c.Time).Measure()
		payload [][]byte
	)
	rand.Read(c.Nonce[:])
	clear(x.refusal) // after a lost race, build checks all requests again
	x.promised = 0
	e.settle(x.sets, c.Time)
	e.take(c, d, &format.WriterMark{Session: e.opts.Session, Pause: x.pause, Address: e.opts.Address})
	if slices.ContainsFunc(x.sets, e.useless) {
		return nil, nil
	}
	for _, set := range x.sets {
		for _, r := range set.requests {
			if len(r.Appends) == 0 && !r.withdrawn && !r.settled {
				e.buildChange(c, d, r)
			}
		}
	}
	for _, set := range x.sets {
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
	for _, set := range x.sets {
		for _, r := range set.requests {
			e.buildKeyed(c, d, r)
			e.buildDelayed(c, d, r)
		}
	}
	x.commit = c
	if len(c.Entries) == 1 { // the mark alone
		return nil, nil
	}
	x.promised = 0 // the draft has these entries now
	if e.rider != nil {
		entries := e.rider.Ride(d, c.Entries)
		if e.room(d, state.UseOwners, d.Growth(entries...)) != nil {
			entries = withoutNewLimits(d, entries)
		}
		for _, entry := range entries {
			e.take(c, d, entry)
		}
	}
	return c, payload
}

// buildChange adds the entries of a request's change to the commit, or refuses the request.
func (e *Engine) buildChange(c *format.Commit, d *state.Draft, r *Request) {
	if r.Change == nil {
		return
	}
	refusal := e.batcher.allowed(r, d, e.StoreNow())
	var entries []format.Entry
	if refusal == nil {
		entries, refusal = r.Change.Apply(d)
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
		if len(r.Appends) > 0 && !r.whole() && !r.withdrawn && !r.settled {
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
	if refusal := e.batcher.allowed(r, d, e.StoreNow()); refusal != nil {
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
		if entries, refusal = r.Change.Apply(d); refusal != nil {
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

// checkEnds refuses a request if one of its topics was deleted, or if a partition does not end where an
// append requires it. If a request has two appends to a partition that ends at 10, and the first has 5
// records, the second may require the end 15.
func checkEnds(d *state.Draft, r *Request) error {
	ends := map[partitionKey]int64{}
	for _, a := range r.Appends {
		for i, p := range a.shares {
			key := p.batch.key
			end, ok := d.End(key.topic, key.partition)
			if !ok {
				return &TopicDeletedError{Part: a.Part, Topic: a.Topic}
			}
			end += format.Offset(ends[key])
			if i == 0 && a.IfEnd >= 0 && end != a.IfEnd {
				return &EndConflictError{Part: a.Part, Topic: a.Topic, Partition: key.partition, End: end, Want: a.IfEnd}
			}
			ends[key] += int64(p.count)
		}
	}
	return nil
}

// take adds an entry to the draft and to the commit.
func (e *Engine) take(c *format.Commit, d *state.Draft, entry format.Entry) {
	if err := d.Take(entry); err != nil {
		panic("engine: " + err.Error())
	}
	c.Entries = append(c.Entries, entry)
}

// buildBatch assigns offsets to a batch, and takes the batch into the commit. It returns false if the
// requests of the batch are refused. If the topic of the batch was deleted, buildBatch refuses these
// requests itself.
func (e *Engine) buildBatch(c *format.Commit, d *state.Draft, t *batch) bool {
	if r := t.only; r != nil {
		if t == r.first() {
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
