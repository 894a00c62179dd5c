package commitlog

import (
	"context"
	"errors"
	"fmt"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/wait"
	"github.com/simple-event-broker/seb/objstore"
	"math/rand/v2"
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
	if err := l.giveWay(ctx); err != nil {
		return nil, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, l.abandon(err)
		}
		act := l.next()
		if (act.Do == Idle || act.Do == Tail) && l.claim == nil {
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
				l.countWin()
				return claimed, nil
			}
			l.stats.LostRaces.Add(1)
		case err == nil && act.Do == Tail:
			// The store answered the Create that the slot is taken, but answered a Get that the
			// slot is free. Pause before the next attempt.
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

// giveWay pauses after a win if another broker has won a slot recently. The other brokers must Get
// this broker's commit before they can claim the next slot, so without the pause they would
// hardly ever win.
//
// A broker that never wins leaves no trace in the log, so this broker can't know about it. For such
// brokers, giveWay also pauses after every winsMax wins in quick succession.
func (l *Log) giveWay(ctx context.Context) error {
	if !l.wonLast || l.getLatency == 0 || !l.Contended() && l.row%winsMax != 0 {
		return nil
	}
	wait.For(ctx, rand.N(2*l.getLatency))
	return ctx.Err()
}

func (l *Log) countWin() {
	now := l.clock.Boot()
	if now-l.wonAt > 4*l.getLatency {
		l.row = 0 // since the last win, other brokers had enough time to win a slot
	}
	l.row++
	l.wonAt = now
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
