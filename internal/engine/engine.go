// Package engine owns the log and the state of a broker. It collects requests into commits, claims
// slots for them, applies the commits of all brokers to the state, and reads records back.
//
// A [Request] is data: records to append, and a [Change] that checks itself against the state and
// yields entries. The engine knows nothing of consumers, queues, push targets or API keys: what must
// react to their entries is an [Observer].
//
// One goroutine, the commit loop, moves the log and writes the state. Others read the state in a
// [Engine.View], which holds its lock for reading; views don't nest. The batcher's lock, the budget's
// and those of the waiters and of the tail are leaves: their holders take no other lock.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/cache"
	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

const mib = 1 << 20

// Options configure an [Engine]. All are set.
type Options struct {
	Batching          Batching
	AppendTimeout     time.Duration // how long a caller waits for its commit
	StaleMax          time.Duration // how old the last sync may be that an answer relies on
	CheckpointCommits int           // between two checkpoints
	CheckpointLarge   int           // bytes from which on a checkpoint may have to wait
	IdempotencyKeys   int           // that the log may remember

	Memory      int64 // bytes of requests, open batches and the cache
	StateMemory int64 // bytes of the state
	CacheDir    string
	CacheBytes  int64 // of CacheDir

	DeleteDelay, Margin time.Duration // of a bucket that Open sets up

	Logger *slog.Logger
	Boot   func() time.Duration // the clock since boot, suspended time included
	Wall   func() time.Time     // the wall clock, which dates records without a timestamp
}

// Observer learns of changes of the state. The commit loop calls it without holding a lock.
type Observer interface {
	// Loaded is called after a checkpoint took the place of the state.
	Loaded(s *state.State)
	// Applying is called before the state has the entries of a commit, which is applied at that time.
	Applying(entries []format.Entry, at state.Moment)
	// Applied is called after that.
	Applied(s *state.State, entries []format.Entry, at state.Moment)
}

// Rider adds entries to commits that are made anyway.
type Rider interface {
	// Ride returns entries for a commit that has these entries, which the draft has applied.
	Ride(d *state.Draft, entries []format.Entry) []format.Entry
}

// Engine serves the log of one bucket.
type Engine struct {
	opts      Options
	store     objstore.Store
	cluster   format.Cluster
	clusterID string // of cluster
	logger    *slog.Logger
	log       *commitlog.Log
	cache     *cache.Cache
	budget    *budget.Budget
	batcher   *batcher
	metrics   *metrics
	use       storeUse
	uploads   chan struct{} // a token for each upload under way

	live  state.Live // the commit loop changes it
	loads uint64     // checkpoints loaded; guarded by live

	waiters   waiters
	tail      tail
	rare      rareSyncs
	observers []Observer // they learn of commits in this order; the last are the waiters
	rider     Rider

	life     context.Context //nolint:containedctx // it is the engine's life: ends when the engine does, whatever is under way
	end      context.CancelFunc
	loopDone chan struct{}                // closed when the loop has ended
	closing  atomic.Bool                  // no more requests are taken
	stopped  atomic.Pointer[StoppedError] // why the engine stopped by itself
	storeErr atomic.Pointer[error]        // of the last store request, nil if it was answered
	tasks    sync.WaitGroup

	// Owned by the commit loop.
	building       *building
	recovered      bool
	recovery       recovery // until recovered
	lastCheckpoint format.Seq
	checkpointing  atomic.Bool
	nextCheckpoint time.Time     // a checkpoint that is due before waits until then; owned by the checkpoint under way
	sound          atomic.Uint64 // the last search found no hole up to this slot
	contendedUntil time.Time
}

// New returns an engine, to be opened by [Engine.Open].
func New(store objstore.Store, opts Options) *Engine {
	e := &Engine{
		opts:     opts,
		logger:   opts.Logger,
		live:     state.Live{State: state.New()},
		uploads:  make(chan struct{}, uploadsMax),
		loopDone: make(chan struct{}),
		rare:     rareSyncs{turn: make(chan struct{}, 1)},
		metrics:  newMetrics(),
	}
	e.life, e.end = context.WithCancel(context.Background())
	e.store = objstore.Observe(store, e.observe)
	e.waiters.init()
	e.tail.init()
	return e
}

// Observe has observers learn of commits, in this order. Call it before [Engine.Open].
func (e *Engine) Observe(observers ...Observer) { e.observers = append(e.observers, observers...) }

// Ride has a rider add to commits. Call it before [Engine.Open].
func (e *Engine) Ride(r Rider) { e.rider = r }

// Open recovers the log, and sets up an empty bucket. After an error, the engine has ended.
// ctx bounds Open itself.
func (e *Engine) Open(ctx context.Context) error {
	e.observers = append(e.observers, &e.waiters)
	if err := e.recover(ctx); err != nil {
		e.end()
		return err
	}
	go e.loop()
	return nil
}

func (e *Engine) recover(ctx context.Context) error {
	var err error
	if e.opts.CacheDir != "" && e.opts.CacheBytes > 0 {
		if err := cache.CheckDir(e.opts.CacheDir); err != nil { // before the store is touched
			return &CacheError{err}
		}
	}
	e.cluster, err = commitlog.OpenCluster(ctx, e.store, e.opts.DeleteDelay, e.opts.Margin, e.opts.Wall())
	if err != nil {
		return openError("open the bucket", err, err)
	}
	e.clusterID = e.cluster.ID.String()
	if err := e.probe(ctx); err != nil {
		return err
	}
	// The log and its checkpoints are listed; this one would be noticed at the first large append.
	if finder, ok := e.store.(objstore.Finder); ok {
		key := (format.DataRef{Seq: 1}).Key()
		if _, err := finder.FirstMissing(ctx, []string{key}); err != nil {
			return openError("look for data objects", err, err)
		}
	}
	e.cache, err = cache.Open(cache.Options{
		Cluster:   e.cluster.ID,
		MemoryMax: e.opts.Memory,
		Dir:       e.opts.CacheDir,
		DiskBytes: e.opts.CacheBytes,
		Logger:    e.logger,
	})
	if err != nil {
		return &CacheError{err}
	}
	e.budget = budget.New(e.opts.Memory, e.cache.SetMemoryMax)
	e.batcher = &batcher{batching: e.opts.Batching, wake: make(chan struct{}, 1), put: e.put, keyed: map[format.Digest]*Request{}}
	e.log = commitlog.NewLog(e.store, e.cluster, (*fold)(e), commitlog.Clock{Now: e.opts.Wall, Boot: e.opts.Boot})
	begun := time.Now()
	e.recovery = newRecovery(e.logger)
	if err := e.log.Recover(ctx); err != nil {
		damage := e.log.Err() // nil while another try may well go better
		return errors.Join(openError("recover the log", err, damage), e.cache.Close())
	}
	e.recovered = true
	e.tail.proven(begun)
	applied, _ := e.log.Position()
	e.logger.Info("recovered", "cluster", e.cluster.ID.String(), "commits", uint64(applied),
		"topics", e.live.State.TopicCount(), "batches", e.live.State.Batches(), "took", time.Since(begun).Round(time.Millisecond))
	return nil
}

// openError returns the error of a step of Open. damage is the error of the log itself, if there
// is one: another try can't go better then.
func openError(doing string, err, damage error) error {
	if Hint(damage) != "" {
		return &StoppedError{Doing: doing, Err: err, Hint: Hint(damage)}
	}
	return &StoreError{Doing: doing, RetryAfter: time.Second, Err: err}
}

// observe counts every store request, and learns from it whether the store answers.
func (e *Engine) observe(op objstore.Op) {
	e.metrics.storeRequest(op)
	e.use.add(op)
	switch {
	case op.Outcome != objstore.OutcomeError:
		e.storeErr.Store(nil)
	case errors.Is(op.Err, objstore.ErrStopped):
		// Nothing that is under way or waits can succeed any more.
		e.stop(op.Err)
		e.end()
	case !errors.Is(op.Err, context.Canceled): // else the caller ended the request
		if e.storeErr.Swap(&op.Err) == nil {
			e.tail.wakeLoop()
		}
	}
}

// StoreErr returns the error of the last store request; nil if it was answered.
func (e *Engine) StoreErr() error {
	if p := e.storeErr.Load(); p != nil {
		return *p
	}
	return nil
}

// storeFails tells whether the last store request got no useful answer.
func (e *Engine) storeFails() bool { return e.storeErr.Load() != nil }

// Usable returns why the engine takes no requests, nil if it does: a *StoppedError or ErrClosed.
func (e *Engine) Usable() error {
	if stopped := e.stopped.Load(); stopped != nil {
		return stopped
	}
	if e.closing.Load() {
		return ErrClosed
	}
	return nil
}

// State returns what [Engine.View] shows, for others to keep.
func (e *Engine) State() state.Viewer { return e.live.Viewer() }

// View calls f with the state, which stays as it is meanwhile. f must not block, nor call View.
func (e *Engine) View(f func(s *state.State)) { e.live.View(f) }

// ClusterID returns the id of the bucket's log: 32 hex digits.
func (e *Engine) ClusterID() string { return e.clusterID }

// Applied returns the last slot of the log that was applied.
func (e *Engine) Applied() format.Seq {
	applied, _ := e.log.Position()
	return applied
}

// Budget returns the memory budget of requests, open batches and the cache.
func (e *Engine) Budget() *budget.Budget { return e.budget }

// Life returns the context that ends when the engine ends.
func (e *Engine) Life() context.Context { return e.life }

// Go runs f in a goroutine that Shutdown waits for.
func (e *Engine) Go(f func()) { e.tasks.Go(f) }

// Done is closed when the engine takes no more requests.
func (e *Engine) Done() <-chan struct{} { return e.loopDone }

// End gives up what waits and what is under way. Shutdown then returns soon.
func (e *Engine) End() { e.end() }

// Shutdown commits what waits, writes a checkpoint and ends. It returns the error that stopped the
// engine if that was found after it had begun. Before it refuses requests, it calls release, if that is
// not nil. It is called once.
func (e *Engine) Shutdown(release func()) (err error) {
	before := e.stopped.Load()
	if release != nil {
		release()
	}
	e.closing.Store(true)
	e.batcher.close()
	e.tail.wakeLoop()
	<-e.loopDone
	e.tasks.Wait()
	if e.life.Err() == nil && e.stopped.Load() == nil {
		err = e.finalCheckpoint(e.life)
	}
	if stopped := e.stopped.Load(); stopped != nil && stopped != before {
		err = stopped // found on the way out
	}
	e.end()
	e.batcher.uploads.Wait()
	e.waiters.notifyAll()
	return errors.Join(err, e.cache.Close())
}
