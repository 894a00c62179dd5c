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
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/push"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// Broker serves the log of one bucket.
type Broker struct {
	opts   Options
	engine *engine.Engine
	start  start

	session     session
	accesses    accessWatches
	dispatchers *dispatch.Dispatchers
	pushes      *push.Supervisor
	pushMemory  *push.Memory
	pushMetrics *push.Metrics
	permits     *push.Permits
	copies      chan struct{} // a token for each record that is being copied to a dead-letter topic
	turn        atomic.Uint32 // partition of the next append without a key

	shutdown atomic.Bool   // Shutdown was called
	closed   chan struct{} // closed when Shutdown is done
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
		opts:        opts,
		start:       start{began: time.Now()},
		engine:      engine.New(store, opts.engine()),
		permits:     push.NewPermits(),
		pushMetrics: push.NewMetrics(),
		copies:      make(chan struct{}, copiesMax),
		closed:      make(chan struct{}),
	}
	b.accesses.init()
	if err := b.session.init(); err != nil {
		return nil, err
	}
	b.pushes = push.NewSupervisor(pushBroker{b}, push.SupervisorOptions{Silence: dispatch.OwnerSilence, Shows: dispatch.OwnerShows, Logger: opts.Logger})
	b.dispatchers = dispatch.New(dispatchBroker{b}, dispatch.Options{
		State: b.engine.State(), Memory: opts.Memory / prefetchShare, Session: b.session.public, Address: opts.Address, Logger: opts.Logger, Life: b.engine.Life(),
	})
	b.engine.Observe(&b.accesses, b.dispatchers, pushing{b.pushes})
	b.engine.Ride(b.dispatchers)
	if err := b.engine.Open(ctx); err != nil {
		return nil, err
	}
	b.pushMemory = push.NewMemory(b.engine.Budget(), opts.Memory)
	b.start.done, b.start.use = time.Now(), b.engine.StoreUse()
	return b, nil
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
	s := Status{ClusterID: b.engine.ClusterID(), Applied: uint64(b.engine.Applied())}
	if err := b.engine.Usable(); err != nil {
		s.Err = public(err)
	} else if err := b.engine.StoreErr(); err != nil {
		s.Err = &Error{Code: CodeStoreUnavailable, Detail: "the last request to the store failed", Err: err, RetryAfter: time.Second}
	}
	return s
}

// StoreUse counts requests to a store, failed ones too, and the bytes of their bodies.
type StoreUse struct {
	Creates, Gets, Lists, Deletes int64
	// SentBytes are those of Creates, ReceivedBytes those of Gets.
	SentBytes, ReceivedBytes int64
}

// Usage counts a broker's requests to its store, and what its log keeps there.
type Usage struct {
	// Since is when [Open] began.
	Since time.Time
	// Store counts all requests since then.
	Store StoreUse
	// Opening is the part of Store that Open took: the cost of a start, however long
	// the broker runs after it.
	Opening StoreUse
	// Serving is the time since Open was done, in which all other requests were sent.
	Serving time.Duration

	// StoredObjects are the objects of the store that hold records, whichever broker
	// wrote them, and StoredBytes their sizes. They include objects without
	// remaining records until these are deleted. They exclude the few other objects: commits
	// without records, checkpoints, the bucket's seb.json.
	StoredObjects, StoredBytes int64
}

// Usage returns the broker's requests to its store, and what its log keeps there
// as far as the broker knows. It sends no request.
func (b *Broker) Usage() Usage {
	var objects, bytes int64
	b.engine.View(func(s *state.State) { objects, bytes = int64(s.Objects()), s.ObjectBytes() })
	return Usage{
		Since: b.start.began, Store: StoreUse(b.engine.StoreUse()), Opening: StoreUse(b.start.use), Serving: time.Since(b.start.done),
		StoredObjects: objects, StoredBytes: bytes,
	}
}

// start is what Open took.
type start struct {
	began, done time.Time
	use         engine.StoreUse // until done
}

// Stopped is closed when the broker takes no more requests: because it was
// closed, or because the log is damaged, which [Broker.Status] tells.
func (b *Broker) Stopped() <-chan struct{} { return b.engine.Done() }

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
	if ctx.Err() != nil {
		b.engine.End() // now, before anything else is committed
	}
	stop := context.AfterFunc(ctx, b.engine.End)
	defer stop()
	if b.shutdown.Swap(true) {
		<-b.closed
		return nil
	}
	defer close(b.closed)
	return b.engine.Shutdown(func() { b.dispatchers.Release(ctx) })
}
