// Package objstore is the interface between Seb and the place that holds its objects: four
// requests for immutable objects, each answered with the time of the store's clock.
//
// It is not a general object-store client. It has no overwrites, no lists by delimiter and no multipart
// uploads. The log does not need them, and each of them would be one more promise that every store must
// keep.
//
// Two errors are definite: [ErrExists] and [ErrNotFound]. After any other error of
// Create the outcome is unknown: the object may exist, may appear later, or may
// never appear.
package objstore

import (
	"context"
	"errors"
	"io/fs"
	"time"
)

var (
	// ErrExists is Create's definite answer that the key exists. The object was created by another writer,
	// or by an earlier Create of the same caller whose reply was lost.
	ErrExists = errors.New("object exists")

	// ErrNotFound is Get's definite answer that there was no object under the key when the
	// store executed the request.
	ErrNotFound = errors.New("object not found")

	// ErrNotRegular is returned by a store in a directory if a key's file is not a regular file, but a
	// directory, a symbolic link, a FIFO or the like. It is also returned if a parent of the file, or of the
	// files that a List asks for, is not a directory. The message names the path, and what kind of file is
	// there.
	ErrNotRegular = errors.New("it is not a regular file")

	// ErrStopped is returned by a store that refuses all further requests
	// because it can no longer keep its promises, for example after a failed
	// fsync of a directory.
	ErrStopped = errors.New("store stopped: it takes no further requests")
)

// Store holds immutable objects under keys such as "log/00000000000000000001".
//
// Every answer, even with ErrExists and ErrNotFound, has the time at which the store executed the request,
// by the store's clock. The time of a List must not be later than the moment at which the store made the
// list. The time of a Create or a Get must not be earlier than the moment at which the store executed the
// request. The margin of the log lease covers small deviations. The zero time means that the answer had no
// date. If a request fails with any error except ErrExists and ErrNotFound, the time has no meaning.
//
// Implementations are safe for concurrent use, return when ctx ends, and never retry a
// Create themselves.
type Store interface {
	// Create writes the concatenation of parts under key unless key exists. If it returns
	// nil, this call has created the object, which is durable. If the outcome is unknown,
	// the caller may call Create again with the same parts. Create does not change parts,
	// and does not read them after it has returned.
	Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error)

	// Get reads bytes [off, off+n) of an object; n < 0 means to the end. If the range goes beyond the end,
	// Get returns the bytes up to the end. If off is at or beyond the end, Get returns no bytes and no
	// error; [Object.Size] tells where the end is.
	Get(ctx context.Context, key string, off, n int64) (Object, error)

	// List returns up to limit keys that begin with prefix and are larger than after, in ascending byte
	// order. If after is "", the list begins with the first key. limit <= 0 means 1,000. An object whose
	// Create was answered before the List was sent is in the list.
	List(ctx context.Context, prefix, after string, limit int) (Page, error)

	// Delete removes key. Deleting a key that does not exist is a success.
	Delete(ctx context.Context, key string) (time.Time, error)
}

// Finder is a [Store] in which looking up a few objects costs less than listing them. A store in a
// directory is a Finder, since it has to read all names of a directory to list a few.
type Finder interface {
	Store

	// FirstMissing returns the index of the first key without an object, or len(keys) if all keys have one.
	// It finds every object whose Create was answered before the call.
	FirstMissing(ctx context.Context, keys []string) (int, error)
}

// Walker is a [Store] that can hold files other than objects: a store in a directory.
type Walker interface {
	Store

	// Walk calls visit with the path and the mode of every file, directory and other entry in the store. The
	// path has the form of a key. The order is unspecified. Walk leaves out names that no key can have. The
	// only exception is a file in the place of a directory that the store itself needs, such as .tmp.
	Walk(ctx context.Context, visit func(path string, mode fs.FileMode)) error

	// Path returns the file path of a key's object on this machine.
	Path(key string) string
}

// Object is Get's answer.
type Object struct {
	// Body holds the bytes of the range; the caller owns them.
	Body []byte
	// Size is the size of the whole object in bytes, not of the range.
	Size int64
	// Time is the time of the store's clock, also with ErrNotFound.
	Time time.Time
}

// Page is List's answer.
type Page struct {
	// Keys are whole keys, which begin with the prefix, in ascending order.
	Keys []string
	// More is true if the store has more keys with the prefix after the last of Keys.
	More bool
	// Time is a time of the store's clock: the store made the list then, or later.
	Time time.Time
}
