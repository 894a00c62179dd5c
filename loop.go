package seb

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/cache"
	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

const (
	inlineBytesMax     = 4 * mib  // payload of a commit that stands in the commit itself
	contendedInlineMax = 64 << 10 // the same while other brokers win slots, since a lost race sends it again
	contendedFor       = 5 * time.Second
)

// loop is the one goroutine that claims slots, follows the log and writes the
// state. It ends when the broker is closed and nothing waits, when its life
// ends, or when the log turns out to be damaged.
func (b *Broker) loop() {
	defer close(b.loopDone)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for b.life.Err() == nil && b.stopped.Load() == nil {
		now := time.Now()
		wait, ok := b.gather.due(now)
		poll, polling := b.tail.nextPoll(now, b.storeFails())
		polling = polling && !b.closing.Load()
		looks := b.tail.takeLooks()
		switch {
		case ok && wait == 0:
			b.commit(looks)
			continue
		case len(looks) > 0 || polling && poll == 0:
			b.look(looks)
			continue
		case b.closing.Load() && b.gather.empty():
			return
		}
		if polling && (!ok || poll < wait) {
			wait, ok = poll, true
		}
		if !ok {
			wait = time.Hour
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-b.gather.wake:
		case <-b.tail.wake:
		case <-b.life.Done():
		}
	}
	b.giveUpAll()
}

// giveUpAll refuses what still waits when the loop ends early.
func (b *Broker) giveUpAll() {
	b.closing.Store(true)
	b.gather.close()
	err := b.usable()
	b.finish(b.gather.drain(), func(*request) error { return err })
	for _, l := range b.tail.takeLooks() {
		l.done <- err
	}
	b.waiters.notifyAll()
}

// building is the commit under construction.
type building struct {
	begun   time.Time
	groups  []*group
	commit  *format.Commit
	refusal map[*request]error
	// promised is what the state is to take for requests that are in the commit, of entries that
	// come behind all batches.
	promised int64
}

// doubtful tells whether only the end of the log can tell what to answer: an append
// was refused for where its partition ends as far as is known here, which other
// brokers may have moved; or it was settled by what is known of its key here; or a
// change was refused for what was the case before the request came; or the state had no
// room, as of a look that is not fresh, and other brokers may have made some.
func (x *building) doubtful(fresh bool) bool {
	for _, g := range x.groups {
		if slices.ContainsFunc(g.requests, func(r *request) bool { return r.doubtful }) {
			return true
		}
	}
	for r, err := range x.refusal {
		if CodeOf(err) == CodeOffsetConflict || CodeOf(err) == CodeOverStateBudget && !fresh || r.change != nil && !r.looked {
			return true
		}
	}
	return false
}

// commit makes one commit of what waits. Looks that were asked for before it
// began are answered by its success, which proves the end of the log.
func (b *Broker) commit(looks []*look) {
	inline := int64(inlineBytesMax)
	if b.contended() {
		inline = contendedInlineMax
	}
	groups := b.gather.takeGroups(inline)
	if len(groups) == 0 {
		if len(looks) > 0 {
			b.look(looks)
		}
		return
	}
	defer b.gather.idle()
	begun := time.Now()
	for _, g := range groups {
		g.finish()
	}
	b.building = &building{begun: begun, groups: groups, refusal: map[*request]error{}}
	defer func() { b.building = nil }()
	c, err := b.log.Commit(b.life, b.build, b.reportCommit)
	if c == nil && err == nil && !slices.ContainsFunc(groups, b.useless) && b.building.doubtful(b.fresh()) {
		if err = b.log.Sync(b.life); err == nil {
			c, err = b.log.Commit(b.life, b.build, b.reportCommit)
		}
	}
	switch {
	case c == nil && err == nil && slices.ContainsFunc(groups, b.useless):
		b.gather.putBack(groups, b.useless)
		b.look(looks)
		return
	case err != nil:
		err = b.commitError(err)
	}
	refusal := b.building.refusal
	b.finish(groups, func(r *request) error {
		e := refusal[r]
		if e != nil && err != nil {
			return withoutOutcome(err) // it is not in the commit, and may have been refused for the sake of another that is
		}
		if e != nil {
			return e
		}
		return err
	})
	if c == nil {
		b.look(looks)
		return
	}
	b.metrics.commit(c, time.Since(begun))
	for _, l := range looks {
		l.done <- nil
	}
	b.maybeCheckpoint(c.Seq)
}

func (b *Broker) contended() bool {
	if b.log.Contended() {
		b.contendedUntil = time.Now().Add(contendedFor)
	}
	return time.Now().Before(b.contendedUntil)
}

// reportCommit takes note of an attempt that decided nothing.
func (b *Broker) reportCommit(err error) {
	b.logger.Warn("the store did not take a commit; trying again", "err", err)
}

// commitError returns what the callers of a commit that did not come about are told.
func (b *Broker) commitError(err error) error {
	e := &Error{Code: CodeStoreUnavailable, Detail: "the commit was not confirmed", RetryAfter: time.Second, Err: err}
	if halt := b.log.Err(); halt != nil {
		b.stop(halt)
	}
	if stopped := b.stopped.Load(); stopped != nil {
		e = stopped
	}
	if errors.Is(err, commitlog.ErrUnknown) {
		return e.with(Unknown)
	}
	return e
}

// stop ends the broker because the log can't be believed.
func (b *Broker) stop(err error) {
	e := &Error{Code: CodeBrokerStopped, Detail: "the broker stopped itself to protect the log", Hint: damageHint(err), Err: err}
	if b.stopped.CompareAndSwap(nil, e) {
		b.logger.Error("stopped", "err", err, "hint", e.Hint)
		b.waiters.notifyAll()
	}
}

// finish tells every request of the groups what became of it, and gives back
// its memory.
func (b *Broker) finish(groups []*group, outcome func(*request) error) {
	for _, g := range groups {
		for _, r := range g.requests {
			switch err := outcome(r); {
			case !r.settled:
				r.err = err
			case r.doubtful:
				b.confirm(r, err)
			}
			switch {
			case r.settled:
			case r.withdrawn:
				r.err = refused(CodeCanceled, "the request was withdrawn")
			case r.err == nil:
				r.results = resultsOf(r)
			}
			b.gather.decided(r)
			b.budget.give(forBatches, r.bytes)
			close(r.done)
		}
	}
}

// build makes the commit that would follow the applied slot out of the groups
// under construction: each request checked against the state and those before
// it. It returns nil when nothing is left to commit.
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
	b.settle(x.groups, c.Time)
	if slices.ContainsFunc(x.groups, b.useless) {
		return nil, nil
	}
	for _, g := range x.groups {
		for _, r := range g.requests {
			if len(r.appends) == 0 && !r.withdrawn && !r.settled {
				b.buildChange(c, d, r)
			}
		}
	}
	for _, g := range x.groups {
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
	for _, g := range x.groups {
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
		for _, it := range b.rider.Ride(d, c.Entries) {
			b.take(c, d, it)
		}
	}
	return c, payload
}

// buildChange takes what a request changes, or refuses the request.
func (b *Broker) buildChange(c *format.Commit, d *state.Draft, r *request) {
	if r.change == nil {
		return
	}
	refusal := b.gather.allowed(r, d, b.storeNow())
	var entries []format.Entry
	if refusal == nil {
		entries, refusal = r.change(d)
	}
	if refusal == nil {
		refusal = b.roomForEntries(d, r, entries)
	}
	if refusal != nil {
		b.building.refusal[r] = refusal
		return
	}
	for _, it := range entries {
		b.take(c, d, it)
	}
}

// buildShared refuses the appends of a group that share batches, all of them, if the
// state has no room for these.
func (b *Broker) buildShared(d *state.Draft, g *group) {
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

// buildWhole takes what a request changes that a commit takes all of or nothing,
// before the first of its batches, or refuses the request: its batches come next,
// one behind the other, so what holds now will hold for all of them.
func (b *Broker) buildWhole(c *format.Commit, d *state.Draft, r *request) {
	if refusal := b.gather.allowed(r, d, b.storeNow()); refusal != nil {
		b.building.refusal[r] = refusal
		return
	}
	if refusal := checkEnds(d, r); refusal != nil {
		b.building.refusal[r] = refusal
		return
	}
	var entries []format.Entry
	if r.change != nil {
		var refusal *Error
		if entries, refusal = r.change(d); refusal != nil {
			b.building.refusal[r] = refusal
			return
		}
	}
	if refusal := b.roomForAppends(d, r.batches(), []*request{r}, entries); refusal != nil {
		b.building.refusal[r] = refusal
		return
	}
	for _, it := range entries {
		b.take(c, d, it)
	}
}

// checkEnds refuses a request whose topics are gone, or whose conditions don't hold.
// What an append insists on counts the records of those before it in the request.
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

// take makes an entry that was made from the draft a part of the commit.
func (b *Broker) take(c *format.Commit, d *state.Draft, it format.Entry) {
	if err := d.Take(it); err != nil {
		panic("seb: " + err.Error())
	}
	c.Entries = append(c.Entries, it)
}

// buildBatch gives a batch its offsets. It refuses the batch's requests, and
// returns false, when their topic is gone or a part of them is refused.
func (b *Broker) buildBatch(c *format.Commit, d *state.Draft, t *batch) bool {
	if r := t.only; r != nil {
		if t == r.first() {
			b.buildWhole(c, d, r)
		}
		if b.building.refusal[r] != nil {
			return false
		}
	} else if b.building.refusal[t.parts[0].request] != nil { // then those of the others too: see buildShared
		return false
	}
	end, ok := d.End(t.key.topic, uint32(t.key.partition))
	if !ok {
		for _, p := range t.parts {
			b.building.refusal[p.request] = topicDeleted(p.piece.topic)
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
	for _, it := range keyedEntries(r) {
		b.take(c, d, it)
	}
}

// buildDelayed says of an append that is in the commit when its records are due.
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

// useless tells whether a group can't be committed with the data objects it has:
// a sweep may have taken one, or they hold records that must not be committed.
func (b *Broker) useless(g *group) bool {
	return g.changed || slices.ContainsFunc(g.objects, func(o *dataObject) bool { return o.ref.Seq < b.live.State.DataFloor() })
}

// look follows the log to its end and answers those who asked for it.
func (b *Broker) look(looks []*look) {
	begun := time.Now()
	before, _ := b.log.Position()
	follow := b.log.Sync
	if slices.ContainsFunc(looks, func(l *look) bool { return l.relist }) {
		follow = b.log.Relist
	}
	err := follow(b.life)
	after, _ := b.log.Position()
	if err == nil {
		b.tail.looked(begun, after != before)
	} else {
		b.tail.failed()
		if halt := b.log.Err(); halt != nil {
			b.stop(halt)
		}
		e := &Error{Code: CodeStoreUnavailable, Detail: "the end of the log could not be read", Err: err, RetryAfter: time.Second}
		if s := b.stopped.Load(); s != nil {
			e = s
		}
		err = e
	}
	for _, l := range looks {
		l.done <- err
	}
}

// observer hears of what becomes of the state. The commit loop calls it, without a lock.
type observer interface {
	// loaded comes behind a checkpoint that took the place of the state.
	loaded(s *state.State)
	// applying comes before the state has the entries of a commit, which is applied at that time.
	applying(entries []format.Entry, at logTime)
	// applied comes behind the state.
	applied(s *state.State, entries []format.Entry, at logTime)
}

// rider adds entries to commits that are made for others.
type rider interface {
	// Ride returns what a commit of those entries, which the draft has, should have as well.
	Ride(d *state.Draft, entries []format.Entry) []format.Entry
}

// fold is what the log calls with what is committed. It runs in the commit loop.
type fold Broker

// Load puts a checkpoint in the place of the state, which it must continue: what
// this broker has acknowledged and served, it stands by.
func (f *fold) Load(c *format.Checkpoint) error {
	s, err := state.Decode(c.Seq, c.Body)
	if err != nil {
		return err
	}
	if err := s.Continues(f.live.State); err != nil {
		return fmt.Errorf("%w: %w", commitlog.ErrFork, err)
	}
	f.live.Lock()
	f.live.State = s
	f.loads++
	f.live.Unlock()
	f.lastCheckpoint = c.Seq
	f.recovery.loaded(c.Seq)
	f.sound.Store(uint64(c.Seq))
	for _, o := range f.observers {
		o.loaded(s)
	}
	return nil
}

// Apply remembers a commit's records, folds it in and wakes who waits for it: in this
// order, so that whoever hears of a record finds it in the cache.
func (f *fold) Apply(c *format.Commit, object []byte) error {
	own := f.building != nil && f.building.commit == c
	if own {
		f.rememberOwn(c)
	} else {
		f.rememberRead(c, object)
	}
	at := f.timeOf(c, own)
	for _, o := range f.observers {
		o.applying(c.Entries, at)
	}
	f.live.Lock()
	err := f.live.State.Apply(c)
	f.live.Unlock()
	if err != nil {
		return err
	}
	if own { // before anybody wakes, who would otherwise ask the store for this proof
		f.tail.proven(f.building.begun)
	}
	for _, o := range f.observers {
		o.applied(f.live.State, c.Entries, at)
	}
	if !f.recovered {
		f.recovery.applied(c.Seq)
	} else if !own {
		f.tail.foreign()
	}
	return nil
}

// rememberOwn puts the batches of the commit under construction into the cache, as they
// were built. The store has them: it has the commit.
func (f *fold) rememberOwn(c *format.Commit) {
	in := make(map[*format.Batch]bool, len(c.Entries))
	for _, it := range c.Entries {
		if x, ok := it.(*format.Batch); ok {
			in[x] = true
		}
	}
	for _, g := range f.building.groups {
		for _, t := range g.batches {
			if in[&t.row] {
				f.remember(c, &t.row, t.bytes)
			}
		}
	}
}

// rememberRead puts the batches of a commit into the cache that was read from the store,
// as far as they came with it.
func (f *fold) rememberRead(c *format.Commit, object []byte) {
	if object == nil {
		return
	}
	for _, it := range c.Entries {
		x, ok := it.(*format.Batch)
		if !ok || x.Object != 0 {
			continue
		}
		at := c.PayloadStart + x.Pos
		if raw := object[at : at+x.Size]; record.Verify(raw, x.CRC) == nil {
			f.remember(c, x, bytes.Clone(raw))
		}
	}
}

// remember puts a committed batch into the cache.
func (f *fold) remember(c *format.Commit, x *format.Batch, raw []byte) {
	r := cache.Range{
		Object: cache.Object{Kind: byte(format.KindCommit), Seq: uint64(c.Seq), Tag: c.Nonce.Tag()},
		Pos:    c.PayloadStart + x.Pos,
		Size:   x.Size,
		CRC:    x.CRC,
	}
	if x.Object > 0 {
		ref := c.Data[x.Object-1]
		r.Object = cache.Object{Kind: byte(format.KindData), Seq: uint64(ref.Seq), Tag: ref.ID}
		r.Pos = format.DataPayloadStart + x.Pos
	}
	f.cache.Add(r, raw)
}
