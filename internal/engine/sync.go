package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// While readers wait at the end of the log, the engine syncs: often while other brokers commit, and
// less and less often while no other broker commits.
const (
	followIntervalMin = 250 * time.Millisecond
	// FollowIntervalMax is the longest time between two syncs while readers wait.
	FollowIntervalMax = 10 * time.Second
)

// tail has what the engine knows of the end of the log: when the end was last proven, which
// callers wait for a sync, and how often to sync while readers wait.
type tail struct {
	wake chan struct{} // wakes the commit loop

	mu       sync.Mutex
	syncs    []*syncRequest
	waiting  int           // readers at the end of the log
	commits  int           // callers of AwaitLater
	leftAt   time.Time     // when a reader, or a caller of AwaitLater, last stopped waiting
	rivalAt  time.Time     // when the broker last learned of commits that their brokers don't send it; or zero
	provenAt time.Time     // start of the last sync or own commit that has proven where the log ends
	triedAt  time.Time     // end of the last sync or own commit, even if the sync failed
	interval time.Duration // time between two syncs while readers wait
}

// syncRequest is one caller's request for a sync that begins after the request.
type syncRequest struct {
	relist bool       // renew the log lease by a List, even if the lease is young
	own    bool       // ask no other broker
	done   chan error // buffered, so that the commit loop never waits when it answers
}

func (t *tail) init() {
	t.wake = make(chan struct{}, 1)
	t.interval = followIntervalMin
}

func (t *tail) wakeLoop() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *tail) ask(r *syncRequest) {
	t.mu.Lock()
	t.syncs = append(t.syncs, r)
	t.mu.Unlock()
	t.wakeLoop()
}

// putBack puts requests for a sync back.
func (t *tail) putBack(syncs []*syncRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.syncs = append(syncs, t.syncs...)
}

func (t *tail) takeSyncs() []*syncRequest {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.syncs
	t.syncs = nil
	return taken
}

// wait adds 1 to a count, t.waiting or t.commits, until the returned function is called. After a pause
// of FollowIntervalMax in which nobody waited, the interval starts at its minimum again, so that a new
// reader learns of commits soon. A reader that waits again and again does not reset the interval.
func (t *tail) wait(count *int) (leave func()) {
	t.mu.Lock()
	if t.waiting+t.commits == 0 && time.Since(t.leftAt) > FollowIntervalMax {
		t.interval = followIntervalMin
	}
	*count++
	t.mu.Unlock()
	t.wakeLoop()
	return func() {
		t.mu.Lock()
		*count--
		t.leftAt = time.Now()
		t.mu.Unlock()
	}
}

// rivalFor is how long after the last sign of other brokers that commit, and don't send their commits, the engine syncs for
// callers of AwaitLater.
const rivalFor = 10 * time.Minute

// nextPoll returns how long to wait until the next sync that no caller requested. Such a sync is needed
// while readers wait, so that they get new records; for callers of AwaitLater only if other brokers have
// committed lately. It is also needed while the store fails, so that even a broker without requests
// notices when the store answers again. ok is false if no such sync is needed.
func (t *tail) nextPoll(now time.Time, failing bool) (wait time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rivals := !t.rivalAt.IsZero() && now.Sub(t.rivalAt) < rivalFor
	return max(0, t.interval-now.Sub(t.triedAt)), t.waiting > 0 || failing || t.commits > 0 && rivals
}

// synced notes that a sync has proven where the log ends. begun is when the sync began; foreign tells
// whether the sync found commits of other brokers.
func (t *tail) synced(begun time.Time, foreign bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.triedAt = time.Now()
	if begun.After(t.provenAt) {
		t.provenAt = begun
	}
	t.interval = min(2*t.interval, FollowIntervalMax)
	if foreign {
		t.interval, t.rivalAt = followIntervalMin, t.triedAt
	}
}

// foreign notes a commit of another broker that did not send it. Further such commits are likely, so foreign resets the interval.
func (t *tail) foreign() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.interval, t.rivalAt = followIntervalMin, time.Now()
}

func (t *tail) failed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.triedAt = time.Now()
	t.interval = min(2*t.interval, FollowIntervalMax)
}

// proven notes that a commit of this broker, or a recovery, has proven where the log ends. begun is when
// the commit or the recovery began.
func (t *tail) proven(begun time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.triedAt = time.Now()
	if begun.After(t.provenAt) {
		t.provenAt = begun
	}
}

func (t *tail) age() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.provenAt)
}

// provenAfter tells whether a sync or commit that began after the given time has proven where the log ends.
func (t *tail) provenAfter(then time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.provenAt.After(then)
}

const syncTimeout = 10 * time.Second

// Sync reads the log to its end: it applies at least all commits that were made before the call. It
// returns a *StoreError if the read takes longer than syncTimeout, and a *LateError if the request of ctx
// is late before the read has ended.
func (e *Engine) Sync(ctx context.Context) error { return e.sync(ctx, &syncRequest{}) }

// sync does what Sync does, in the way that r says.
func (e *Engine) sync(ctx context.Context, r *syncRequest) error {
	if err := e.Usable(); err != nil {
		return err
	}
	ctx, cancel := e.UntilLate(ctx)
	defer cancel()
	r.done = make(chan error, 1)
	e.tail.ask(r)
	timer := time.NewTimer(syncTimeout)
	defer timer.Stop()
	select {
	case err := <-r.done:
		return err
	case <-e.loopDone:
		select {
		case err := <-r.done:
			return err
		default:
			return ErrClosed
		}
	case <-timer.C:
		return &StoreError{Doing: "the end of the log could not be read in time", RetryAfter: time.Second, Err: e.StoreErr()}
	case <-ctx.Done():
		return ErrOf(ctx)
	}
}

// Fresh tells whether the last sync is not older than [Options].StaleMax.
func (e *Engine) Fresh() bool { return e.tail.age() <= e.opts.StaleMax }

// SyncIfOld syncs if the last sync is older than [Options].StaleMax. While the store fails, SyncIfOld
// returns nil, so that the caller goes on with a state that may be old.
func (e *Engine) SyncIfOld(ctx context.Context) error { return e.SyncIfOlder(ctx, e.opts.StaleMax) }

// SyncIfOlder is SyncIfOld with ageMax instead of StaleMax.
func (e *Engine) SyncIfOlder(ctx context.Context, ageMax time.Duration) error {
	if e.tail.age() <= ageMax || e.storeFails() {
		return nil
	}
	err := e.Sync(ctx)
	if _, failed := errors.AsType[*StoreError](err); failed {
		return nil
	}
	return err
}

// SyncToAct syncs if the last sync is older than [Options].StaleMax. Unlike SyncIfOld, it returns an error
// if the store fails. It is for callers that must not act on an old state.
func (e *Engine) SyncToAct(ctx context.Context) error {
	if err := e.Usable(); err != nil || e.Fresh() {
		return err
	}
	return e.Sync(ctx)
}

// rareInterval is the least time between two syncs of SyncRarely.
const rareInterval = time.Second

// rareSyncs makes the callers of rarely take turns.
type rareSyncs struct {
	turn chan struct{} // holds a token of the caller whose turn it is
	last time.Time     // when the last request began; owned by the caller whose turn it is
}

// SyncRarely returns after a sync that began after the call. All callers of SyncRarely share one sync per
// second, since they serve unauthenticated clients, which must not cause many store requests.
func (e *Engine) SyncRarely(ctx context.Context) error {
	asked := time.Now()
	return e.rarely(ctx, func() bool { return e.tail.provenAfter(asked) }, e.Sync)
}

// rarely calls request, which sends a request to the store. All callers together send one per second. When it is a caller's turn,
// rarely calls done first, and returns if that reports that the request is needless now.
func (e *Engine) rarely(ctx context.Context, done func() bool, request func(context.Context) error) error {
	ctx, cancel := e.UntilLate(ctx)
	defer cancel()
	select {
	case e.rare.turn <- struct{}{}:
	case <-ctx.Done():
		return ErrOf(ctx)
	}
	defer func() { <-e.rare.turn }()
	if done() {
		return nil
	}
	pause := time.NewTimer(rareInterval - time.Since(e.rare.last))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-e.loopDone:
		return ErrClosed
	case <-ctx.Done():
		return ErrOf(ctx)
	}
	e.rare.last = time.Now()
	return request(ctx)
}

// SyncAge returns the time since the begin of the last sync or own commit that has proven where the log
// ends.
func (e *Engine) SyncAge() time.Duration { return e.tail.age() }

// Follow makes the engine sync repeatedly until the caller calls leave. It is for readers that wait at the
// end of the log.
func (e *Engine) Follow() (leave func()) { return e.tail.wait(&e.tail.waiting) }

// AllPartitions stands for all partitions of a topic.
const AllPartitions format.Partition = -1

// Await calls ready now, and after each commit that adds records to the partition, until ready returns
// true or an error, or d has passed. If partition is AllPartitions, Await calls ready after a commit to any
// partition of the topic. Meanwhile the engine syncs repeatedly.
func (e *Engine) Await(ctx context.Context, topic format.TopicID, partition format.Partition, d time.Duration, ready func() (bool, error)) error {
	key := partitionKey{topic, partition}
	next := e.waiters.channel(key)
	if ok, err := ready(); ok || err != nil || d <= 0 {
		return err
	}
	defer e.Follow()()
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-next:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-e.loopDone:
			return e.Usable()
		}
		next = e.waiters.channel(key)
		if ok, err := ready(); ok || err != nil {
			return err
		}
	}
}

// AwaitLater returns when the engine has applied a commit whose time is after us, in microseconds since 1970. Meanwhile the
// engine syncs repeatedly if other brokers have committed within rivalFor without sending it their commits. Otherwise the wait
// causes no store request.
func (e *Engine) AwaitLater(ctx context.Context, us int64) error {
	later, leave := e.waiters.later(us)
	defer leave()
	if e.Time() > us { // asked only now, since a commit before the call of later wakes nobody
		return nil
	}
	defer e.tail.wait(&e.tail.commits)()
	select {
	case <-later:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.loopDone:
		return e.Usable()
	}
}

// waiters wakes readers that wait for the next records of a partition, or, under the key of AllPartitions,
// of any partition of a topic. It also wakes the callers of AwaitLater.
type waiters struct {
	mu    sync.Mutex
	m     map[partitionKey]chan struct{}
	times map[int64]*timeWaiters // by the time that the commit must be after
}

// timeWaiters are callers that wait for a commit after the same time.
type timeWaiters struct {
	came  chan struct{} // closed by the first such commit
	count int
}

func (w *waiters) init() {
	w.m, w.times = map[partitionKey]chan struct{}{}, map[int64]*timeWaiters{}
}

// later returns a channel that the next commit whose time is after us closes. Call leave when nobody reads the channel.
func (w *waiters) later(us int64) (came <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x, ok := w.times[us]
	if !ok {
		x = &timeWaiters{came: make(chan struct{})}
		w.times[us] = x
	}
	x.count++
	return x.came, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if x.count--; x.count == 0 && w.times[us] == x {
			delete(w.times, us)
		}
	}
}

// reached wakes the callers that wait for a commit after an earlier time than us.
func (w *waiters) reached(us int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for after, x := range w.times {
		if us > after {
			close(x.came)
			delete(w.times, after)
		}
	}
}

// channel returns a channel that the next commit to the partition closes. The caller must call channel
// before it reads the state: if it called channel later, it could miss a commit.
func (w *waiters) channel(k partitionKey) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	ch, ok := w.m[k]
	if !ok {
		ch = make(chan struct{})
		w.m[k] = ch
	}
	return ch
}

func (w *waiters) notify(k partitionKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch, ok := w.m[k]; ok {
		close(ch)
		delete(w.m, k)
	}
}

func (w *waiters) notifyAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, ch := range w.m {
		close(ch)
		delete(w.m, k)
	}
}

// Loaded implements Observer.
func (w *waiters) Loaded(s *state.State) {
	w.notifyAll()
	w.reached(s.Time())
}

// Applying implements Observer.
func (w *waiters) Applying([]format.Entry, state.Moment) {}

// Applied implements Observer.
func (w *waiters) Applied(s *state.State, entries []format.Entry, _ state.Moment) {
	w.reached(s.Time())
	for _, entry := range entries {
		switch x := entry.(type) {
		case *format.Batch:
			w.notify(partitionKey{x.Topic, x.Partition})
			w.notify(partitionKey{x.Topic, AllPartitions})
		case *format.PartitionsAdded:
			w.notify(partitionKey{x.Topic, AllPartitions})
		case *format.TopicDeleted:
			w.notifyAll()
		}
	}
}
