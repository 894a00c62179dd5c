package objstore

import (
	"context"
	"errors"
	"time"
)

// Verb names a request to a store.
type Verb string

// The four verbs of [Store].
const (
	VerbCreate Verb = "create"
	VerbGet    Verb = "get"
	VerbList   Verb = "list"
	VerbDelete Verb = "delete"
)

// Outcome is how a request ended, as far as the caller can know.
type Outcome string

const (
	// OutcomeOK is a success.
	OutcomeOK Outcome = "ok"
	// OutcomeExists is [ErrExists].
	OutcomeExists Outcome = "exists"
	// OutcomeNotFound is [ErrNotFound].
	OutcomeNotFound Outcome = "not_found"
	// OutcomeCanceled means that the caller gave the request up, which says nothing about the store; the outcome of a
	// Create is then unknown.
	OutcomeCanceled Outcome = "canceled"
	// OutcomeError is any other error; after a Create it means that the outcome is unknown.
	OutcomeError Outcome = "error"
)

// Op is one request that has ended.
type Op struct {
	Verb     Verb
	Key      string // of a List, the prefix
	Outcome  Outcome
	Err      error         // nil if Outcome is OutcomeOK
	Bytes    int64         // bytes of the body that a Create sent, or a Get received, whatever the outcome
	Duration time.Duration // how long the caller waited
}

// Observe returns a wrapper of store that calls report at the end of every request, in the goroutine of the
// caller and before the request returns. report must be quick and safe for concurrent use.
//
// The wrapper is a [Finder] if store is a [Finder]. It reports a call of FirstMissing as a List of the first
// key.
func Observe(store Store, report func(Op)) Store {
	o := &observed{store: store, report: report}
	if finder, ok := store.(Finder); ok {
		return &observedFinder{observed: o, finder: finder}
	}
	return o
}

type observed struct {
	store  Store
	report func(Op)
}

func (o *observed) done(verb Verb, key string, begun time.Time, bytes int64, err error) {
	op := Op{Verb: verb, Key: key, Outcome: OutcomeError, Err: err, Bytes: bytes, Duration: time.Since(begun)}
	switch {
	case err == nil:
		op.Outcome = OutcomeOK
	case errors.Is(err, ErrExists):
		op.Outcome = OutcomeExists
	case errors.Is(err, ErrNotFound):
		op.Outcome = OutcomeNotFound
	case errors.Is(err, context.Canceled):
		op.Outcome = OutcomeCanceled
	}
	o.report(op)
}

func (o *observed) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	begun, bytes := time.Now(), int64(0)
	for _, part := range parts {
		bytes += int64(len(part))
	}
	at, err := o.store.Create(ctx, key, parts...)
	o.done(VerbCreate, key, begun, bytes, err)
	return at, err
}

func (o *observed) Get(ctx context.Context, key string, off, n int64) (Object, error) {
	begun := time.Now()
	object, err := o.store.Get(ctx, key, off, n)
	o.done(VerbGet, key, begun, int64(len(object.Body)), err)
	return object, err
}

func (o *observed) List(ctx context.Context, prefix, after string, limit int) (Page, error) {
	begun := time.Now()
	page, err := o.store.List(ctx, prefix, after, limit)
	o.done(VerbList, prefix, begun, 0, err)
	return page, err
}

func (o *observed) Delete(ctx context.Context, key string) (time.Time, error) {
	begun := time.Now()
	at, err := o.store.Delete(ctx, key)
	o.done(VerbDelete, key, begun, 0, err)
	return at, err
}

// observedFinder wraps a store that is a [Finder].
type observedFinder struct {
	*observed
	finder Finder
}

func (o *observedFinder) FirstMissing(ctx context.Context, keys []string) (int, error) {
	begun := time.Now()
	index, err := o.finder.FirstMissing(ctx, keys)
	key := ""
	if len(keys) > 0 {
		key = keys[0]
	}
	o.done(VerbList, key, begun, 0, err)
	return index, err
}
