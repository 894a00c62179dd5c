// Package seb is an event broker whose only durable state is a bucket in an
// object store, as a library. [Open] starts a broker on a store from package objstore or
// objstore/s3store. [Broker.Append] appends records to topics; [Broker.Fetch],
// [Broker.Read] and [Broker.Follow] read them. Any number of brokers, in any number of
// processes, may serve the same bucket at the same time.
//
// A broker promises: an append that returned without an error is in the store, and no later
// recovery loses it; the offsets of a partition have no gaps, and no offset is assigned
// twice; a reader sees only committed records, and every broker sees a prefix of the
// same log. The [Outcome] of a failed append tells whether its records may be in the
// log.
//
// The program that embeds a broker may do everything. A program that serves other callers, for
// example over HTTP, is called an adapter. An adapter checks callers with [Broker.Authenticate]
// against API keys from [Broker.CreateKey].
//
// The command "seb serve" and its HTTP API use only what this package exports. All methods of
// a Broker are safe for concurrent use.
//
// # Topics
//
// A topic has one or more partitions, each an ordered log of records. The first
// append creates the topic, with one partition, unless [Options].NoAutoCreate is set;
// [Broker.CreateTopic] creates a topic with more partitions. A record goes to the partition
// that the append names. If the append names no partition, the record's key chooses it. A
// record without a key goes to the next partition in turn.
//
// # Appending
//
// An append is committed as a whole or not at all, and returns when the store has the
// records. Each commit costs a store request, and takes as long as the store needs for it. So
// appends of all callers share commits; [Options].Batching decides how long appends wait for
// others. A caller that does not want to wait uses [Broker.AppendAsync].
//
// # Reading
//
// [Broker.Read] iterates to the end of a partition. [Broker.Follow] does the same, and then
// waits for more records. [Broker.Fetch] returns a page of records, and the offset where the next page
// begins. These methods store nothing about the reader: the reader itself stores the offset
// after the last record that it has processed, best together with the results of its work. A
// [Consumer] stores a reader's offsets in the log. A [Queue] hands out records as work.
//
// # Errors
//
// Every error is or wraps an [*Error], with a [Code] that programs may compare ([CodeOf]).
// If a write failed, [OutcomeOf] tells whether the write may be in the log. A caller that used an
// [IdempotencyKey] can send the write again whatever the outcome is.
//
// # Ending
//
// [Broker.Close] commits the requests that wait. If the process is killed instead, nothing that
// was acknowledged is lost. A broker that finds that the log is damaged stops by itself: see
// [Broker.Stopped] and [Broker.Status].
package seb

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/push"
	"github.com/simple-event-broker/seb/objstore"
)

// Broker serves the log of one bucket.
type Broker struct {
	opts   Options
	engine *engine.Engine

	session     session
	accesses    accessWatches
	dispatchers *dispatch.Dispatchers
	pushes      *push.Supervisor
	pushMemory  *push.Memory
	pushMetrics *push.Metrics
	permits     *push.Permits
	copies      chan struct{} // holds one element for each record that is being copied to a dead-letter topic
	turn        atomic.Uint32 // counts appends, so that records without a key go to the partitions in turn

	shutdown atomic.Bool   // Shutdown was called
	closed   chan struct{} // closed when Shutdown is done
}

// Open recovers the log in store and serves it. If the bucket is empty, Open first sets up a log in
// it. Open fails if the bucket holds anything but a log, or if a test shows that conditional
// creates of the store don't work. ctx bounds only Open itself; [Broker.Close] ends the broker.
func Open(ctx context.Context, store objstore.Store, opts Options) (_ *Broker, err error) {
	defer reads(&err)
	opts, err = opts.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Broker{
		opts:        opts,
		permits:     push.NewPermits(),
		pushMetrics: push.NewMetrics(),
		copies:      make(chan struct{}, copiesMax),
		closed:      make(chan struct{}),
	}
	if err := b.session.init(); err != nil {
		return nil, err
	}
	b.engine = engine.New(store, opts.engine(b.session.public.ID()))
	b.pushes = push.NewSupervisor(pushBroker{b}, push.SupervisorOptions{Silence: dispatch.OwnerSilence, Shows: dispatch.OwnerShows, Logger: opts.Logger})
	b.dispatchers = dispatch.New(dispatchBroker{b}, dispatch.Options{
		State: b.engine.State(), Memory: opts.Memory / prefetchShare, Session: b.session.public, Address: opts.Address, Logger: opts.Logger, Life: b.engine.Life(),
	})
	b.engine.Observe(&b.accesses, b.dispatchers, pushing{b.pushes})
	b.engine.Ride(b.dispatchers)
	if err := b.engine.Open(ctx); err != nil {
		return nil, err
	}
	if opts.RaiseFormat {
		if err := b.engine.RaiseLevel(ctx); err != nil {
			return nil, errors.Join(err, b.engine.Shutdown(nil))
		}
	}
	b.pushMemory = push.NewMemory(b.engine.Budget(), opts.Memory)
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
	// State tells how full the memory for the state is.
	State StateUse
}

// StateUse tells how much of [Options.StateMemory] the state of the log takes.
type StateUse struct {
	// Used and Limit are in bytes. Appends are refused when a sixteenth of Limit is left.
	Used, Limit int64
	// Left is how long it takes until appends are refused, if the state continues to grow as in the last day;
	// 0 if that is unknown, or if the state does not grow.
	Left time.Duration
}

// Warning says in one sentence that the state takes half of Limit, or more; otherwise it is "".
func (u StateUse) Warning() string { return engine.StateUse(u).Warning() }

// Status tells whether the broker is ready. It sends no store request.
func (b *Broker) Status() Status {
	s := Status{ClusterID: b.engine.ClusterID(), Applied: uint64(b.engine.Applied()), State: StateUse(b.engine.StateUse())}
	if err := b.engine.Usable(); err != nil {
		s.Err = public(err)
	} else if err := b.engine.StoreErr(); err != nil && !errors.Is(err, objstore.ErrFull) { // a full store still serves reads
		s.Err = &Error{Code: CodeStoreUnavailable, Detail: "the last request to the store failed", Err: err, RetryAfter: time.Second}
	}
	return s
}

// StoreUse counts requests to a store, failed ones too: Creates, Gets, Lists and Deletes; and the bytes of the bodies of all
// Creates (SentBytes) and of all Gets (ReceivedBytes). Plus adds another StoreUse.
type StoreUse = format.StoreUse

// Usage counts requests to the store, of this broker and of all, and what the log keeps in the store.
type Usage struct {
	Since   time.Time           // when [Open] began
	Store   StoreUse            // all requests of this broker since then
	Opening StoreUse            // the part of Store that Open has caused
	Causes  map[string]StoreUse // the parts of Store, by what the requests were for
	Serving time.Duration       // since Open returned; its requests are in Store but not in Opening

	CacheHits int64 // batches and parts of tables that this broker had in its cache: each would have been a request, or a part of one

	// Month has the requests of all brokers from MonthSince to MonthNow, by what they were for. That is the present calendar month
	// in UTC, or the part of it since brokers tell each other by the log, at most once a minute, what they have sent. What a broker
	// has sent since it last said so is missing, except for this broker.
	Month                map[string]StoreUse
	MonthSince, MonthNow time.Time

	// StoredObjects is how many objects of the store hold records, or held some, whichever broker wrote them, and
	// StoredBytes is their total size. Other objects don't count: commits without records, checkpoints, seb.json.
	// DeadBytes is the part in objects that will be deleted, and DeadInSegmentsBytes the part in segments that will be rewritten.
	StoredObjects, StoredBytes, DeadBytes, DeadInSegmentsBytes int64
}

// Usage returns what brokers have asked of the store, and what the log keeps there, as far as this broker knows. It sends no request.
func (b *Broker) Usage() Usage { return Usage(b.engine.Usage()) }

// Stopped returns a channel that is closed when the broker takes no further requests: it was closed, the log is
// damaged, or the store has stopped for good. An unreachable store stops no broker. [Broker.Status] returns the reason.
func (b *Broker) Stopped() <-chan struct{} { return b.engine.Done() }

// Limits returns the limits in force.
func (b *Broker) Limits() Limits { return b.opts.Limits }

const shutdownTimeout = 10 * time.Second

// Close calls [Broker.Shutdown], with a timeout of 10 s.
func (b *Broker) Close() (err error) {
	defer reads(&err)
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	return b.Shutdown(ctx)
}

// Shutdown refuses new requests, commits the requests that wait, writes a checkpoint and ends
// the broker. If ctx ends first, Shutdown gives up the remaining requests; the [Outcome] of a request's
// error tells whether the request may be committed. Later calls wait until the first call is done.
func (b *Broker) Shutdown(ctx context.Context) (err error) {
	defer reads(&err)
	if ctx.Err() != nil {
		b.engine.End() // end at once: the AfterFunc below runs in another goroutine, perhaps only after further commits
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
