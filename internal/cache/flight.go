package cache

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is the error of a flight after Close.
var ErrClosed = errors.New("cache closed")

// flights are the running calls of functions that were passed to [Cache.Flight], by key.
type flights struct {
	mu      sync.Mutex
	running map[any]*flight
	closed  bool
	all     sync.WaitGroup
}

// flight is one running call of a function that was passed to [Cache.Flight]. Several callers may wait for
// its result.
type flight struct {
	keys    []any
	callers int // number of callers that still wait; guarded by flights.mu
	cancel  context.CancelFunc
	done    chan struct{} // closed once err is set
	err     error
}

// Flight calls fn and returns its error. If a call for one of the keys is already running, Flight waits
// for that call instead, and returns that call's error. That call may have had other keys too, or not all of
// these. Keys must be comparable, and of a type that only the calling package uses.
//
// If a caller's ctx ends, Flight returns the error of ctx to that caller; other callers still wait.
// When no caller waits, Flight cancels the context of fn, and the next caller starts a new call. The
// context of fn has the values of the first caller's ctx, but not its deadline or cancellation. fn
// runs in a separate goroutine, for which Close waits, so fn must return soon after its context ends.
func (c *Cache) Flight(ctx context.Context, keys []any, fn func(ctx context.Context) error) error {
	return c.Begin(ctx, keys, fn)()
}

// Begin is the part of Flight that does not wait: when it returns, later calls with one of the keys wait for this one. The caller
// must call wait, which does the rest.
func (c *Cache) Begin(ctx context.Context, keys []any, fn func(ctx context.Context) error) (wait func() error) {
	f, err := c.flights.join(ctx, keys, fn)
	return func() error {
		if err != nil {
			return err
		}
		select {
		case <-f.done:
			return f.err
		case <-ctx.Done():
			c.flights.leave(f)
			return ctx.Err()
		}
	}
}

func (fs *flights) join(ctx context.Context, keys []any, fn func(ctx context.Context) error) (*flight, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, key := range keys {
		if f, ok := fs.running[key]; ok {
			f.callers++
			return f, nil
		}
	}
	if fs.closed {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &flight{keys: keys, callers: 1, cancel: cancel, done: make(chan struct{})}
	for _, key := range keys {
		fs.running[key] = f
	}
	fs.all.Go(func() {
		defer cancel()
		f.err = fn(ctx)
		fs.land(f)
		close(f.done)
	})
	return f, nil
}

func (fs *flights) leave(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.callers--; f.callers == 0 {
		// Cancel under the lock, so that no caller joins a cancelled flight.
		fs.forgetLocked(f)
		f.cancel()
	}
}

// land removes a flight whose function has returned, so that no more callers join the flight.
func (fs *flights) land(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.forgetLocked(f)
}

// forgetLocked removes flight f, so that the next caller starts a new call. It leaves keys alone that have
// another flight by now.
func (fs *flights) forgetLocked(f *flight) {
	for _, key := range f.keys {
		if fs.running[key] == f {
			delete(fs.running, key)
		}
	}
}

func (fs *flights) close() {
	fs.mu.Lock()
	fs.closed = true
	fs.mu.Unlock()
	fs.all.Wait()
}
