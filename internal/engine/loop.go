package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
)

const (
	inlineBytesMax     = 4 * mib     // the largest payload that is written into the commit object itself
	contendedInlineMax = 64 << 10    // replaces inlineBytesMax while others race for slots, since a broker sends the payload again after each lost race
	pauseMax           = time.Second // if it waited longer for its requests, a broker predicts no further pause
	yieldsMax          = 100         // most yields after a commit, until a request comes: quicker than a wake-up
	yieldBytes         = 64 << 10    // after a larger commit the loop does not yield: callers would copy many records first, while no commit is under way
)

// loop is the commit loop: the one goroutine that claims slots, follows the log and changes the
// state. It ends when the engine is closing and no request waits, when e.life ends, or when the
// engine has stopped itself.
func (e *Engine) loop() {
	defer close(e.loopDone)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for e.life.Err() == nil && e.stopped.Load() == nil {
		if e.hand.mailbox.has() {
			e.readMail()
		}
		for _, set := range e.batcher.takeRefused() {
			e.finish([]*batchSet{set}, func(*Request) error { return storeError("the records were not stored", set.refused) })
		}
		e.endRides()
		now := time.Now()
		wait, ok := e.batcher.due(now)
		next := e.planCommit(now, wait, ok)
		poll, polling := e.tail.nextPoll(now, e.storeFails())
		polling = polling && !e.closing.Load() && e.question == nil
		var syncs []*syncRequest
		if e.question == nil || next.commit {
			syncs = e.tail.takeSyncs()
		}
		switch {
		case next.commit:
			e.commit(syncs)
			continue
		case next.sync:
			e.answerSyncs(syncs)
			e.hand.behind = 0
			e.hand.winner.Rest() // its silence in the meantime says nothing: this broker has asked it for nothing
			continue
		case len(syncs) > 0 || polling && poll == 0:
			if !e.askPeer(syncs) {
				e.answerSyncs(syncs)
			}
			continue
		case e.closing.Load() && e.batcher.empty() && len(e.hand.sender.Undecided()) == 0 && e.question == nil:
			e.endRides()
			e.nameSuccessor()
			return
		}
		if polling && (!next.ok || poll < next.wait) {
			next.wait, next.ok = poll, true
		}
		if !next.ok {
			next.wait = time.Hour
		}
		timer.Reset(next.wait)
		select {
		case <-timer.C:
		case <-e.batcher.wake:
		case <-e.tail.wake:
		case <-e.log.Heard():
			e.follow()
		case <-e.hand.mailbox.wake:
			e.readMail()
		case end, came := <-e.answers():
			e.answered(end, came)
		case <-e.life.Done():
		}
	}
	e.giveUpAll()
}

// follow applies the commits that other brokers have sent.
func (e *Engine) follow() {
	if err := e.log.Follow(); err != nil {
		e.stop(err)
	}
	if e.log.Gap() {
		e.tail.foreign() // a commit did not come from its writer, so sync soon: the store has it
	}
}

// giveUpAll refuses the requests that still wait. The loop calls it if the engine has stopped itself, or
// if e.life has ended.
func (e *Engine) giveUpAll() {
	e.closing.Store(true)
	e.batcher.close()
	err := e.Usable()
	e.finish(e.batcher.drain(), func(*Request) error { return err })
	e.giveUpBundles(err)
	syncs := e.tail.takeSyncs()
	if e.question != nil {
		syncs = append(syncs, e.question.syncs...)
	}
	for _, l := range syncs {
		l.done <- err
	}
	e.waiters.notifyAll()
}

// commit makes one commit of the requests that wait, and answers the syncs, which were requested before
// the commit began. If the commit wins a slot, the syncs need no read of the log: the commit has proven
// where the log ends.
func (e *Engine) commit(syncs []*syncRequest) {
	inline := int64(inlineBytesMax)
	if e.log.Contended() {
		inline = contendedInlineMax
	}
	due := time.Now()
	e.hand.pulse.busy(due)
	defer e.hand.pulse.busy(time.Time{})
	if len(syncs) > 0 && e.log.MustWait() {
		e.answerSyncs(syncs)
		syncs = nil
	}
	if e.newcomer.Swap(false) {
		e.log.LeaveGap()
	}
	e.expectLost()
	e.log.AwaitTurn(e.life)
	if !e.callForBundles() {
		e.tail.putBack(syncs)
		return
	}
	sets := e.takeToClaim(inline)
	if len(sets) == 0 && len(e.hand.sender.Undecided()) == 0 && e.hand.receiver.Hand() == 0 && !e.hand.settle {
		if len(syncs) > 0 {
			e.answerSyncs(syncs)
		}
		return
	}
	defer e.batcher.idle()
	defer func() { e.committed = time.Now() }()
	begun := time.Now()
	e.metrics.fellBack(&e.hand.fallback)
	defer e.hand.usedTurn(e)
	defer func() { e.hand.settle = false }()
	bytes := int64(0)
	for _, set := range sets {
		set.finish()
		bytes += set.bytes
	}
	var rides []*batchSet
	if e.hand.sender.MayClaim() {
		rides = e.batcher.takeRides(false)
	}
	for _, set := range rides {
		set.finish()
	}
	e.building = &building{begun: begun, pause: e.pause(due), sets: sets, rides: rides, refusal: map[*Request]error{}}
	defer func() { e.building = nil }()
	c, err := e.log.Commit(e.life, e.build, e.reportCommit)
	if c == nil && err == nil && !slices.ContainsFunc(sets, e.useless) && e.building.doubtful(e.Fresh()) {
		if err = e.log.Sync(e.life); err == nil {
			c, err = e.log.Commit(e.life, e.build, e.reportCommit)
		}
	}
	if c == nil && err == nil {
		e.batcher.putBackRides(rides)
		rides = nil
	}
	if e.building.yields && c == nil && err == nil {
		e.batcher.putBack(sets, e.useless)
		e.tail.putBack(syncs)
		return
	}
	switch {
	case c == nil && err == nil && slices.ContainsFunc(sets, e.useless):
		e.batcher.putBack(sets, e.useless)
		e.answerSyncs(syncs)
		return
	case err != nil:
		err = e.commitError(err)
		e.hand.sender.Unclaimed()
		e.dropHand(handover.NoRoom)
		if len(e.hand.sender.Undecided()) > 0 {
			pause(e.life, bundlePause)
		}
	}
	refusal := e.building.refusal
	e.finish(slices.Concat(sets, rides), func(r *Request) error {
		e := refusal[r]
		if e != nil && err != nil {
			return withoutUnknown(err) // not e: the refusal may rely on earlier requests of the commit, and these may not be in the log
		}
		if e != nil {
			return e
		}
		return err
	})
	if c == nil {
		e.answerSyncs(syncs)
		return
	}
	e.metrics.commit(c, time.Since(begun))
	for _, l := range syncs {
		l.done <- nil
	}
	e.proven()
	e.maintain(c.Seq)
	for n := 0; bytes <= yieldBytes && n < yieldsMax && e.batcher.empty(); n++ {
		runtime.Gosched() // callers run first, and their next requests join the next commit, instead of the one after it
	}
}

// bundlePause is the attempt whose pause comes before the next claim of a bundle, after one has failed.
const bundlePause = 5

// takeToClaim seals and returns the batch sets that this broker claims the next slot for, in addition to the bundles that it
// has or that others have handed over.
func (e *Engine) takeToClaim(inline int64) []*batchSet {
	s := e.hand.sender
	switch {
	case s.MayClaim():
		return e.batcher.takeSets(inline)
	case len(s.Undecided()) > 0:
		return nil
	}
	// The outcome of earlier bundles is unknown for ever. A broker that still has one of them drops it once the log has a later bundle.
	if !e.log.Young() {
		e.answerSyncs(nil) // else a checkpoint may be loaded after the sealing, and the outcome is unknown again
	}
	if sets := e.takeToHandOver(false); len(sets) > 0 {
		e.seal(sets)
		return nil
	}
	return e.batcher.takeSets(inline)
}

// pause returns the Pause for the mark of the commit that this broker writes now: the probable time to its next commit.
// It assumes the same time as between the end of its previous commit and due, when the requests of this one were due.
func (e *Engine) pause(due time.Time) uint16 {
	pause := due.Sub(e.committed)
	if e.committed.IsZero() || pause > pauseMax {
		return format.PauseUnknown
	}
	return uint16(pause.Milliseconds())
}

// reportCommit logs a failed attempt to write a commit.
func (e *Engine) reportCommit(err error) {
	e.logFailure("the store did not take a commit; trying again", err)
}

// commitError returns the error for the requests of a commit that failed, or whose outcome is unknown.
func (e *Engine) commitError(err error) error {
	var failed error = storeError("the commit was not confirmed", err)
	e.logFull(err)
	if halt := e.log.Err(); halt != nil {
		e.stop(halt)
	}
	if stopped := e.stopped.Load(); stopped != nil {
		failed = stopped
	}
	if errors.Is(err, commitlog.ErrUnknown) {
		return &UnknownError{failed}
	}
	return failed
}

// stop makes the engine refuse all further requests. err is an error for which [Hint] has advice, such as a
// damaged log, a store's clock that stepped back, or a store that has stopped (objstore.ErrStopped).
func (e *Engine) stop(err error) {
	stopped := &StoppedError{Hint: Hint(err), Err: err}
	if e.stopped.CompareAndSwap(nil, stopped) {
		e.logger.Error("stopped", "err", err, "hint", stopped.Hint)
		e.waiters.notifyAll()
	}
}

// finish sets the outcome of every request of the batch sets, and gives back the memory of the requests.
func (e *Engine) finish(sets []*batchSet, outcome func(*Request) error) {
	done := tally{of: e.traffic}
	for _, set := range sets {
		for _, r := range set.requests {
			switch err := outcome(r); {
			case !r.settled:
				r.err = err
			case r.doubtful:
				e.confirm(r, err)
			}
			if !r.settled && r.withdrawn {
				r.err = ErrWithdrawn
			}
			if !r.settled && r.err == nil {
				done.add(r.Appends)
			}
		}
	}
	done.count()
	for _, set := range sets {
		for _, r := range set.requests {
			e.batcher.decided(r)
			e.budget.Give(budget.Batches, r.bytes)
			close(r.done)
		}
	}
}

// useless reports whether a batch set needs new data objects: because a data object of the set may have
// been deleted, or because the data objects hold records that must not be committed.
func (e *Engine) useless(set *batchSet) bool {
	return set.changed || slices.ContainsFunc(set.objects, func(o *dataObject) bool { return o.ref.Seq < e.live.State.DataFloor() })
}

// answerSyncs reads the log to its end and answers the callers that requested a sync.
func (e *Engine) answerSyncs(syncs []*syncRequest) {
	begun := time.Now()
	e.hand.pulse.busy(begun)
	defer e.hand.pulse.busy(time.Time{})
	before, _ := e.log.Position()
	err := e.readLog(slices.ContainsFunc(syncs, func(l *syncRequest) bool { return l.relist }))
	after, _ := e.log.Position()
	if err == nil {
		e.tail.synced(begun, after != before)
	} else {
		e.tail.failed()
		if halt := e.log.Err(); halt != nil {
			e.stop(halt)
		}
		err = &StoreError{Doing: "the end of the log could not be read", RetryAfter: time.Second, Err: err}
		if stopped := e.stopped.Load(); stopped != nil {
			err = stopped
		}
	}
	for _, l := range syncs {
		l.done <- err
	}
}

// readMin is how long a broker that is connected to others waits at least, while it reads the log, until something comes. It can't
// hand over meanwhile, and its store may be the only one that does not answer.
const readMin = 2 * time.Second

// readLog reads the log to its end, after a List if relist is true.
func (e *Engine) readLog(relist bool) error {
	if relist {
		return e.log.Relist(e.life)
	}
	for e.mesh.Any() && e.log.Young() { // else it perhaps has to load a checkpoint, which takes long
		begun := time.Now()
		before, _ := e.log.Position()
		ctx, cancel := context.WithTimeout(e.life, max(readMin, 8*e.log.AnswerTime()))
		err := e.log.Sync(ctx)
		late := ctx.Err() != nil && e.life.Err() == nil
		cancel()
		if err == nil || !late {
			return err
		}
		if after, _ := e.log.Position(); after == before {
			e.unanswered(begun, err)
			return err
		}
	}
	return e.log.Sync(e.life)
}
