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

// ErrUnknown says that a claim was sent and then given up before the broker knew whether the claim
// won the slot. The claim's commit may be in the log, or get there later. The broker never sends that
// commit again.
var ErrUnknown = errors.New("the outcome of the commit is unknown")

const (
	// headRead is how many bytes of a commit the first Get reads. Most commits are smaller, so this
	// Get also reads their records.
	headRead = 256 << 10
	// recoveryRead replaces headRead while a broker catches up. The broker then needs only the heads of
	// commits.
	recoveryRead  = 16 << 10
	wholeReadsMax = 8
	// aheadBytesMax bounds the memory for commits that are read ahead of the next slot, together. The commit
	// of the next slot may take more.
	aheadBytesMax = 128 << 20

	// A request times out after requestTimeout plus the time that its bytes take at bytesPerSecond.
	requestTimeout  = 15 * time.Second
	bytesPerSecond  = 256 << 10
	damagedReadsMax = 5 // damaged answers in a row before the object itself counts as damaged
	attemptsMax     = 5 // a sync or a recovery ends after this many failed requests in a row
	syncMax         = 10 * time.Second
	backoffMin      = 20 * time.Millisecond
	backoffMax      = 5 * time.Second
	contendedFor    = 5 * time.Second
	listPageKeys    = 1000
)

// Fold keeps the state, and changes it as each commit says. The Log never calls two methods of the Fold at the
// same time.
type Fold interface {
	// Load replaces the state by the snapshot in a checkpoint's body. If the snapshot refers to pages, Load calls read once,
	// which returns the sections of the pages. An error of read is not to change the state.
	Load(c *format.Checkpoint, read func([]format.Page) ([][]byte, error)) error
	// Apply applies the next commit to the state. If the Log read the whole object of the commit
	// together with the head, object has the bytes of the object; else object is nil. If a running call
	// of [Log.Commit] won the slot, c is the pointer that this call got from its function build.
	Apply(c *format.Commit, object []byte) error
}

// Clock is the local time.
type Clock struct {
	Now  func() time.Time
	Boot func() time.Duration // time since boot, including time in which the machine was suspended
}

// Log performs the steps that a [Protocol] asks for, one at a time, with requests to a store. Only one
// goroutine may call its methods, except for Covers, Err, FindHole, Gap, Heard, Lag, Position, StoreNow, StoreTime,
// Stats, Told and Young, which any goroutine may call.
type Log struct {
	store   objstore.Store
	cluster format.Cluster
	fold    Fold
	clock   Clock

	mu   sync.Mutex
	p    Protocol   // guarded by mu
	seen storeClock // estimates the store's time from the dates of answers; guarded by mu

	inbox inbox // guarded by mu, except for heard

	claim      *format.Commit // the commit of the protocol's claim, or nil
	claimParts [][]byte       // the bytes of the claim's object
	unsure     bool           // the outcome of a Create of the claim is unknown
	read       map[format.Seq]readCommit
	damaged    map[string]int // by object key or listed prefix: how many answers in a row were damaged

	peers   Peers
	wonLast bool
	apart   bool             // the last commit is of another broker, which is not connected to this one
	byWire  bool             // the commit that is being applied came from its writer, and not from the store
	rival   format.SessionID // the last other broker that won a slot from this one, instead of handing over; zero if an older version
	rivalAt time.Duration    // boot time at which its commit was applied; 0 = never

	turns   turns
	began   time.Time
	turnMax time.Duration // how long this broker waits at most for its turn, for each commit
	turnBy  time.Duration // when this broker stops waiting for its turn, as the time since its start

	stats Stats
}

type readCommit struct {
	commit *format.Commit
	object []byte // nil unless the whole object was read
	memory int64  // about how many bytes of memory both take
}

// Stats counts what happened since the start.
type Stats struct {
	LostRaces, UnknownCreates, ForeignCommits, Loads atomic.Uint64
}

// NewLog returns a log that has read nothing yet. The caller calls Recover before the other methods. turnMax is how long
// the broker waits at most until it is its turn to claim a slot.
func NewLog(store objstore.Store, cluster format.Cluster, fold Fold, clock Clock, turnMax time.Duration) *Log {
	return &Log{
		store:   store,
		cluster: cluster,
		fold:    fold,
		clock:   clock,
		turnMax: turnMax,
		began:   time.Now(),
		p:       NewProtocol(time.Duration(cluster.DeleteDelay), time.Duration(cluster.Margin)),
		read:    map[format.Seq]readCommit{},
		damaged: map[string]int{},
		inbox:   inbox{heard: make(chan struct{}, 1)},
		seen:    storeClock{errorMax: max(time.Duration(cluster.Margin)/4, clockErrorMin)},
	}
}

// Peers are the brokers that send each other their commits: see [Log.Told].
type Peers interface {
	// Write sends a commit of this broker, which the log has applied, to the others. payload follows head in the commit's
	// object of size bytes. date is the store's date in the answer that decided the slot. Write does not keep the bytes.
	Write(head []byte, payload [][]byte, size int64, date time.Time)
	// Any reports whether any other broker is connected.
	Any() bool
	// Takes reports whether the session of another broker commits for this one, and this one for that session.
	Takes(session format.SessionID) bool
	// Connected reports whether the session of another broker sends its commits to this one.
	Connected(session format.SessionID) bool
}

// Connect makes the log send its commits to other brokers. Call it before the first Commit.
func (l *Log) Connect(peers Peers) { l.peers = peers }

// takes reports whether a session hands its requests over to this broker, or takes those of this broker.
func (l *Log) takes(session format.SessionID) bool {
	return l.peers != nil && session != (format.SessionID{}) && l.peers.Takes(session)
}

func (l *Log) hears(session format.SessionID) bool {
	return l.peers != nil && l.peers.Connected(session)
}

// Stats returns the counters.
func (l *Log) Stats() *Stats { return &l.stats }

// Position returns the last applied slot and the hash of its head.
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

// Covers reports whether the log lease covers an answer that has just arrived. t is the store's date
// in the answer.
func (l *Log) Covers(t time.Time) bool {
	at := l.stamp(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.p.Covers(at)
}

// Contended reports whether a broker that does not hand over its requests has won a slot within the last contendedFor.
func (l *Log) Contended() bool {
	return l.rivalAt != 0 && l.clock.Boot()-l.rivalAt < contendedFor && !l.takes(l.rival)
}

// StoreNow estimates the store's time now, from the dates of the store's last answers and the local time that
// has passed since each. A single answer with a wrong date hardly changes the result.
func (l *Log) StoreNow() time.Time {
	now, _ := l.StoreTime()
	return now
}

// StoreTime returns StoreNow, and the local time that has passed since the last of these answers.
func (l *Log) StoreTime() (estimate time.Time, age time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	boot, now := l.clock.Boot(), time.Now()
	return l.seen.now(boot, now), l.seen.age(boot, now)
}

// clockErrorMin is by how much a store's dates differ from the clock since boot although both are right: dates in HTTP have whole
// seconds.
const clockErrorMin = 2 * time.Second

// ClockSteady returns for how long the store's dates have agreed with the clock since the machine's boot, up to an
// error of a quarter of the margin. jump is by how much the dates have stepped forward before that; 0 if they did not.
func (l *Log) ClockSteady() (steady, jump time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen.steady(l.clock.Boot()), l.seen.jump
}

func (l *Log) stamp(t time.Time) Stamp { return Stamp{Store: t, Boot: l.clock.Boot()} }

// note records the stamp of an answer for StoreNow, and returns the stamp.
func (l *Log) note(at Stamp) Stamp {
	if !at.Store.IsZero() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen.note(at, time.Now())
	}
	return at
}

// with locks l.mu and calls f with the protocol.
func (l *Log) with(f func(p *Protocol)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.p)
}

func (l *Log) next() (act Action) {
	l.takeTold()
	l.with(func(p *Protocol) { act = p.Next(l.clock.Boot()) })
	return act
}

// Recover loads the newest checkpoint and applies the commits after it. It applies all commits that the
// log has at the time of the call, and perhaps later ones. If a List says that there are more slots than
// its page shows, Recover reads slots beyond that page until it finds no more, then lists again. If the
// store answers 404 for a slot that a List showed, Recover asks a few more times, and then fails.
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

// recoverAgain pauses before the next Get of a slot that a List shows but Gets did not find. It
// returns an error after attemptsMax such Gets; times counts them.
func (l *Log) recoverAgain(ctx context.Context, s format.Seq, times int) error {
	if times >= attemptsMax {
		return fmt.Errorf("get %s, which a List showed: %w", format.LogKey(s), objstore.ErrNotFound)
	}
	return l.pause(ctx, times)
}

// Sync applies all commits that the log has at the time of the call, and perhaps later ones. It
// takes at most syncMax. That limit does not apply while Sync loads a checkpoint: an interrupted load
// starts again from the beginning, so a load slower than syncMax would never end.
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

// Relist renews the log lease by a List, even if the lease has not ended, and then calls Sync.
func (l *Log) Relist(ctx context.Context) error {
	l.with((*Protocol).Relist)
	return l.Sync(ctx)
}

// step performs an action. After a failure it pauses and returns nil: the caller then asks for the next
// action. attempts counts the failures in a row. When it reaches attemptsMax, step returns the error. It
// returns an error at once if further attempts would fail too, because of how the store is set up.
func (l *Log) step(ctx context.Context, act Action, attempts *int) error {
	err := l.perform(ctx, act)
	switch {
	case err == nil:
		*attempts = 0
		return nil
	case l.halted() || ctx.Err() != nil || objstore.SetupFailureOf(err) != nil:
		return err
	}
	*attempts++
	if *attempts >= attemptsMax {
		return err
	}
	return l.pause(ctx, *attempts)
}

func (l *Log) halted() bool { return l.Err() != nil }

// pause waits before the next attempt; attempts is the number of failed attempts.
func (l *Log) pause(ctx context.Context, attempts int) error {
	d := backoffMax
	if attempts < 9 {
		d = min(d, backoffMin<<attempts)
	}
	wait.For(ctx, d/2+rand.N(d/2))
	return ctx.Err()
}

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

// Lag returns how many slots exist but are not applied yet, as far as this broker knows.
func (l *Log) Lag() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	applied, _ := l.p.Position()
	return uint64(l.p.Known() - applied)
}
