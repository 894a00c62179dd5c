package commitlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/wait"
	"github.com/simple-event-broker/seb/objstore"
)

// ErrUnknown is wrapped when a claim that was sent ended undecided. It may be in
// the log or may still get there; it is never sent again.
var ErrUnknown = errors.New("the outcome of the commit is unknown")

const (
	// headRead is how many bytes of a commit are read at first: most commits are
	// smaller, so that their records come with their heads.
	headRead = 256 << 10
	// recoveryRead is the same while a broker catches up: only heads matter,
	// and what is read ahead is under no budget.
	recoveryRead  = 16 << 10
	wholeReadsMax = 8

	requestTimeout   = 15 * time.Second
	bytesPerSecond   = 256 << 10 // the slowest transfer for which a request waits
	damagedReadsMax  = 5         // reads of a damaged object before it is believed
	attemptsMax      = 5         // failed requests of a sync or a recovery before the store counts as unavailable
	syncMax          = 10 * time.Second
	backoffMin       = 20 * time.Millisecond
	backoffMax       = 5 * time.Second
	contendedFor     = 5 * time.Second
	listPageKeys     = 1000
	getLatencyWeight = 8  // of the past in the moving average
	winsMax          = 32 // between two pauses of a broker that sees no other
)

// Fold is the owner of the state that commits change. Calls never overlap.
type Fold interface {
	// Load replaces the state by a checkpoint's body.
	Load(c *format.Checkpoint) error
	// Apply folds in the next commit; object is the whole object if it was
	// read with its head, else nil. The same *Commit that build returned
	// comes back when it has won its slot.
	Apply(c *format.Commit, object []byte) error
}

// Clock is the local time.
type Clock struct {
	Now  func() time.Time
	Boot func() time.Duration // since boot, suspended time included
}

// Log drives a [Protocol] against a store, one step at a time. Its methods are
// for one goroutine, but for Covers, Position, StoreNow and Stats.
type Log struct {
	store   objstore.Store
	cluster format.Cluster
	fold    Fold
	clock   Clock

	mu   sync.Mutex
	p    Protocol   // guarded by mu, as is seen
	seen storeClock // by the dates of the store's answers

	claim      *format.Commit // what the protocol's claim stands for
	claimParts [][]byte       // its object
	read       map[format.Seq]readCommit
	damaged    map[string]int // reads in a row that found an object damaged, by key

	wonLast    bool
	row        uint64        // wins of ours, one right after the other
	wonAt      time.Duration // boot time of the last one
	foreignAt  time.Duration // boot time of the last foreign commit, 0 = none
	getLatency time.Duration // moving average

	stats Stats
}

type readCommit struct {
	commit *format.Commit
	object []byte // nil unless read whole
}

// Stats counts what happened since the start.
type Stats struct {
	LostRaces, UnknownCreates, ForeignCommits, Loads atomic.Uint64
}

// NewLog returns a log that has not recovered yet.
func NewLog(store objstore.Store, cluster format.Cluster, fold Fold, clock Clock) *Log {
	return &Log{
		store:   store,
		cluster: cluster,
		fold:    fold,
		clock:   clock,
		p:       NewProtocol(time.Duration(cluster.DeleteDelay), time.Duration(cluster.Margin)),
		read:    map[format.Seq]readCommit{},
		damaged: map[string]int{},
	}
}

// Stats returns the counters.
func (l *Log) Stats() *Stats { return &l.stats }

// Position returns the applied slot and the hash of its head.
func (l *Log) Position() (format.Seq, format.Hash) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.p.Position()
}

// Err returns why the log halted, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.p.Err()
}

// Covers reports whether the lease covers an answer that was given at store time
// t and has just arrived.
func (l *Log) Covers(t time.Time) bool {
	at := l.stamp(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.p.Covers(at)
}

// Contended reports whether other brokers have won slots lately.
func (l *Log) Contended() bool {
	return l.foreignAt != 0 && l.clock.Boot()-l.foreignAt < contendedFor
}

// StoreNow returns the store's time: that of its last answers, carried on by the local clocks.
// A single answer with a wild date does not move it.
func (l *Log) StoreNow() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen.now(l.clock.Boot(), time.Now())
}

func (l *Log) stamp(t time.Time) Stamp { return Stamp{Store: t, Boot: l.clock.Boot()} }

// note remembers the store's time of an answer.
func (l *Log) note(at Stamp) Stamp {
	if !at.Store.IsZero() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen.note(at, time.Now())
	}
	return at
}

// with runs f on the protocol under its lock.
func (l *Log) with(f func(p *Protocol)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.p)
}

func (l *Log) next() (act Action) {
	l.with(func(p *Protocol) { act = p.Next(l.clock.Boot()) })
	return act
}

// Recover loads the newest checkpoint and applies the commits after it, up to the end
// of the log as it is now. A List that was cut off after a page does not end the
// recovery: it reads on beyond the page, and lists again where it finds no more. The last
// slot that a List shows must be found too: if the store answers 404 for it, Recover
// asks a few times.
func (l *Log) Recover(ctx context.Context) error {
	attempts, unlisted := 0, 0
	for {
		var settled bool
		l.with(func(p *Protocol) { settled = p.Settled() })
		act := l.next()
		if settled && (act.Do == Idle || act.Do == Tail) {
			return nil
		}
		err := l.step(ctx, act, &attempts)
		if err == nil && act.Do == Tail {
			unlisted++
			err = l.recoverAgain(ctx, act.Seq+1, unlisted)
		}
		if err != nil {
			return err
		}
	}
}

// recoverAgain pauses before the next Get of a slot that a List shows, and that several
// Gets did not find.
func (l *Log) recoverAgain(ctx context.Context, s format.Seq, times int) error {
	if times >= attemptsMax {
		return fmt.Errorf("get %s: it is listed, and yet %w", format.LogKey(s), objstore.ErrNotFound)
	}
	return l.pause(ctx, times)
}

// Sync follows the log to its end as it is now or later, within syncMax. Only the load of a
// checkpoint may take longer, because a load that is cut short starts again, and a slow one
// would never end.
func (l *Log) Sync(ctx context.Context) error {
	l.with((*Protocol).Sync)
	within, cancel := context.WithTimeout(ctx, syncMax)
	defer cancel()
	attempts := 0
	for {
		act := l.next()
		if act.Do == Tail {
			return nil
		}
		bound := within
		if act.Do == DoLoad {
			bound = ctx
		}
		if err := l.step(bound, act, &attempts); err != nil {
			return err
		}
	}
}

// Relist renews the lease by a List, whatever its age, and follows the log to its end.
func (l *Log) Relist(ctx context.Context) error {
	l.with((*Protocol).Relist)
	return l.Sync(ctx)
}

// step performs an action. After a failure it pauses, so that the caller can try again, up to
// attemptsMax times in a row, counted in attempts.
func (l *Log) step(ctx context.Context, act Action, attempts *int) error {
	err := l.perform(ctx, act)
	switch {
	case err == nil:
		*attempts = 0
		return nil
	case l.halted() || ctx.Err() != nil:
		return err
	}
	*attempts++
	if *attempts >= attemptsMax {
		return err
	}
	return l.pause(ctx, *attempts)
}

func (l *Log) halted() bool { return l.Err() != nil }

// pause waits before the next attempt after that number of failed ones.
func (l *Log) pause(ctx context.Context, attempts int) error {
	d := backoffMax
	if attempts < 9 {
		d = min(d, backoffMin<<attempts)
	}
	wait.For(ctx, d/2+rand.N(d/2))
	return ctx.Err()
}

// perform does one action.
func (l *Log) perform(ctx context.Context, act Action) error {
	switch act.Do {
	case DoList:
		return l.list(ctx, act.Seq)
	case DoLoad:
		return l.load(ctx, act.Seq)
	case DoGet:
		return l.get(ctx, act.Seq, act.To)
	case DoCreate:
		return l.create(ctx, act.Seq)
	case DoApply:
		return l.apply(act.Seq)
	case Halt:
		return l.Err()
	case Idle, Tail:
	}
	return nil
}

func (l *Log) settled() (ok bool) {
	l.with(func(p *Protocol) { ok = p.Settled() })
	return ok
}

// Lag returns how many slots exist, as far as the log knows, and are not applied yet.
func (l *Log) Lag() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	applied, _ := l.p.Position()
	return uint64(l.p.Known() - applied)
}
