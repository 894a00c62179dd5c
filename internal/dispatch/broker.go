// Package dispatch hands out the records of the queues that a broker owns: each record to one
// worker at a time, for the length of a lease.
//
// A broker becomes the owner of a queue with [Dispatchers.TakeOver]; [Dispatchers.MayTake] tells
// whether the broker may do so. Workers get records with [Dispatchers.Receive].
//
// A [Dispatcher] belongs to one queue for as long as this broker owns that queue. It scans the queue:
// it goes through the offsets of each partition in order, up to the dispatch limit, and enters the
// records that are to be handed out into a table (a [leases.Table]). A record is fresh until it is
// first handed out. A receiver is a caller of Receive. If a receiver finds no record, it waits in line
// until its turn comes, and then tries again. A run is a range of consecutive offsets. A held record is
// one that a worker of a lost owner may still have: the dispatcher does not hand it out again before
// one lease has passed since the takeover.
//
// A dispatcher learns what becomes of records only from the commits that this broker applies: its own,
// and those of other brokers.
//
// Lock order: a dispatcher's lock, then the state's, then the lock of [Dispatchers]. The caller of a
// method whose name ends in Locked must hold the dispatcher's lock.
package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// ErrNotOwner refuses a change that only the owner of a queue may make, because another broker has
// taken over the queue, or the queue was deleted.
var ErrNotOwner = errors.New("another broker has taken over the queue, or the queue was deleted")

// Broker is what dispatchers need from the broker that they run in.
type Broker interface {
	// Commit commits a change, and returns when this broker has applied the commit. The error is a
	// *CommitError.
	Commit(ctx context.Context, r Request) error
	// DeadLetter makes a record a dead letter: it ends the record's deliveries and, if the queue has a
	// dead-letter topic, puts a copy of the record there. It also returns nil if the record is done or
	// already a dead letter. The error is a *CommitError.
	DeadLetter(ctx context.Context, d *Dispatcher, last leases.Delivery, attempts int) error
	// Read reads the records of a partition from the offset of first on. It reads at most the given
	// numbers of records and bytes, but at least one record. n is the number of offsets that the read covers:
	// r has all of their records. The error is a *ReadError if the caller should not try again.
	Read(ctx context.Context, d *Dispatcher, first leases.Place, records int, bytes int64) (r Records, n int, err error)
	// Sync applies all commits up to the end of the log.
	Sync(ctx context.Context) error
	// SyncToAct syncs, unless the last sync is recent enough for handing out records. It returns an error
	// if the sync fails, or if the broker no longer accepts requests.
	SyncToAct(ctx context.Context) error
	// A receiver that waits calls Follow: the broker syncs repeatedly until the receiver calls leave.
	Follow() (leave func())
	// Done returns a channel that is closed when the broker no longer accepts requests.
	Done() <-chan struct{}
	// StoreNow returns the time by the store's clock.
	StoreNow() time.Time
	// Go runs f in a goroutine that the broker waits for before it ends.
	Go(f func())
}

// Records are the records that [Broker.Read] has read, in the order of their offsets.
type Records interface {
	// Find returns the index of the record at an offset. ok is false if there is no record at that offset.
	Find(offset format.Offset) (i int, ok bool)
	// Key returns the key of a record; nil if it has none.
	Key(i int) []byte
	// Bytes returns the size of a record in bytes.
	Bytes(i int) int64
	// Own moves the records to memory that nothing else uses, and returns the size of that memory in
	// bytes.
	Own() int64
}

// Change is a change that a dispatcher asks the broker to commit.
type Change interface {
	// Apply checks the change against the draft of a commit, and returns the change's entries for that
	// commit; there may be none. If another broker wins the slot, this broker calls Apply again.
	Apply(d *state.Draft) ([]format.Entry, error)
}

// Request asks the broker to commit a change.
type Request struct {
	Change
	// Synced says that the state is new enough to refuse the change. Without Synced, the broker syncs
	// and checks the change again before it refuses the change.
	Synced bool
	// Urgent says that the commit does not wait for more requests that could share it.
	Urgent bool
	// Settled says that Commit returns only when the outcome is certain, however long that takes.
	Settled bool
}

// CommitError says why a commit failed, or why its outcome is unknown.
type CommitError struct {
	Err        error
	Unknown    bool          // the commit may be in the log already, or get there later
	RetryAfter time.Duration // how long to wait before trying again; may be 0
}

// Error implements error.
func (e *CommitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *CommitError) Unwrap() error { return e.Err }

// ReadError says why records can't be read. Trying again is of no use.
type ReadError struct {
	Err     error
	Deleted bool // the records, or their topic, were deleted
	Lost    bool // the object that holds the first record is missing or damaged
}

// Error implements error.
func (e *ReadError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ReadError) Unwrap() error { return e.Err }

// Config is the part of a queue's config that a dispatcher uses.
type Config struct {
	Lease       time.Duration
	MaxAttempts int
	Ordered     bool // records with the same key are handed out one at a time
	Paused      bool
}

func configOf(c format.QueueConfig) Config {
	return Config{Lease: time.Duration(c.LeaseMS) * time.Millisecond, MaxAttempts: int(c.Attempts), Ordered: c.Ordered, Paused: c.Paused}
}
