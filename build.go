package seb

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// building is the commit under construction.
type building struct {
	begun   time.Time
	sets    []*batchSet
	commit  *format.Commit
	refusal map[*request]error
	// promised is the memory that the state needs for entries of these requests that come after all
	// batches.
	promised int64
}

// doubtful tells whether a sync must come before the answer, because other brokers may have changed
// what a request was refused for: the end of a partition; what this broker knows of an idempotency
// key; the state before the request came; or the room in the state, if the last sync is old.
func (x *building) doubtful(fresh bool) bool {
	for _, g := range x.sets {
		if slices.ContainsFunc(g.requests, func(r *request) bool { return r.doubtful }) {
			return true
		}
	}
	for r, err := range x.refusal {
		if CodeOf(err) == CodeOffsetConflict || CodeOf(err) == CodeOverStateBudget && !fresh || r.change != nil && !r.synced {
			return true
		}
	}
	return false
}

// build makes the commit that would follow the applied slot from the batch sets under
// construction. It checks each request against the state and the requests before it. It returns
// nil if nothing is left to commit.
func (b *Broker) build(next commitlog.Next) (*format.Commit, [][]byte) {
	var (
		x       = b.building
		c       = &format.Commit{Time: max(next.Now, b.live.State.Time())}
		d       = b.live.State.Draft(c.Time).Measure()
		payload [][]byte
	)
	rand.Read(c.Nonce[:])
	clear(x.refusal) // after a lost race everything is checked again
	x.promised = 0
	b.settle(x.sets, c.Time)
	if slices.ContainsFunc(x.sets, b.useless) {
		return nil, nil
	}
	for _, g := range x.sets {
		for _, r := range g.requests {
			if len(r.appends) == 0 && !r.withdrawn && !r.settled {
				b.buildChange(c, d, r)
			}
		}
	}
	for _, g := range x.sets {
		b.buildShared(d, g)
		if !g.upload {
			for _, t := range g.batches {
				if b.buildBatch(c, d, t) {
					t.row.Object, t.row.Pos = 0, c.PayloadSize
					c.PayloadSize += uint32(len(t.bytes))
					payload = append(payload, t.bytes)
				}
			}
			continue
		}
		for _, o := range g.objects {
			used := false
			for _, t := range o.batches {
				if b.buildBatch(c, d, t) {
					t.row.Object, used = uint32(len(c.Data)+1), true
				}
			}
			if used {
				c.Data = append(c.Data, o.ref)
			}
		}
	}
	for _, g := range x.sets {
		for _, r := range g.requests {
			b.buildKeyed(c, d, r)
			b.buildDelayed(c, d, r)
		}
	}
	x.commit = c
	if len(c.Entries) == 0 {
		return nil, nil
	}
	if b.rider != nil {
		for _, entry := range b.rider.Ride(d, c.Entries) {
			b.take(c, d, entry)
		}
	}
	return c, payload
}

// buildChange takes the changes of a request, or refuses it.
func (b *Broker) buildChange(c *format.Commit, d *state.Draft, r *request) {
	if r.change == nil {
		return
	}
	refusal := b.batcher.allowed(r, d, b.storeNow())
	if refusal == nil {
		r.entries, refusal = r.change.Apply(d)
	}
	if refusal == nil {
		refusal = b.roomForEntries(d, r)
	}
	if refusal != nil {
		b.building.refusal[r] = refusal
		return
	}
	for _, entry := range r.entries {
		b.take(c, d, entry)
	}
}

// buildShared refuses all appends of a batch set that share batches, if the state has no room for
// these batches.
func (b *Broker) buildShared(d *state.Draft, g *batchSet) {
	var requests []*request
	for _, r := range g.requests {
		if len(r.appends) > 0 && !r.whole() && !r.withdrawn && !r.settled {
			requests = append(requests, r)
		}
	}
	var batches []*batch
	for _, t := range g.batches {
		if t.only == nil {
			batches = append(batches, t)
		}
	}
	if len(requests) == 0 {
		return
	}
	if refusal := b.roomForAppends(d, batches, requests, nil); refusal != nil {
		for _, r := range requests {
			b.building.refusal[r] = refusal
		}
	}
}

// buildWhole takes the changes of a request that a commit has as a whole or not at all, or refuses
// it. Its batches come next, one after the other, so what holds now holds for all of them.
func (b *Broker) buildWhole(c *format.Commit, d *state.Draft, r *request) {
	if refusal := b.batcher.allowed(r, d, b.storeNow()); refusal != nil {
		b.building.refusal[r] = refusal
		return
	}
	if refusal := checkEnds(d, r); refusal != nil {
		b.building.refusal[r] = refusal
		return
	}
	if r.change != nil {
		var refusal error
		if r.entries, refusal = r.change.Apply(d); refusal != nil {
			b.building.refusal[r] = refusal
			return
		}
	}
	if refusal := b.roomForAppends(d, r.batches(), []*request{r}, r.entries); refusal != nil {
		b.building.refusal[r] = refusal
		return
	}
	for _, entry := range r.entries {
		b.take(c, d, entry)
	}
}

// checkEnds refuses a request if a topic of it was deleted, or a condition on an offset does not
// hold. An append comes after the earlier appends of its request.
func checkEnds(d *state.Draft, r *request) error {
	ends := map[partitionKey]int64{}
	for _, a := range r.appends {
		for i, p := range a.parts {
			key := p.batch.key
			end, ok := d.End(key.topic, uint32(key.partition))
			if !ok {
				return a.named(topicDeleted(a.topic))
			}
			end += ends[key]
			if i == 0 && a.ifOffset >= 0 && end != a.ifOffset {
				return a.named(offsetConflict(a.topic, key.partition, end, a.ifOffset))
			}
			ends[key] += int64(p.count)
		}
	}
	return nil
}

// take adds an entry to the draft and to the commit.
func (b *Broker) take(c *format.Commit, d *state.Draft, entry format.Entry) {
	if err := d.Take(entry); err != nil {
		panic("seb: " + err.Error())
	}
	c.Entries = append(c.Entries, entry)
}

// buildBatch assigns offsets to a batch. It refuses the requests of the batch, and returns false,
// if their topic was deleted or something else in them was refused.
func (b *Broker) buildBatch(c *format.Commit, d *state.Draft, t *batch) bool {
	if r := t.only; r != nil {
		if t == r.first() {
			b.buildWhole(c, d, r)
		}
		if b.building.refusal[r] != nil {
			return false
		}
	} else if b.building.refusal[t.parts[0].request] != nil { // buildShared has refused all requests of the batch
		return false
	}
	end, ok := d.End(t.key.topic, uint32(t.key.partition))
	if !ok {
		for _, p := range t.parts {
			b.building.refusal[p.request] = topicDeleted(p.append.topic)
		}
		return false
	}
	t.row.Topic, t.row.Partition = t.key.topic, uint32(t.key.partition)
	t.row.Base, t.row.MaxTime, t.row.Count = end, t.maxTime, t.count
	b.take(c, d, &t.row)
	return true
}

// buildKeyed remembers a request that is in the commit by its idempotency key.
func (b *Broker) buildKeyed(c *format.Commit, d *state.Draft, r *request) {
	if r.key == nil || r.withdrawn || r.settled || b.building.refusal[r] != nil {
		return
	}
	for _, entry := range keyedEntries(r) {
		b.take(c, d, entry)
	}
}

// buildDelayed adds when the records of an append are due.
func (b *Broker) buildDelayed(c *format.Commit, d *state.Draft, r *request) {
	if r.withdrawn || r.settled || b.building.refusal[r] != nil {
		return
	}
	for _, a := range r.appends {
		due := a.dueAt(c.Time)
		if due <= c.Time {
			continue
		}
		for _, p := range a.parts {
			b.take(c, d, &format.RecordsDelayed{
				Topic: a.id, Partition: uint32(p.batch.key.partition), Count: uint32(p.count), Offset: p.batch.row.Base + int64(p.first), Due: due,
			})
		}
	}
}
