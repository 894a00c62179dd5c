package commitlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/simple-event-broker/seb/objstore"
)

// ErrUnknown is wrapped when a claim that was sent ended undecided. It may be in
// the log or may still get there; it is never sent again.
var ErrUnknown = errors.New("the outcome of the commit is unknown")

const (
	// headRead is how much of a commit is read at first: most are smaller, so
	// that their records come along with their heads.
	headRead = 256 << 10
	// recoveryRead is the same while a broker catches up: only heads matter.
	recoveryRead = 16 << 10

	requestTimeout   = 15 * time.Second
	bytesPerSecond   = 256 << 10 // what a request may be as slow as
	damagedReadsMax  = 5         // reads of a damaged object before it is believed
	attemptsMax      = 5         // requests for a look or a recovery before the store counts as unavailable
	backoffMin       = 20 * time.Millisecond
	backoffMax       = 5 * time.Second
	contendedFor     = 5 * time.Second
	listPageKeys     = 1000
	getLatencyWeight = 8  // of the past in the moving average
	winsMax          = 32 // between two pauses of a broker that sees no other
)

// Fold is what the log means to its owner. Calls never overlap.
type Fold interface {
	// Load replaces everything by a checkpoint's body.
	Load(c *Checkpoint) error
	// Apply folds in the next commit; object is the whole object if it was
	// read with its head, else nil. The same *Commit that build returned
	// comes back when it has won its slot.
	Apply(c *Commit, object []byte) error
}

// Clock is the local time.
type Clock struct {
	Now  func() time.Time
	Boot func() time.Duration // since boot, suspended time included
}

// Log drives a [Protocol] against a store, one step at a time. Its methods are
// for one goroutine, but for Covers, Position and Stats.
type Log struct {
	store   objstore.Store
	cluster Cluster
	fold    Fold
	clock   Clock

	mu sync.Mutex
	p  Protocol // guarded by mu

	claim      *Commit  // what the protocol's claim stands for
	claimParts [][]byte // its object
	read       map[Seq]readCommit
	damaged    int // reads in a row that found a damaged object

	seen       Stamp // last store time seen
	wonLast    bool
	row        uint64        // wins of ours, one right after the other
	wonAt      time.Duration // boot time of the last one
	foreignAt  time.Duration // boot time of the last foreign commit, 0 = none
	getLatency time.Duration // moving average

	stats Stats
}

type readCommit struct {
	commit *Commit
	object []byte // nil unless read whole
}

// Stats counts what happened since the start.
type Stats struct {
	LostRaces, UnknownCreates, ForeignCommits, Loads atomic.Uint64
}

// NewLog returns a log that has recovered nothing yet.
func NewLog(store objstore.Store, cluster Cluster, fold Fold, clock Clock) *Log {
	return &Log{
		store:   store,
		cluster: cluster,
		fold:    fold,
		clock:   clock,
		p:       NewProtocol(time.Duration(cluster.DeleteDelay), time.Duration(cluster.Margin)),
		read:    map[Seq]readCommit{},
	}
}

// Stats returns the counters.
func (l *Log) Stats() *Stats { return &l.stats }

// Position returns the applied slot and the hash of its head.
func (l *Log) Position() (Seq, Hash) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.p.Position()
}

// Err returns why the log halted, nil while it goes on.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.p.Err()
}

// Covers tells whether the lease covers an answer that was given at store time
// t and has just arrived.
func (l *Log) Covers(t time.Time) bool {
	at := l.stamp(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.p.Covers(at)
}

// Contended tells whether other brokers have won slots lately.
func (l *Log) Contended() bool {
	return l.foreignAt != 0 && l.clock.Boot()-l.foreignAt < contendedFor
}

// StoreNow returns the store's time: the last one seen, carried on by the local clock.
func (l *Log) StoreNow() time.Time {
	return l.seen.Store.Add(l.clock.Boot() - l.seen.Boot)
}

func (l *Log) stamp(t time.Time) Stamp { return Stamp{Store: t, Boot: l.clock.Boot()} }

// note remembers the store's time of an answer.
func (l *Log) note(at Stamp) Stamp {
	if !at.Store.IsZero() {
		l.seen = at
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

// Recover loads the newest checkpoint and applies what follows, up to the end
// of the log as it is now. The last slot that a List shows must be found too: a
// store that shows it and yet answers 404 is asked a few times.
func (l *Log) Recover(ctx context.Context) error {
	tries, unlisted := 0, 0
	for {
		var settled bool
		l.with(func(p *Protocol) { settled = p.Settled() })
		act := l.next()
		if settled && (act.Do == Idle || act.Do == Tail) {
			return nil
		}
		err := l.step(ctx, act, &tries)
		if err == nil && act.Do == Tail {
			unlisted++
			err = l.recoverAgain(ctx, act.Seq+1, unlisted)
		}
		if err != nil {
			return err
		}
	}
}

// recoverAgain pauses before a slot that is listed, but was not found so many
// times, is looked for again.
func (l *Log) recoverAgain(ctx context.Context, s Seq, times int) error {
	if times >= attemptsMax {
		return fmt.Errorf("get %s: it is listed, and yet %w", LogKey(s), objstore.ErrNotFound)
	}
	return l.pause(ctx, times)
}

// Look follows the log to its end as it is now or later.
func (l *Log) Look(ctx context.Context) error {
	l.with((*Protocol).Look)
	tries := 0
	for {
		act := l.next()
		if act.Do == Tail {
			return nil
		}
		if err := l.step(ctx, act, &tries); err != nil {
			return err
		}
	}
}

// Relist renews the lease by a List, whatever its age, and follows the log to its end.
func (l *Log) Relist(ctx context.Context) error {
	l.with((*Protocol).Relist)
	return l.Look(ctx)
}

// step performs an action and retries, with pauses, up to attemptsMax times in
// a row, counted in tries.
func (l *Log) step(ctx context.Context, act Action, tries *int) error {
	err := l.perform(ctx, act)
	switch {
	case err == nil:
		*tries = 0
		return nil
	case l.halted() || ctx.Err() != nil:
		return err
	}
	*tries++
	if *tries >= attemptsMax {
		return err
	}
	return l.pause(ctx, *tries)
}

func (l *Log) halted() bool { return l.Err() != nil }

// pause waits before the try after so many failed ones.
func (l *Log) pause(ctx context.Context, tries int) error {
	d := backoffMax
	if tries < 9 {
		d = min(d, backoffMin<<tries)
	}
	return sleep(ctx, d/2+rand.N(d/2))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Next is what a commit is built on.
type Next struct {
	Seq  Seq
	Prev Hash
	// Now is the store's time in microseconds since 1970.
	Now int64
}

// Commit claims slots until one is won, and returns the commit as applied.
// build is called for every slot claimed anew, with the state up to the one
// before it; it returns a commit without cluster, seq, prev and hash, and the
// parts of its payload, or nil to give up. The bytes go to the store again and
// again until the slot is decided. While ctx lasts, Commit waits for the store
// as long as it takes; every failed attempt is told to report.
//
// ErrUnknown is wrapped when a claim that was sent has ended undecided; any
// other error means that nothing was, or will be, committed.
func (l *Log) Commit(ctx context.Context, build func(Next) (*Commit, [][]byte), report func(error)) (*Commit, error) {
	tries := 0
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
			// The slot was said to be taken and yet is not there: ask again,
			// but not in a tight loop.
			tries++
			if err := l.pause(ctx, tries); err != nil {
				return nil, l.abandon(err)
			}
		case err == nil:
			if act.Do == DoApply {
				tries = 0
			}
		case errors.Is(err, ErrUnknown):
			return nil, err
		case l.halted() || ctx.Err() != nil:
			return nil, l.abandon(err)
		default:
			report(err)
			tries++
			if err := l.pause(ctx, tries); err != nil {
				return nil, l.abandon(err)
			}
		}
	}
}

// abandon ends a claim, because its caller won't wait or the log has halted.
func (l *Log) abandon(err error) error {
	var c Claim
	l.with(func(p *Protocol) { c = p.Abandon() })
	l.claim, l.claimParts = nil, nil
	if c.Sent {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// giveWay pauses after a win while other brokers want slots too, so that the
// next one is anybody's: the others have to Get what this one wrote.
//
// A broker that never wins is never seen, so a long row of wins, each right
// after the other, is interrupted too.
func (l *Log) giveWay(ctx context.Context) error {
	if !l.wonLast || l.getLatency == 0 || !l.Contended() && l.row%winsMax != 0 {
		return nil
	}
	return sleep(ctx, rand.N(2*l.getLatency))
}

func (l *Log) countWin() {
	now := l.clock.Boot()
	if now-l.wonAt > 4*l.getLatency {
		l.row = 0 // there was room for others in between
	}
	l.row++
	l.wonAt = now
}

func (l *Log) propose(build func(Next) (*Commit, [][]byte)) bool {
	applied, tip := l.Position()
	c, payload := build(Next{Seq: applied + 1, Prev: tip, Now: l.StoreNow().UnixMicro()})
	if c == nil {
		return false
	}
	c.Created = l.clock.Now().UnixMicro()
	c.Cluster, c.Seq, c.Prev = l.cluster.ID, applied+1, tip
	head := EncodeCommit(c)
	l.claim, l.claimParts = c, append([][]byte{head}, payload...)
	l.with(func(p *Protocol) { p.Propose(c.Hash) })
	return true
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

// timeout bounds a request that moves so many bytes.
func timeout(ctx context.Context, bytes int64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout+time.Duration(bytes)*time.Second/bytesPerSecond)
}

func (l *Log) list(ctx context.Context, applied Seq) error {
	sent := l.clock.Boot()
	var out Listing
	after := afterKey(CheckpointPrefix, applied)
	for first := true; ; first = false {
		page, err := l.listPage(ctx, CheckpointPrefix, after)
		if err != nil {
			return err
		}
		if first {
			out.At = l.note(Stamp{Store: page.Time, Boot: sent})
		}
		for _, k := range page.Keys {
			if s, ok := ParseSeqKey(CheckpointPrefix, k); ok {
				out.Checkpoint = s
			}
		}
		if !page.More || len(page.Keys) == 0 {
			break
		}
		after = page.Keys[len(page.Keys)-1]
	}
	if out.At.Store.IsZero() {
		return errors.New("the store's answer to a List carries no date")
	}
	out.From = max(applied, out.Checkpoint)
	page, err := l.listPage(ctx, LogPrefix, afterKey(LogPrefix, out.From))
	if err != nil {
		return err
	}
	if page.Time.IsZero() {
		return errors.New("the store's answer to a List carries no date")
	}
	out.LogAt, out.More = l.note(l.stamp(page.Time)), page.More
	for _, k := range page.Keys {
		if s, ok := ParseSeqKey(LogPrefix, k); ok {
			if out.First == 0 {
				out.First = s
			}
			out.Last = s
		}
	}
	l.with(func(p *Protocol) { p.Listed(out) })
	return nil
}

func (l *Log) listPage(ctx context.Context, prefix, after string) (objstore.Page, error) {
	page, err := listOnce(ctx, l.store, prefix, after)
	if err != nil {
		return page, fmt.Errorf("list %s: %w", prefix, err)
	}
	return page, nil
}

func listOnce(ctx context.Context, store objstore.Store, prefix, after string) (objstore.Page, error) {
	ctx, cancel := timeout(ctx, 0)
	defer cancel()
	return store.List(ctx, prefix, after, listPageKeys)
}

func (l *Log) load(ctx context.Context, s Seq) error {
	key := CheckpointKey(s)
	ctx, cancel := timeout(ctx, 1<<30)
	defer cancel()
	o, err := l.store.Get(ctx, key, 0, -1)
	if errors.Is(err, objstore.ErrNotFound) {
		l.with((*Protocol).LoadMissing)
		return fmt.Errorf("load %s: it was listed, but is gone: %w", key, err)
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", key, err)
	}
	c, err := DecodeCheckpoint(o.Body)
	if err == nil && (c.Cluster != l.cluster.ID || c.Seq != s) {
		err = foreign(c.Cluster, c.Seq)
	}
	if err != nil {
		return l.damage(fmt.Errorf("the newest checkpoint, %s, does not verify: %w", key, err))
	}
	if err := l.fold.Load(c); err != nil {
		return l.stop(fmt.Errorf("load %s: %w", key, err))
	}
	l.damaged = 0
	maps.DeleteFunc(l.read, func(r Seq, _ readCommit) bool { return r <= s })
	l.stats.Loads.Add(1)
	var ended Claim
	l.with(func(p *Protocol) { ended = p.Loaded(s, c.Hash) })
	if l.claim != nil {
		l.claim, l.claimParts = nil, nil
		if ended.Sent {
			return fmt.Errorf("%w: slot %d was claimed, then checkpoint %d was loaded", ErrUnknown, ended.Seq, s)
		}
	}
	return nil
}

func foreign(id ClusterID, s Seq) error {
	return fmt.Errorf("%w: it is of cluster %v, slot %d", ErrForeign, id, s)
}

// stop halts the protocol for a reason that it can't see itself.
func (l *Log) stop(err error) error {
	l.with(func(p *Protocol) { p.stop(err) })
	return err
}

// damage counts a read that found bytes that don't belong there. The network may
// have bent them, so it stops the broker only when they come again and again.
func (l *Log) damage(err error) error {
	l.damaged++
	if l.damaged >= damagedReadsMax {
		return l.stop(err)
	}
	return err
}

// get reads the heads of slots from to to, side by side. What was read counts
// although another read failed, so that many at once get ahead on a bad store.
func (l *Log) get(ctx context.Context, from, to Seq) error {
	type result struct {
		Answer
		readCommit
	}
	var (
		known   Seq
		settled bool
		want    []Seq
	)
	l.with(func(p *Protocol) {
		known, settled = p.Known(), p.Settled()
		for s := from; s <= to; s++ {
			if !p.Held(s) {
				want = append(want, s)
			}
		}
	})
	size := int64(headRead)
	if !settled {
		size = recoveryRead
	}
	results := make([]result, len(want))
	var g errgroup.Group
	for i, s := range want {
		g.Go(func() error {
			begin := l.clock.Boot()
			c, object, at, err := l.readHead(ctx, s, size)
			if i == 0 && err == nil {
				l.getLatency += (l.clock.Boot() - begin - l.getLatency) / getLatencyWeight
			}
			if err != nil && !errors.Is(err, objstore.ErrNotFound) {
				return err
			}
			r := &results[i]
			r.Answer = Answer{Seq: s, At: l.stamp(at), Known: known}
			if err == nil {
				r.Found, r.Hash, r.Prev = true, c.Hash, c.Prev
				r.readCommit = readCommit{c, object}
			}
			return nil
		})
	}
	err := g.Wait()
	for _, r := range results {
		if r.Seq == 0 {
			continue // it failed
		}
		if r.Found {
			l.read[r.Seq] = r.readCommit
		}
		l.note(r.At)
		l.with(func(p *Protocol) { p.Answered(r.Answer) })
	}
	switch {
	case err == nil:
		l.damaged = 0
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrForeign), errors.Is(err, ErrVersion):
		return l.damage(err)
	}
	return err
}

// readHead reads the head of a slot, and the object if it is no larger than
// about size. The time is set beside ErrNotFound too.
func (l *Log) readHead(ctx context.Context, s Seq, size int64) (*Commit, []byte, time.Time, error) {
	key := LogKey(s)
	ctx, cancel := timeout(ctx, size)
	defer cancel()
	o, err := l.store.Get(ctx, key, 0, size)
	if err != nil {
		return nil, nil, o.Time, fmt.Errorf("get %s: %w", key, err)
	}
	body := o.Body
	pro, err := DecodePrologue(body)
	if err == nil && pro.End() > int64(len(body)) && pro.End() <= o.Size {
		rest, err := l.store.Get(ctx, key, int64(len(body)), pro.End()-int64(len(body)))
		if err != nil {
			return nil, nil, rest.Time, fmt.Errorf("get %s: %w", key, err)
		}
		body = append(body, rest.Body...)
	}
	if err != nil {
		return nil, nil, o.Time, fmt.Errorf("%s: %w", key, err)
	}
	c, err := DecodeCommit(body)
	switch {
	case err != nil:
	case c.Cluster != l.cluster.ID || c.Seq != s:
		err = foreign(c.Cluster, c.Seq)
	case c.Size() != o.Size:
		err = corrupt("the object has %d bytes instead of %d", o.Size, c.Size())
	}
	if err != nil {
		return nil, nil, o.Time, fmt.Errorf("%s: %w", key, err)
	}
	if int64(len(body)) < o.Size {
		body = nil
	}
	return c, body, o.Time, nil
}

func (l *Log) create(ctx context.Context, s Seq) error {
	key, hash := LogKey(s), l.claim.Hash
	ctx, cancel := timeout(ctx, l.claim.Size())
	defer cancel()
	begin := l.clock.Boot()
	t, err := l.store.Create(ctx, key, l.claimParts...)
	if l.getLatency == 0 { // the best guess before the first Get
		l.getLatency = l.clock.Boot() - begin
	}
	switch {
	case err == nil:
		at := l.note(l.stamp(t))
		l.read[s] = readCommit{commit: l.claim}
		l.with(func(p *Protocol) { p.Created(s, hash, at) })
		return nil
	case errors.Is(err, objstore.ErrExists):
		at := l.note(l.stamp(t))
		l.with(func(p *Protocol) { p.Exists(s, at) })
		return nil
	}
	l.stats.UnknownCreates.Add(1)
	return fmt.Errorf("create %s: %w", key, err)
}

func (l *Log) apply(s Seq) error {
	r := l.read[s]
	delete(l.read, s)
	own := l.claim != nil && r.commit.Hash == l.claim.Hash
	if own {
		r.commit = l.claim // also when it was read back
	}
	if err := l.fold.Apply(r.commit, r.object); err != nil {
		return l.stop(fmt.Errorf("apply %s: %w", LogKey(s), err))
	}
	recovered := l.settled()
	l.with(func(p *Protocol) { l.wonLast = p.Applied() })
	if !own {
		if recovered {
			l.foreignAt = l.clock.Boot()
		}
		l.stats.ForeignCommits.Add(1)
	}
	return nil
}

func (l *Log) settled() (ok bool) {
	l.with(func(p *Protocol) { ok = p.Settled() })
	return ok
}

// Lag returns how many slots are known to exist and not applied yet.
func (l *Log) Lag() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	applied, _ := l.p.Position()
	return uint64(l.p.Known() - applied)
}
