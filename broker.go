// Package seb is an event broker whose only durable state is a bucket in an
// object store, as a library. [Open] one on a store from package objstore or
// objstore/s3store, [Broker.Append] records to topics, and read them back with
// [Broker.Fetch], [Broker.Read] and [Broker.Follow]. Any number of brokers, in
// any number of processes, may serve the same bucket at the same time.
//
// What it promises: an append that returned without an error is in the store and
// in every later recovery; offsets are dense per partition and never used again;
// a reader sees only committed records, and every broker sees a prefix of the
// same log. The [Outcome] of a failed append tells whether its records may be in the
// log.
//
// A broker does not restrict the program that embeds it. A program that serves others
// checks them with [Broker.Authenticate] against API keys from [Broker.CreateKey].
//
// It is the engine behind the seb command and its HTTP API, which use nothing
// but what is exported here. All methods of a Broker are safe for concurrent use.
//
// # Topics
//
// A topic has one or more partitions, each an ordered log of records. The first
// append creates it, with one partition, unless [Options].NoAutoCreate is set;
// [Broker.CreateTopic] makes one with more. A record goes to the partition that
// the append names, else to the one that its key chooses, else to the next in turn.
//
// # Appending
//
// An append returns when the store has its records: all of them, or none. Appends
// of all callers share commits, as [Options].Batching says, since each commit
// costs a request and the time that the store takes. A caller that does not want to
// wait uses [Broker.AppendAsync].
//
// # Reading
//
// [Broker.Read] iterates to the end, [Broker.Follow] goes on from there, and
// [Broker.Fetch] returns a page and where the next one begins. The broker
// keeps nothing about such readers: each stores the offset after the last record that it
// has processed, best together with its results.
//
// # Errors
//
// Every error is an [*Error] with a [Code] that programs may compare ([CodeOf]).
// If a write failed, [OutcomeOf] tells whether it is certainly not in the log, or
// may be; a caller that used an [IdempotencyKey] can then send it again.
//
// # Ending
//
// [Broker.Close] commits what waits. A process that is killed instead loses
// nothing that was acknowledged. A broker that finds its log damaged stops by
// itself: see [Broker.Stopped] and [Broker.Status].
package seb

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
	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/push"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// Broker serves the log of one bucket.
type Broker struct {
	opts    Options
	store   objstore.Store
	cluster format.Cluster
	logger  *slog.Logger
	log     *commitlog.Log
	cache   *cache.Cache
	budget  *budget.Budget
	pushed  *pushMemory
	permits *push.Permits
	batcher *batcher
	metrics *metrics
	use     storeUse
	uploads chan struct{} // a token for each upload under way
	copies  chan struct{} // a token for each record that is being copied to a dead-letter topic
	turn    atomic.Uint32 // partition of the next append without a key

	live  state.Live // the commit loop changes it
	loads uint64     // checkpoints loaded; guarded by live

	began   time.Time // Open, which was done at opened and had sent what opening says
	opened  time.Time
	opening StoreUse

	waiters  waiters
	tail     tail
	keySyncs keySyncs
	session  session
	accesses accessWatches
	pushes   *push.Supervisor
	// observers learn of commits in this order: waiters last.
	observers []observer
	rider     rider

	dispatchers *dispatch.Dispatchers
	takeovers   takeovers

	warnOfSharedAddress sync.Once

	life     context.Context //nolint:containedctx // it is the broker's life: ends when the broker does, whatever is under way
	end      context.CancelFunc
	loopDone chan struct{}         // closed when the loop has ended
	closed   chan struct{}         // closed when Shutdown has
	shutdown atomic.Bool           // Shutdown was called
	closing  atomic.Bool           // no more requests are taken
	stopped  atomic.Pointer[Error] // why the broker stopped by itself
	storeErr atomic.Pointer[error] // of the last store request, nil if it was answered
	tasks    sync.WaitGroup        // checkpoints

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

// Open recovers the log in store and serves it. An empty bucket is set up
// first. Open refuses a bucket that holds anything but a log, and a store without
// working conditional creates, which it tests.
// ctx bounds only Open itself.
func Open(ctx context.Context, store objstore.Store, opts Options) (_ *Broker, err error) {
	defer reads(&err)
	opts, err = opts.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Broker{
		opts:     opts,
		logger:   opts.Logger,
		live:     state.Live{State: state.New()},
		uploads:  make(chan struct{}, uploadsMax),
		copies:   make(chan struct{}, copiesMax),
		loopDone: make(chan struct{}),
		closed:   make(chan struct{}),
		metrics:  newMetrics(),
		began:    time.Now(),
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.store = objstore.Observe(store, b.observe)
	b.waiters.init()
	b.tail.init()
	b.keySyncs.init()
	b.accesses.init()
	b.pushes = push.NewSupervisor(pushBroker{b}, push.SupervisorOptions{Silence: ownerSilence, Shows: dispatch.OwnerShows, Logger: b.logger})
	if err := b.session.init(); err != nil {
		b.end()
		return nil, err
	}
	b.dispatchers = dispatch.New(dispatchBroker{b}, dispatch.Options{
		State: &b.live, Memory: opts.Memory / prefetchShare, Session: b.session.public, Address: opts.Address, Logger: b.logger, Life: b.life,
	})
	b.observers, b.rider = []observer{&b.accesses, dispatching{b.dispatchers}, pushing{b.pushes}, &b.waiters}, b.dispatchers
	if err := b.open(ctx); err != nil {
		b.end()
		return nil, err
	}
	b.opened, b.opening = time.Now(), b.use.load()
	go b.loop()
	return b, nil
}

func (b *Broker) open(ctx context.Context) error {
	var err error
	if b.opts.CacheDir != "" && b.opts.CacheBytes > 0 {
		if err := cache.CheckDir(b.opts.CacheDir); err != nil { // before the store is touched
			return unsafeCache(err)
		}
	}
	b.cluster, err = commitlog.OpenCluster(ctx, b.store, b.opts.Cluster.DeleteDelay, b.opts.Cluster.Margin, b.opts.wall())
	if err != nil {
		return openError("open the bucket", err, err)
	}
	if err := b.probe(ctx); err != nil {
		return err
	}
	b.cache, err = cache.Open(cache.Options{
		Cluster:   b.cluster.ID,
		MemoryMax: b.opts.Memory,
		Dir:       b.opts.CacheDir,
		DiskBytes: b.opts.CacheBytes,
		Logger:    b.logger,
	})
	if err != nil {
		return unsafeCache(err)
	}
	b.budget = budget.New(b.opts.Memory, b.cache.SetMemoryMax)
	b.pushed = newPushMemory(b)
	b.permits = push.NewPermits()
	b.batcher = &batcher{batching: b.opts.Batching, wake: make(chan struct{}, 1), put: b.put, keyed: map[format.Digest]*request{}}
	b.log = commitlog.NewLog(b.store, b.cluster, (*fold)(b), commitlog.Clock{Now: b.opts.wall, Boot: b.opts.boot})
	begun := time.Now()
	b.recovery = newRecovery(b.logger)
	if err := b.log.Recover(ctx); err != nil {
		damage := b.log.Err() // nil while another try may well go better
		return errors.Join(openError("recover the log", err, damage), b.cache.Close())
	}
	b.recovered = true
	b.tail.proven(begun)
	applied, _ := b.log.Position()
	b.logger.Info("recovered", "cluster", b.cluster.ID.String(), "commits", uint64(applied),
		"topics", b.live.State.TopicCount(), "batches", b.live.State.Batches(), "took", time.Since(begun).Round(time.Millisecond))
	return nil
}

// unsafeCache refuses a cache directory that others may write to: a restart does not help.
func unsafeCache(err error) error {
	return &Error{Code: CodeInvalidRequest, Detail: "CacheDir", Err: err}
}

// openError returns the error of a step of Open, with a hint. damage is the error of the
// log itself, if there is one.
func openError(doing string, err, damage error) error {
	e := &Error{Code: CodeStoreUnavailable, Detail: doing, Err: err, RetryAfter: time.Second}
	if hint := damageHint(damage); hint != "" {
		e.Code, e.Hint, e.RetryAfter = CodeBrokerStopped, hint, 0
	}
	return e
}

// damageHint tells what to do about a damaged log; "" if err is about something else.
func damageHint(err error) string {
	switch {
	case errors.Is(err, format.ErrVersion):
		return "the bucket was written by a newer seb: run that version or a later one"
	case errors.Is(err, format.ErrForeign):
		return "the bucket holds an object that is not of this log: find out who wrote it, and restore or remove it; seb touches nothing"
	case errors.Is(err, objstore.ErrNotRegular):
		return "this is not a regular file, so it can't be an object: move it away, and put the object back if there was one; seb fsck names all damage; then start again"
	case errors.Is(err, commitlog.ErrLoss), errors.Is(err, commitlog.ErrRolledBack):
		return "objects of the log are gone: restore them (a bucket with versioning still has them) or restore the whole bucket to one point in time, then start again"
	case errors.Is(err, commitlog.ErrFork):
		return "the bucket was changed by something that does not keep the order of the log, such as a partial restore: restore it to one point in time, then start again"
	case errors.Is(err, commitlog.ErrClock):
		return "the store's clock went back by more than the margin: set it right, then start again"
	case errors.Is(err, objstore.ErrStopped):
		return "the store gave up, as a directory does after an fsync that failed, or once it was moved or replaced: set that right, then start again"
	case errors.Is(err, format.ErrCorrupt), errors.Is(err, state.ErrNonsense):
		return "an object of the log is damaged: restore it from a copy or an earlier version, then start again"
	}
	return ""
}

// observe counts every store request, and learns from it whether the store answers.
func (b *Broker) observe(op objstore.Op) {
	b.metrics.storeRequest(op)
	b.use.add(op)
	switch {
	case op.Outcome != objstore.OutcomeError:
		b.storeErr.Store(nil)
	case errors.Is(op.Err, objstore.ErrStopped):
		// Nothing that is under way or waits can succeed any more.
		b.stop(op.Err)
		b.end()
	case !errors.Is(op.Err, context.Canceled): // else the caller ended the request
		if b.storeErr.Swap(&op.Err) == nil {
			b.tail.wakeLoop()
		}
	}
}

func (b *Broker) lastStoreError() error {
	if p := b.storeErr.Load(); p != nil {
		return *p
	}
	return nil
}

// storeFails tells whether the last store request got no useful answer.
func (b *Broker) storeFails() bool { return b.storeErr.Load() != nil }

// usable returns why the broker takes no requests, nil if it does.
func (b *Broker) usable() error {
	if e := b.stopped.Load(); e != nil {
		return e
	}
	if b.closing.Load() {
		return errClosed()
	}
	return nil
}

// Status is a broker's health.
type Status struct {
	// ClusterID names the bucket's log: 32 hex digits.
	ClusterID string
	// Applied is the last slot of the log that this broker has applied.
	Applied uint64
	// Err is why the broker is not ready: it stopped, it is closed, or its last
	// store request failed. nil means ready.
	Err error
}

// Status tells whether the broker is ready. It sends no store request.
func (b *Broker) Status() Status {
	applied, _ := b.log.Position()
	s := Status{ClusterID: b.cluster.ID.String(), Applied: uint64(applied)}
	if err := b.usable(); err != nil {
		s.Err = err
	} else if err := b.lastStoreError(); err != nil {
		s.Err = &Error{Code: CodeStoreUnavailable, Detail: "the last request to the store failed", Err: err, RetryAfter: time.Second}
	}
	return s
}

// Stopped is closed when the broker takes no more requests: because it was
// closed, or because the log is damaged, which [Broker.Status] tells.
func (b *Broker) Stopped() <-chan struct{} { return b.loopDone }

// Limits returns the limits in force.
func (b *Broker) Limits() Limits { return b.opts.Limits }

const shutdownTimeout = 10 * time.Second

// Close is [Broker.Shutdown] within 10 s.
func (b *Broker) Close() (err error) {
	defer reads(&err)
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	return b.Shutdown(ctx)
}

// Shutdown refuses new requests, commits what waits, writes a checkpoint and
// ends. When ctx ends first, it gives up the remaining requests: their callers
// learn whether they may be committed. Later calls wait for the first.
func (b *Broker) Shutdown(ctx context.Context) (err error) {
	defer reads(&err)
	stop := context.AfterFunc(ctx, b.end)
	defer stop()
	if b.shutdown.Swap(true) {
		<-b.closed
		return nil
	}
	defer close(b.closed)
	before := b.stopped.Load()
	b.releaseQueues(ctx)
	b.closing.Store(true)
	b.batcher.close()
	b.tail.wakeLoop()
	<-b.loopDone
	b.tasks.Wait()
	if b.life.Err() == nil && b.stopped.Load() == nil {
		err = b.finalCheckpoint(b.life)
	}
	if e := b.stopped.Load(); e != nil && e != before {
		err = e // found on the way out
	}
	b.end()
	b.batcher.uploads.Wait()
	b.waiters.notifyAll()
	return errors.Join(err, b.cache.Close())
}
