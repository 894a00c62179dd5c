// Package engine owns the log and the state of a broker. It collects requests into commits, claims
// slots for them, applies the commits of all brokers to the state, and reads records back.
//
// A [Request] is data: records to append, and a [Change] that checks itself against the state and
// yields entries. The engine knows nothing about consumers, queues, push targets or API keys: a package
// that must react to their entries is an [Observer].
//
// A request joins the open batch set and waits there, so that several requests share a commit. Once the
// engine has sealed the set, callers can't withdraw the requests of the set: each request will be in a
// commit, or get an error.
//
// One goroutine, the commit loop, claims slots and changes the state. Other goroutines read the state
// in [Engine.View], which holds the state's read lock. A goroutine that holds the lock of the batcher, the waiters, the
// tail or the traffic takes no other lock. With the budget's lock, it may take the cache's lock, and no other.
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
	"github.com/simple-event-broker/seb/internal/mesh"
	"github.com/simple-event-broker/seb/internal/pack"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

const mib = 1 << 20

// Options configure an [Engine]. Fields have no defaults.
type Options struct {
	Batching          Batching
	AppendTimeout     time.Duration // how long a caller waits for the commit of its request, counted from the arrival of the request
	StaleMax          time.Duration // how old the last sync may be if an answer relies on it
	CheckpointCommits int           // number of commits between two checkpoints
	Thorough          bool          // move records into a segment as soon as that lets deleted records go
	CheckpointLarge   int           // after a checkpoint of at least this many bytes, the next one may be skipped: see checkpointShare
	IdempotencyKeys   int           // how many idempotency keys the log may remember

	Memory      int64 // limit, in bytes, of requests, open batches and the cache together
	StateMemory int64 // limit, in bytes, of the memory that the state takes
	CacheDir    string
	CacheBytes  int64 // limit, in bytes, of the files in CacheDir

	// Session and Address name this broker in the mark of each commit that the engine writes. Address is where other
	// brokers reach this one; it may be empty.
	Session format.SessionID
	Address string

	// DecodeChange reads a change that another broker has encoded: see [Sendable]. It may be nil; then this broker makes no
	// changes for others.
	DecodeChange func(r *pack.Reader) Change

	// NoMaintenance leaves jobs to other brokers: checkpoints, compaction, retention, deletion, and raising the level of the log.
	NoMaintenance bool
	// KeepDeleted is how long dead objects are to stay, if that is longer than the log says.
	KeepDeleted time.Duration
	// HoldLevel keeps brokers from raising the level of the log by themselves: see levels.go.
	HoldLevel bool

	DeleteDelay, Margin time.Duration // written into a bucket that Open sets up; other buckets have their own values

	Logger *slog.Logger
	Boot   func() time.Duration // the time since the machine started, suspended time included
	BootID format.BootID        // names that start of the machine; zero if it has no name
	Wall   func() time.Time     // the wall clock, which dates records without a timestamp
}

// Observer learns of changes of the state. The commit loop holds no lock while it calls an Observer.
type Observer interface {
	// Loaded is called after a checkpoint has replaced the state.
	Loaded(s *state.State)
	// Applying is called before the entries of a commit are applied to the state. at is the log's time
	// at that moment.
	Applying(entries []format.Entry, at state.Moment)
	// Applied is called after the entries of a commit were applied.
	Applied(s *state.State, entries []format.Entry, at state.Moment)
}

// Rider adds entries to commits that the engine makes for requests.
type Rider interface {
	// Ride returns entries to add to a commit that already has the given entries. The draft has applied
	// the given entries.
	Ride(d *state.Draft, entries []format.Entry) []format.Entry
}

// Engine serves the log of one bucket.
type Engine struct {
	opts      Options
	store     objstore.Store                  // for opening the log
	stores    map[format.Cause]objstore.Store // the same store, with a handle for each cause of requests
	logStore  objstore.Store                  // for package commitlog
	cluster   format.Cluster
	clusterID string // cluster.ID as text
	logger    *slog.Logger
	log       *commitlog.Log
	mesh      *mesh.Mesh
	cache     *cache.Cache
	budget    *budget.Budget
	batcher   *batcher
	metrics   *metrics
	traffic   *traffic
	ahead     ahead
	use       map[format.Cause]*storeUse
	spending  spending
	opening   opening
	opened    atomic.Bool   // the log is recovered
	uploads   chan struct{} // a token for each upload under way

	live  state.Live // only the commit loop changes it
	loads uint64     // how many checkpoints were loaded; guarded by live's lock

	waiters waiters
	tail    tail
	rare    rareSyncs

	introductions introductions

	observers []Observer // called in this order; the waiters come last
	rider     Rider

	life       context.Context //nolint:containedctx // the life of the engine: it ends when the engine ends, even while requests are under way
	jobs       context.Context //nolint:containedctx // the life of jobs of compaction: it ends when the engine takes no further commits
	endJobs    func()
	end        context.CancelFunc
	loopDone   chan struct{}                // closed when the loop has ended
	closing    atomic.Bool                  // the engine takes no further requests
	newcomer   atomic.Bool                  // another broker needs a slot, and has never won one
	stopped    atomic.Pointer[StoppedError] // why the engine stopped by itself
	storeErr   atomic.Pointer[error]        // why the store did not answer the last request; nil if it answered
	failsSince atomic.Int64                 // since when storeErr is set, as in handing.now
	full       seldom                       // bounds the reports that the store is full
	growth     growth
	tasks      sync.WaitGroup

	// Owned by the commit loop.
	building       *building
	hand           handing
	committed      time.Time        // when the last commit of this broker ended
	writer         format.SessionID // wrote the last commit; zero if that is unknown
	question       *question        // the open question to another broker, or nil
	stateTold      tenths           // of StateMemory
	keysTold       tenths           // of IdempotencyKeys
	recovered      bool
	recovery       recovery // used until recovered is true
	joining        joining  // the same
	lastCheckpoint format.Seq
	checkpointing  atomic.Bool
	compacting     atomic.Bool
	cramped        atomic.Bool // a request was refused since the state is full, and no job has made room since
	unreadable     unreadable  // owned by the goroutine that set compacting
	nextJob        time.Time   // earliest time of the next job of compaction; owned by the same goroutine
	pagedLast      bool        // the last job stored a page; owned by the same goroutine
	jobBegan       time.Time   // owned by the same goroutine
	merged         partsAt     // when no merge was due; owned by the same goroutine
	collector      collector
	retention      retention
	idle           alarm         // of tidy
	tidyFailures   int           // of tidy in a row; owned by the goroutine that does it
	wonLast        atomic.Bool   // this broker has written the last commit that it has applied
	grace          time.Duration // see grace
	raising        atomic.Bool
	levels         levels
	nextCheckpoint time.Time     // earliest time of the next checkpoint; owned by the goroutine that set checkpointing
	sound          atomic.Uint64 // the last search found no hole in the log up to this slot
}

// New returns an engine that is not open yet: see [Engine.Open].
func New(store objstore.Store, opts Options) *Engine {
	e := &Engine{
		opts:     opts,
		logger:   opts.Logger,
		live:     state.Live{State: state.New()},
		uploads:  make(chan struct{}, uploadsMax),
		loopDone: make(chan struct{}),
		rare:     rareSyncs{turn: make(chan struct{}, 1)},
		metrics:  newMetrics(),
		opening:  opening{began: time.Now()},

		retention: retention{alarm: newAlarm(), fronts: map[partitionOf]state.Front{}}, idle: newAlarm(), grace: grace(),
		unreadable: unreadable{batches: map[cache.Range]int{}, segments: map[uint64]int{}},
	}
	e.life, e.end = context.WithCancel(context.Background())
	e.jobs, e.endJobs = context.WithCancel(e.life)
	e.ahead.readers, e.ahead.unpacking = map[aheadPlace]*aheadReader{}, newUnpacking(opts.Memory)
	e.traffic = newTraffic(e.State())
	e.openStores(store)
	e.waiters.init()
	e.tail.init()
	return e
}

// Observe adds observers, which the engine calls in this order. Call it before [Engine.Open].
func (e *Engine) Observe(observers ...Observer) { e.observers = append(e.observers, observers...) }

// Ride sets the rider that adds entries to commits. Call it before [Engine.Open].
func (e *Engine) Ride(r Rider) { e.rider = r }

// Open recovers the log. If the bucket is empty, Open sets it up first. After an error, the engine has
// ended. If ctx ends before Open returns, Open fails; after that, the end of ctx does nothing.
func (e *Engine) Open(ctx context.Context) error {
	e.observers = append(e.observers, e.traffic, &e.waiters)
	if err := e.recover(ctx); err != nil {
		e.end()
		return err
	}
	e.opening.done, e.opening.use = time.Now(), e.StoreUse()
	go e.loop()
	if !e.opts.NoMaintenance {
		e.tasks.Go(func() { e.repeat(&e.retention.alarm, e.retain) })
		e.tasks.Go(func() { e.repeat(&e.idle, e.tidy) })
	}
	return nil
}

// Check returns a [CacheError] if the options name a cache directory that is not safe. It changes nothing.
func (o Options) Check() error {
	if o.CacheDir != "" && o.CacheBytes > 0 {
		if err := cache.CheckDir(o.CacheDir); err != nil {
			return &CacheError{err}
		}
	}
	return nil
}

func (e *Engine) recover(ctx context.Context) error {
	err := e.opts.Check() // before the first store request
	if err != nil {
		return err
	}
	e.cluster, err = commitlog.OpenCluster(ctx, e.store, e.opts.DeleteDelay, e.opts.Margin, e.opts.Wall())
	if err != nil {
		return openError("open the bucket", err, err)
	}
	e.clusterID = e.cluster.ID.String()
	if err := e.probe(ctx); err != nil {
		return err
	}
	// Recovery lists log/ and checkpoint/, so it notices if one of these directories can't be used. Without
	// the following request, only the first large append would notice that data/ can't be used.
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
	e.batcher = &batcher{batching: e.opts.Batching, spending: &e.spending, wake: make(chan struct{}, 1), put: e.put, keyed: map[format.Digest]*Request{}}
	e.log = commitlog.NewLog(e.logStore, e.cluster, (*fold)(e), commitlog.Clock{Now: e.opts.Wall, Boot: e.opts.Boot}, e.opts.AppendTimeout/8)
	e.mesh = mesh.New(e.opts.Session, e.opts.Address, e.opts.agreed(), meshLog{e}, e.logger)
	e.log.Connect(e.mesh)
	begun := time.Now()
	e.recovery = newRecovery(e.logger)
	if err := e.log.Recover(ctx); err != nil {
		damage := e.log.Err()
		return errors.Join(openError("recover the log", err, damage), e.cache.Close())
	}
	applied, tip := e.log.Position()
	e.hand.begin(e.opts.Session, e.budget, e.opts.Memory, applied, tip)
	e.prepareJoin()
	e.recovered = true
	e.opened.Store(true)
	e.growth.begin(e.opts.Wall(), e.live.State.LastingMemory())
	e.watchState()
	e.beginRetention()
	if e.opts.HoldLevel && e.live.State.Level() >= format.LevelSegments {
		e.logger.Warn("the level of the log is raised already, so holding it (--hold-format) has no effect", "level", e.live.State.Level())
	}
	e.tail.proven(begun)
	if last := e.live.State.Time(); last > 0 && e.StoreNow().Sub(time.UnixMicro(last)) < rivalFor {
		e.tail.foreign() // another broker made that commit, and perhaps goes on
	}
	e.logger.Info("recovered", "cluster", e.cluster.ID.String(), "commits", uint64(applied),
		"topics", e.live.State.TopicCount(), "batches", e.live.State.Batches(), "took", time.Since(begun).Round(time.Millisecond))
	return nil
}

// openError returns the error of a step of Open: a *StoreError with a hint if the store is set up wrongly; otherwise a
// *StoppedError if [Hint] has advice about the error damage; otherwise a *StoreError, and a later try may succeed.
func openError(doing string, err, damage error) error {
	if f := objstore.SetupFailureOf(err); f != nil {
		return &StoreError{Doing: doing, Hint: f.Hint, Err: f}
	}
	if Hint(damage) != "" {
		return &StoppedError{Doing: doing, Err: err, Hint: Hint(damage)}
	}
	return &StoreError{Doing: doing, RetryAfter: time.Second, Err: err}
}

// observe counts a store request, and notes whether the store answered it.
func (e *Engine) observe(op objstore.Op, use *storeUse) {
	e.metrics.storeRequest(op)
	use.add(op)
	switch {
	case errors.Is(op.Err, objstore.ErrStopped):
		// The store answers no further request, so every request to the engine would fail.
		e.stop(op.Err)
		e.end()
	case op.Outcome == objstore.OutcomeCanceled:
	case op.Outcome != objstore.OutcomeError:
		e.storeErr.Store(nil)
	default:
		e.logCause(op)
		e.unanswered(time.Now().Add(-op.Duration), op.Err)
	}
}

// unanswered notes that the store has not answered a request that began at that time.
func (e *Engine) unanswered(begun time.Time, err error) {
	if e.storeErr.Swap(&err) == nil {
		e.failsSince.Store(int64(begun.Sub(e.hand.began)))
		e.tail.wakeLoop()
	}
}

// StoreErr returns why the store did not answer the last request; nil if it answered.
func (e *Engine) StoreErr() error {
	if p := e.storeErr.Load(); p != nil {
		return *p
	}
	return nil
}

func (e *Engine) storeFails() bool { return e.storeErr.Load() != nil }

// storeIsLost reports whether the store has not answered for so long that requests which need it are refused, if other brokers
// can go on.
func (e *Engine) storeIsLost() bool {
	return e.storeFails() && e.hand.now()-time.Duration(e.failsSince.Load()) > lostAfter
}

// Usable returns nil if the engine takes requests. Otherwise it returns a *StoppedError or ErrClosed.
func (e *Engine) Usable() error {
	if stopped := e.stopped.Load(); stopped != nil {
		return stopped
	}
	if e.closing.Load() {
		return ErrClosed
	}
	return nil
}

// State returns a viewer, which shows the same state as [Engine.View].
func (e *Engine) State() state.Viewer { return e.live.Viewer() }

// View calls f with the state, which does not change before f returns. f must not block, nor call View.
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

// Mesh returns the connections to other brokers.
func (e *Engine) Mesh() *mesh.Mesh { return e.mesh }

// Life returns the context that ends when the engine ends.
func (e *Engine) Life() context.Context { return e.life }

// Go runs f in a goroutine that Shutdown waits for.
func (e *Engine) Go(f func()) { e.tasks.Go(f) }

// Done returns a channel that is closed when the commit loop has ended: then the engine makes no commits.
func (e *Engine) Done() <-chan struct{} { return e.loopDone }

// End ends the engine at once: requests that wait fail, and so does the commit under way.
func (e *Engine) End() { e.end() }

// Shutdown calls release unless release is nil. Then it refuses further requests, commits the requests
// that wait, writes a checkpoint, and ends the engine. If the engine stops itself meanwhile, Shutdown
// returns why. It must be called only once.
func (e *Engine) Shutdown(release func()) (err error) {
	before := e.stopped.Load()
	if release != nil {
		release()
	}
	e.closing.Store(true)
	e.batcher.close()
	e.tail.wakeLoop()
	<-e.loopDone
	e.endJobs()    // what they would commit comes too late
	e.mesh.Close() // from now on, no other broker asks this one for a sync
	e.hand.memory.giveAll()
	e.tasks.Wait()
	if e.life.Err() == nil && e.stopped.Load() == nil {
		err = e.finalCheckpoint(e.life)
	}
	if stopped := e.stopped.Load(); stopped != nil && stopped != before {
		err = stopped // the engine stopped itself during the shutdown
	}
	e.end()
	e.ahead.close()
	e.batcher.uploads.Wait()
	e.waiters.notifyAll()
	return errors.Join(err, e.cache.Close())
}
