// Package dispatch hands out the records of the queues that a broker owns: to one worker at a
// time, each record for the length of a lease.
//
// A broker becomes the owner of a queue with [Dispatchers.TakeOver]; [Dispatchers.MayTake] tells
// whether it may. Workers get records with [Dispatchers.Receive].
//
// A [Dispatcher] belongs to one queue for as long as this broker owns it. It learns what becomes
// of records from the log alone: from the commits that this broker applies, its own and others'.
//
// Locks: a dispatcher's comes before the state's, and before that of [Dispatchers].
package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// ErrNotOwner refuses a change that only the owner of a queue may make: the queue was deleted, or
// another broker has taken it over.
var ErrNotOwner = errors.New("another broker has taken over the queue, or it was deleted")

// Broker is what dispatchers need of the broker that they run in.
type Broker interface {
	// Commit has a change committed, and returns when it was applied. Its error is a *CommitError.
	Commit(ctx context.Context, r Request) error
	// DeadLetter ends the deliveries of a record, and puts a copy of it into the dead-letter topic
	// of its queue, if that has one. It returns nil also if the record is done, or a dead letter
	// already; else its error is a *CommitError.
	DeadLetter(ctx context.Context, d *Dispatcher, last leases.Delivery, attempts int) error
	// Read reads records of a partition that follow each other, the first one at least. Its error is a
	// *ReadError if there is no use in trying again.
	Read(ctx context.Context, d *Dispatcher, first leases.Place, records int, bytes int64) (r Records, n int, err error)
	// Sync follows the log to its end.
	Sync(ctx context.Context) error
	// SyncToAct is Sync unless the last one is recent enough for a caller that hands out records. It
	// returns an error if the broker takes no more requests.
	SyncToAct(ctx context.Context) error
	// Follow has the broker sync again and again, for a receiver that waits, until leave is called.
	Follow() (leave func())
	// Done is closed when the broker takes no more requests.
	Done() <-chan struct{}
	// StoreNow returns the store's time.
	StoreNow() time.Time
	// Go runs f in a goroutine that the broker waits for before it ends.
	Go(f func())
}

// Records are what [Broker.Read] has read.
type Records interface {
	// Key returns the key of a record; nil if it has none.
	Key(i int) []byte
	// Bytes returns the size of a record.
	Bytes(i int) int64
	// Own moves the records to memory of their own, and returns how much that is in bytes.
	Own() int64
}

// Change is a change of the log.
type Change interface {
	// Apply checks the change against the draft, and returns its entries for the commit, which
	// may be none. It is called again after a lost race.
	Apply(d *state.Draft) ([]format.Entry, error)
}

// Request has a change committed.
type Request struct {
	Change
	// Synced says that the end of the log was read after the change was asked for: its refusal is final.
	Synced bool
	// Urgent changes are committed without linger.
	Urgent bool
	// Settled says that Commit returns when the outcome is certain, whatever time that takes.
	Settled bool
}

// CommitError says why a commit failed, or was not confirmed.
type CommitError struct {
	Err        error
	Unknown    bool          // the commit may be in the log all the same
	RetryAfter time.Duration // how long to wait before trying again; may be 0
}

// Error implements error.
func (e *CommitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *CommitError) Unwrap() error { return e.Err }

// ReadError says why records can't be read, now or later.
type ReadError struct {
	Err     error
	Deleted bool // the records, or their topic, were deleted
	Lost    bool // the object that holds the first one is missing or damaged
}

// Error implements error.
func (e *ReadError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ReadError) Unwrap() error { return e.Err }

// Config is what a dispatcher goes by of a queue's config.
type Config struct {
	Lease       time.Duration
	MaxAttempts int
	Ordered     bool // records of a key one after the other
	Paused      bool
}

func configOf(c format.QueueConfig) Config {
	return Config{Lease: time.Duration(c.LeaseMS) * time.Millisecond, MaxAttempts: int(c.Attempts), Ordered: c.Ordered, Paused: c.Paused}
}
