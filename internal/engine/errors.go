package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// The errors of an engine; the root package translates them for callers. An engine also returns errors of
// contexts and of package budget, and errors that a Change or a Caller returned.
var (
	ErrClosed        = errors.New("the engine is closed or closing")
	ErrWithdrawn     = errors.New("the request was withdrawn")
	ErrKeyReused     = errors.New("the idempotency key was used for another request")
	ErrWaitedTooLong = errors.New("a request with an idempotency key waited too long for a commit")
)

// UnknownError wraps the error of a request that may be in the log, or may still get there.
type UnknownError struct{ Err error }

// Error implements error.
func (e *UnknownError) Error() string { return "may be committed: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *UnknownError) Unwrap() error { return e.Err }

// withoutUnknown returns the error for a request that a commit left out. err is the error of that commit.
// If err is an UnknownError, the commit may be in the log, but even then the request is not. So
// withoutUnknown unwraps err.
func withoutUnknown(err error) error {
	if unknown, ok := errors.AsType[*UnknownError](err); ok {
		return unknown.Err
	}
	return err
}

// StoppedError says that the engine stopped itself, or did not open, because of an error for which [Hint] has
// advice, such as a damaged log or a store that has stopped (objstore.ErrStopped). An outage of the store
// stops no engine.
type StoppedError struct {
	Doing string // the step of Open that failed; "" after Open
	Hint  string // what an operator can do
	Err   error
}

// Error implements error.
func (e *StoppedError) Error() string { return fmt.Sprintf("stopped: %v", e.Err) }

// Unwrap returns the cause.
func (e *StoppedError) Unwrap() error { return e.Err }

// StoreError says that the store did not answer in time, or failed.
type StoreError struct {
	Doing      string // what failed
	Hint       string // what an operator can do
	RetryAfter time.Duration
	Err        error
}

// Error implements error.
func (e *StoreError) Error() string {
	if e.Err == nil {
		return e.Doing
	}
	return fmt.Sprintf("%s: %v", e.Doing, e.Err)
}

// Unwrap returns the cause.
func (e *StoreError) Unwrap() error { return e.Err }

// storeError returns the error of requests to the engine that a failure of the store has ended.
func storeError(doing string, err error) *StoreError {
	if errors.Is(err, objstore.ErrFull) {
		return &StoreError{Doing: "the store is full, so nothing was committed", Hint: "make room in the store, then try again", RetryAfter: time.Second, Err: err}
	}
	return &StoreError{Doing: doing, RetryAfter: time.Second, Err: err}
}

// LateError says that [Options].AppendTimeout passed before a request was done.
type LateError struct {
	Within         time.Duration
	Keyed, Changes bool  // whether the request has an idempotency key; whether it has a change
	Err            error // of the last store request; may be nil
}

// Error implements error.
func (e *LateError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("the store did not confirm the write within %v", e.Within)
	}
	return fmt.Sprintf("the store did not confirm the write within %v: %v", e.Within, e.Err)
}

// Unwrap returns the cause.
func (e *LateError) Unwrap() error { return e.Err }

// UnusableError says that the store lacks something that a log relies on, such as conditional creates.
type UnusableError struct {
	Detail string
	Err    error
}

// Error implements error.
func (e *UnusableError) Error() string { return e.Detail }

// Unwrap returns the cause.
func (e *UnusableError) Unwrap() error { return e.Err }

// CacheError says that the cache can't be opened, for example because other users may write to its
// directory. A restart does not help.
type CacheError struct{ Err error }

// Error implements error.
func (e *CacheError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *CacheError) Unwrap() error { return e.Err }

// StateFullError says that the state has no room for what a request adds.
type StateFullError struct {
	Use               state.Use
	Used, Limit, Most int64 // in bytes: the size of the state; the size up to which this Use may let the state grow; Options.StateMemory
	Need              int64 // most bytes that the request, or the shared batches of its set, would add; 0: full for all
}

// Error implements error.
func (e *StateFullError) Error() string {
	s := fmt.Sprintf("the state takes %d of the %d bytes of --state-memory", e.Used, e.Most)
	if e.Need > 0 {
		s += fmt.Sprintf(", and this commit may need %d more", e.Need)
	}
	return s + fmt.Sprintf("; %s may fill it only up to %d bytes", e.Use, e.Limit)
}

// KeysFullError says that the log remembers as many idempotency keys as it may.
type KeysFullError struct{ Limit int }

// Error implements error.
func (e *KeysFullError) Error() string {
	return fmt.Sprintf("the log remembers %d idempotency keys, which is the maximum", e.Limit)
}

// TopicDeletedError says that the topic of an append or a read was deleted.
type TopicDeletedError struct {
	Part  string // the name of the append in the request (see [Append]), or ""; always "" for a read
	Topic string

	append int // index of the append
}

// Error implements error.
func (e *TopicDeletedError) Error() string { return fmt.Sprintf("topic %q was deleted", e.Topic) }

// EndConflictError says that a partition does not end at the offset that an append requires.
type EndConflictError struct {
	Part      string
	Topic     string
	Partition format.Partition
	End, Want format.Offset

	append int // index of the append
}

// Error implements error.
func (e *EndConflictError) Error() string {
	return fmt.Sprintf("partition %d of topic %q ends at offset %d, not at %d", e.Partition, e.Topic, e.End, e.Want)
}

// PartitionNotFoundError says that a topic does not have a partition.
type PartitionNotFoundError struct {
	Topic     string
	Partition format.Partition
	Count     int // of partitions
}

// Error implements error.
func (e *PartitionNotFoundError) Error() string {
	return fmt.Sprintf("topic %q has no partition %d; it has %d partitions", e.Topic, e.Partition, e.Count)
}

// OutOfRangeError says that a partition does not hold an offset.
type OutOfRangeError struct {
	Topic              string
	Partition          format.Partition
	Offset, Start, End format.Offset
}

// Error implements error.
func (e *OutOfRangeError) Error() string {
	return fmt.Sprintf("partition %d of topic %q starts at offset %d and ends at %d, so it does not hold offset %d", e.Partition, e.Topic, e.Start, e.End, e.Offset)
}

// DataLostError says that an object which the log refers to is missing or damaged.
type DataLostError struct {
	Key         string        // of the object
	First, Last format.Offset // first and last offset of the lost batch
	Err         error
}

// Error implements error.
func (e *DataLostError) Error() string { return fmt.Sprintf("%s: %v", e.Key, e.Err) }

// Unwrap returns the cause.
func (e *DataLostError) Unwrap() error { return e.Err }

// Hint tells what an operator can do if err is about a damaged log or an unusable store; otherwise "".
func Hint(err error) string {
	switch {
	case errors.Is(err, format.ErrVersion):
		return "the bucket was written by a newer seb: run that version or a later one"
	case errors.Is(err, commitlog.ErrNoCluster):
		return "use an empty directory or prefix, or restore seb.json if this is a log; seb has changed nothing"
	case errors.Is(err, format.ErrForeign):
		return "the bucket holds an object that does not belong to this log: find out who wrote it, then remove it or put back the log's own object; seb has changed nothing"
	case errors.Is(err, objstore.ErrNotRegular):
		return "where a file or directory of the log belongs, there is something else, such as a link: move it away, put back what was there, then start again (to keep a directory on another disk, mount it in that place, such as by mount --bind); seb fsck names all damage"
	case errors.Is(err, commitlog.ErrLoss), errors.Is(err, commitlog.ErrPageLost), errors.Is(err, commitlog.ErrRolledBack):
		return "objects of the log are gone: restore them (a bucket with versioning still has them) or restore the whole bucket to one point in time, then start again"
	case errors.Is(err, commitlog.ErrFork):
		return "the bucket was changed by something that does not keep the order of the log, such as a partial restore: restore it to one point in time, then start again"
	case errors.Is(err, commitlog.ErrClock):
		return "the store's clock went back by more than the bucket's margin (see seb.json): set the clock right, then start again"
	case errors.Is(err, objstore.ErrStopped):
		return "the store takes no further requests: a directory store stops after an fsync that failed, or once the directory was moved or replaced; mend the cause, then start again"
	case errors.Is(err, format.ErrCorrupt):
		return "an object of the log is damaged: restore it from a copy or an earlier version, then start again"
	case errors.Is(err, state.ErrNonsense):
		return "the checksums of the commit are right, so the seb that wrote the commit, or this one, has a defect: keep the object, and report the defect"
	}
	return ""
}
