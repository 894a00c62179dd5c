package commitlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/wait"
	"github.com/simple-event-broker/seb/objstore"
)

// Next describes the next slot to the function build of [Log.Commit]. Seq is the slot's number, and Prev is
// the hash of the previous commit.
type Next struct {
	Seq  format.Seq
	Prev format.Hash
	// Now is the store's time in microseconds since 1970.
	Now int64
}

// Commit claims one slot after the other until it wins a slot. Then it applies and returns the
// commit in that slot. Before each claim, when all earlier slots are applied, it calls build. build
// returns a commit and the parts of the commit's payload; Commit sets the commit's cluster, seq,
// prev, created and hash. If build returns a nil commit, Commit gives up and returns nil.
//
// Commit sends the same commit to a slot until it knows which broker won the slot. If the store
// can't be reached, Commit tries again until ctx ends, and calls report with the error of each attempt. If
// the store has no room for the commit, and the claim certainly has not won the slot, Commit returns the
// error, which wraps [objstore.ErrFull].
//
// An error that wraps ErrUnknown means that a claim was sent, but that Commit does not know
// whether the claim won the slot. Any other error means that nothing was, or will be, committed.
func (l *Log) Commit(ctx context.Context, build func(Next) (*format.Commit, [][]byte), report func(error)) (*format.Commit, error) {
	attempts := 0
	lost, watched := 0, false // races lost in a row to brokers that are not connected; whether the log was watched since
	for {
		if err := ctx.Err(); err != nil {
			return nil, l.abandon(err)
		}
		l.awaitTurn(ctx)
		act := l.next()
		if (act.Do == Idle || act.Do == Tail) && l.claim == nil {
			if !watched && l.shouldWatch(lost) {
				watched = true
				if err := l.watch(ctx); err != nil && !l.halted() && ctx.Err() == nil {
					report(err)
					_ = l.pause(ctx, 2) // damaged answers in a row halt the broker, so don't let them come at once
				}
				continue
			}
			if !l.propose(build) {
				return nil, nil
			}
			continue
		}
		claimed := l.claim
		err := l.perform(ctx, act)
		switch {
		case err == nil && act.Do == DoApply && claimed != nil:
			l.claim, l.claimParts = nil, nil
			if l.wonLast {
				return claimed, nil
			}
			l.stats.LostRaces.Add(1)
			if lost, watched = lost+1, false; !l.apart {
				lost = 0
			}
		case err == nil && act.Do == Tail:
			// The store answered the Create with "exists", but answered a Get of the same slot with
			// 404. Pause before the next attempt.
			attempts++
			if err := l.pause(ctx, attempts); err != nil {
				return nil, l.abandon(err)
			}
		case err == nil:
			if act.Do == DoApply {
				attempts = 0
			}
		case errors.Is(err, ErrUnknown):
			return nil, err
		case l.halted() || ctx.Err() != nil, errors.Is(err, objstore.ErrFull) && !l.unsure:
			return nil, l.abandon(err)
		default:
			report(err)
			attempts++
			if err := l.pause(ctx, attempts); err != nil {
				return nil, l.abandon(err)
			}
		}
	}
}

// abandon ends the open claim. Commit calls abandon when the context has ended or the log has
// halted. abandon returns err; if the claim was sent, the returned error wraps ErrUnknown too.
func (l *Log) abandon(err error) error {
	var c Claim
	l.with(func(p *Protocol) { c = p.Abandon() })
	l.claim, l.claimParts = nil, nil
	if c.Sent {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

func (l *Log) propose(build func(Next) (*format.Commit, [][]byte)) bool {
	applied, tip := l.Position()
	c, payload := build(Next{Seq: applied + 1, Prev: tip, Now: l.StoreNow().UnixMicro()})
	if c == nil {
		return false
	}
	c.Created = l.clock.Now().UnixMicro()
	c.Cluster, c.Seq, c.Prev = l.cluster.ID, applied+1, tip
	head := format.EncodeCommit(c)
	l.unsure = false
	l.claim, l.claimParts = c, append([][]byte{head}, payload...)
	l.with(func(p *Protocol) { p.Propose(c.Hash) })
	return true
}

// pollPauseMin is the least time between two Gets of a broker that waits for its turn.
const pollPauseMin = time.Millisecond

// now returns the time since the start of the broker, by the monotonic clock of package time. Unlike l.clock.Boot, it
// may stop while the machine is suspended. This does no harm, since a suspended broker loses its turn anyway.
func (l *Log) now() time.Duration { return time.Since(l.began) }

// AnswerTime returns about how long the store takes for a Get or a Create.
func (l *Log) AnswerTime() time.Duration { return l.turns.answer }

// MustWait tells whether AwaitTurn would wait for another broker.
func (l *Log) MustWait() bool { return l.turns.next(l.now()) >= 0 }

// AwaitTurn waits while the next slot is left free for brokers without turns (see turns.gap), then while it is for
// another broker; in this second wait, it applies commits. It returns early if ctx ends, a request fails, or the wait
// takes too long. Call it before you collect the requests for a commit, so that these include what comes meanwhile.
func (l *Log) AwaitTurn(ctx context.Context) {
	l.turnBy = l.now() + l.turnMax
	wait.For(ctx, min(l.turns.gap(l.now(), rand.Float64()), l.turnMax))
	l.awaitTurn(ctx)
}

// LeaveGap makes the next AwaitTurn leave a slot free for a broker that has never won one. Many calls leave one slot free
// every 5 s.
func (l *Log) LeaveGap() { l.turns.leaveGap(l.now()) }

// Expect gives the next turn to a broker that now claims for itself, although it has handed over its requests until a moment
// ago: the connection to it no longer works.
func (l *Log) Expect(session format.SessionID) { l.turns.expect(session, l.now()) }

// Ended notes that a broker has ended: it gets no turns, for which this broker would wait.
func (l *Log) Ended(session format.SessionID) { l.turns.end(session) }

// awaitTurn is AwaitTurn without the gap for brokers without turns (see turns.gap). Commit calls it before each claim.
func (l *Log) awaitTurn(ctx context.Context) {
	for waits := false; l.claim == nil && ctx.Err() == nil; {
		now := l.now()
		if now >= l.turnBy {
			return
		}
		applied, _ := l.Position()
		i := l.turns.next(now)
		if i < 0 {
			return
		}
		session := l.turns.writers[i].session
		if l.takes(session) { // it hands over its requests again, so it claims nothing
			l.turns.writers = slices.Delete(l.turns.writers, i, i+1)
			continue
		}
		l.turns.pass(i, applied, now)
		pause := min(max(l.turns.answer/4, pollPauseMin), l.turnBy-now)
		if l.hears(session) { // it sends its commit, so no Gets are needed
			if l.rest(ctx, pause); l.Follow() != nil {
				return
			}
			continue
		}
		if !waits {
			waits = true
			l.with((*Protocol).Sync)
			defer l.with((*Protocol).Unsync)
		}
		act := l.next()
		if act.Do != Tail {
			if l.perform(ctx, act) != nil {
				_ = l.pause(ctx, 2) // damaged answers in a row halt the broker, so don't let them come at once
				return
			}
			continue
		}
		l.rest(ctx, pause)
		l.with((*Protocol).Sync)
	}
}
