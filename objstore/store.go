// Package objstore is the seam between Seb and wherever its objects live: four
// verbs on immutable objects, and the store's own clock on every answer.
//
// It is not a general object-store client: nothing can be overwritten, listed
// by delimiter, or uploaded in parts, because the log never needs it and every
// provider must keep the promises made here.
//
// Two errors are definite: [ErrExists] and [ErrNotFound]. Every other error of
// Create leaves the outcome unknown: the object may be there, may appear later,
// or may never appear.
package objstore

import (
	"context"
	"errors"
	"io/fs"
	"time"
)

var (
	// ErrExists is Create's definite answer that the key is taken: by another
	// writer, or by an earlier attempt of our own whose reply was lost.
	ErrExists = errors.New("object exists")

	// ErrNotFound is Get's definite answer that the key held no object when the
	// store executed the request.
	ErrNotFound = errors.New("object not found")

	// ErrNotRegular is returned for a key under which a directory store holds
	// what no object can be: a directory, a symbolic link, a FIFO or the like; or
	// where a directory on the way to the key, or to the keys that a List asks
	// for, is something else. The message names the path, and what it is.
	ErrNotRegular = errors.New("it is not a regular file")

	// ErrStopped is returned by a store that refuses all further requests
	// because it can no longer keep its promises, such as a directory whose
	// fsync failed.
	ErrStopped = errors.New("store stopped")
)

// Store holds immutable objects under keys such as "log/00000000000000000001".
//
// Every answer carries the store's own time, also beside ErrExists and
// ErrNotFound: the moment the store executed the request, as far as it tells.
// For List it must not be later than the moment the List was evaluated, for
// Create and Get not earlier than their execution; the lease's margin covers a
// store whose clock is only near that. The zero time means that the answer
// carried no date. Beside any other error the time means nothing.
//
// Implementations are safe for concurrent use, honour ctx, and never retry a
// Create by themselves.
type Store interface {
	// Create writes the concatenation of parts under key unless key exists.
	// nil means that the object is durable and that this call created it. It
	// may be called again with the same parts while the outcome is unknown.
	// parts are only read, and not after Create returns.
	Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error)

	// Get reads bytes [off, off+n) of an object; n < 0 reads to the end, and a
	// range that reaches beyond the end yields the bytes that there are. An
	// off at or beyond the end yields none, with Size telling why.
	Get(ctx context.Context, key string, off, n int64) (Object, error)

	// List returns up to limit keys that begin with prefix and sort strictly
	// after the key after ("" for all), in ascending byte order. limit <= 0 means the
	// store's own page size (1,000). Every object whose Create was answered
	// before the List was sent is in the list.
	List(ctx context.Context, prefix, after string, limit int) (Page, error)

	// Delete removes key. Deleting a key that does not exist is a success.
	Delete(ctx context.Context, key string) (time.Time, error)
}

// Finder is a [Store] that finds single objects at less cost than it lists
// them. A directory is one: to list a part of its names it reads all of them.
type Finder interface {
	Store

	// FirstMissing returns the index of the first key without an object, or
	// len(keys). It asks for each object after it was called.
	FirstMissing(ctx context.Context, keys []string) (int, error)
}

// Walker is a [Store] that can hold other things than objects: a directory.
type Walker interface {
	Store

	// Walk calls visit with the path of everything in the store, in the form of a
	// key, and its mode: a regular file, a directory or anything else. The
	// order is unspecified. It leaves out names that no key can have.
	Walk(ctx context.Context, visit func(path string, mode fs.FileMode)) error

	// Path returns the path of a key's object on this machine.
	Path(key string) string
}

// Object is Get's answer.
type Object struct {
	// Body holds the bytes of the range; the caller owns them.
	Body []byte
	// Size is the size of the whole object in bytes.
	Size int64
	// Time is the store's time; set beside ErrNotFound too.
	Time time.Time
}

// Page is List's answer.
type Page struct {
	// Keys are full keys, ascending.
	Keys []string
	// More: further keys follow the last one.
	More bool
	// Time is the store's time, not later than the List's evaluation.
	Time time.Time
}
