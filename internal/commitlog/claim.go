package commitlog

import (
	"context"
	"errors"
	"fmt"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/wait"
	"math/rand/v2"
)

// Next tells build about the slot that is claimed: its number, the hash of the commit before it,
// and the time.
type Next struct {
	Seq  format.Seq
	Prev format.Hash
	// Now is the store's time in microseconds since 1970.
	Now int64
}

// Commit claims one slot after the other until it wins one. It returns the commit in that slot,
// which it has applied. It calls build for each slot that it claims, when all earlier slots are
// applied. build returns a commit and the parts of its payload; Commit sets the commit's cluster,
// seq, prev, created and hash. If build returns a nil commit, Commit gives up and returns nil.
// Commit sends the bytes of the commit to the store until the slot is decided. It waits for the
// store until ctx ends, and calls report with the error of each failed attempt.
//
// An error that wraps ErrUnknown means that a claim was sent and has ended undecided. Any other
// error means that nothing was, or will be, committed.
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
			// The store said that the slot is taken, but a Get did not find it: ask again, but
			// not in a tight loop.
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
		case l.halted() || ctx.Err() != nil:
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

// abandon ends a claim, because the caller of Commit no longer waits or the log has halted. It
// returns err, together with ErrUnknown if the claim was sent.
func (l *Log) abandon(err error) error {
	var c Claim
	l.with(func(p *Protocol) { c = p.Abandon() })
	l.claim, l.claimParts = nil, nil
	if c.Sent {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// giveWay pauses after a win while other brokers want slots too, so that they have a fair chance
// of winning the next slot: they must first Get the commit that this broker wrote.
//
// A broker that never wins leaves no trace in the log, so giveWay also pauses after every
// winsMax wins in quick succession.
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
		l.row = 0 // the time since the last win was enough for other brokers to win
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
	l.claim, l.claimParts = c, append([][]byte{head}, payload...)
	l.with(func(p *Protocol) { p.Propose(c.Hash) })
	return true
}
