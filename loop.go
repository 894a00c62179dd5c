package seb

import (
	"errors"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/commitlog"
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
		wait, ok := b.batcher.due(now)
		poll, polling := b.tail.nextPoll(now, b.storeFails())
		polling = polling && !b.closing.Load()
		syncs := b.tail.takeSyncs()
		switch {
		case ok && wait == 0:
			b.commit(syncs)
			continue
		case len(syncs) > 0 || polling && poll == 0:
			b.sync(syncs)
			continue
		case b.closing.Load() && b.batcher.empty():
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
		case <-b.batcher.wake:
		case <-b.tail.wake:
		case <-b.life.Done():
		}
	}
	b.giveUpAll()
}

// giveUpAll refuses what still waits when the loop ends early.
func (b *Broker) giveUpAll() {
	b.closing.Store(true)
	b.batcher.close()
	err := b.usable()
	b.finish(b.batcher.drain(), func(*request) error { return err })
	for _, l := range b.tail.takeSyncs() {
		l.done <- err
	}
	b.waiters.notifyAll()
}

// commit makes one commit of the requests that wait. Its success proves where the log ends, which
// answers syncs that were requested before it began.
func (b *Broker) commit(syncs []*syncRequest) {
	inline := int64(inlineBytesMax)
	if b.contended() {
		inline = contendedInlineMax
	}
	sets := b.batcher.takeSets(inline)
	if len(sets) == 0 {
		if len(syncs) > 0 {
			b.sync(syncs)
		}
		return
	}
	defer b.batcher.idle()
	begun := time.Now()
	for _, g := range sets {
		g.finish()
	}
	b.building = &building{begun: begun, sets: sets, refusal: map[*request]error{}}
	defer func() { b.building = nil }()
	c, err := b.log.Commit(b.life, b.build, b.reportCommit)
	if c == nil && err == nil && !slices.ContainsFunc(sets, b.useless) && b.building.doubtful(b.fresh()) {
		if err = b.log.Sync(b.life); err == nil {
			c, err = b.log.Commit(b.life, b.build, b.reportCommit)
		}
	}
	switch {
	case c == nil && err == nil && slices.ContainsFunc(sets, b.useless):
		b.batcher.putBack(sets, b.useless)
		b.sync(syncs)
		return
	case err != nil:
		err = b.commitError(err)
	}
	refusal := b.building.refusal
	b.finish(sets, func(r *request) error {
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
		b.sync(syncs)
		return
	}
	b.metrics.commit(c, time.Since(begun))
	for _, l := range syncs {
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

// reportCommit logs an attempt whose outcome is not known.
func (b *Broker) reportCommit(err error) {
	b.logger.Warn("the store did not take a commit; trying again", "err", err)
}

// commitError returns the error for the callers of a commit that failed or was not confirmed.
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

// stop ends the broker because the log is damaged.
func (b *Broker) stop(err error) {
	e := &Error{Code: CodeBrokerStopped, Detail: "the broker stopped itself to protect the log", Hint: damageHint(err), Err: err}
	if b.stopped.CompareAndSwap(nil, e) {
		b.logger.Error("stopped", "err", err, "hint", e.Hint)
		b.waiters.notifyAll()
	}
}

// finish gives every request of the batch sets its outcome, and releases its memory.
func (b *Broker) finish(sets []*batchSet, outcome func(*request) error) {
	for _, g := range sets {
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
			b.batcher.decided(r)
			b.budget.Give(budget.Batches, r.bytes)
			close(r.done)
		}
	}
}

// useless tells whether a batch set needs new data objects: one may have been deleted, or they hold
// records that must not be committed.
func (b *Broker) useless(g *batchSet) bool {
	return g.changed || slices.ContainsFunc(g.objects, func(o *dataObject) bool { return o.ref.Seq < b.live.State.DataFloor() })
}

// sync follows the log to its end and answers the requests for that.
func (b *Broker) sync(syncs []*syncRequest) {
	begun := time.Now()
	before, _ := b.log.Position()
	follow := b.log.Sync
	if slices.ContainsFunc(syncs, func(l *syncRequest) bool { return l.relist }) {
		follow = b.log.Relist
	}
	err := follow(b.life)
	after, _ := b.log.Position()
	if err == nil {
		b.tail.synced(begun, after != before)
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
	for _, l := range syncs {
		l.done <- err
	}
}
