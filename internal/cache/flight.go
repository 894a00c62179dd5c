package cache

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is the error of a flight after Close.
var ErrClosed = errors.New("cache closed")

// flights is the work under way, by key.
type flights struct {
	mu      sync.Mutex
	running map[any]*flight
	closed  bool
	all     sync.WaitGroup
}

// flight is one call of a function that several callers wait for.
type flight struct {
	callers int // still waiting; guarded by flights.mu
	cancel  context.CancelFunc
	done    chan struct{} // closed once err is set
	err     error
}

// Flight calls fn, unless a call for the same key is under way: then it waits
// for the result of that call. key must be comparable, and of a type of the caller's
// own. A caller whose ctx ends gets its error; the other callers still wait. When
// the last one has left, fn's context ends, and the next caller starts a new
// call. fn's context has the values of the ctx that began it, but neither
// its deadline nor its end. fn runs in a goroutine of its own, which Close
// waits for, so it must heed its context.
func (c *Cache) Flight(ctx context.Context, key any, fn func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := c.flights.join(ctx, key, fn)
	if err != nil {
		return err
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		c.flights.leave(key, f)
		return ctx.Err()
	}
}

func (fs *flights) join(ctx context.Context, key any, fn func(ctx context.Context) error) (*flight, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f, ok := fs.running[key]; ok {
		f.callers++
		return f, nil
	}
	if fs.closed {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &flight{callers: 1, cancel: cancel, done: make(chan struct{})}
	fs.running[key] = f
	fs.all.Go(func() {
		defer cancel()
		f.err = fn(ctx)
		fs.land(key, f)
		close(f.done)
	})
	return f, nil
}

func (fs *flights) leave(key any, f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.callers--; f.callers == 0 {
		// Under the lock, so that no caller joins a flight whose context ends.
		fs.forgetLocked(key, f)
		f.cancel()
	}
}

// land removes a flight that has its result.
func (fs *flights) land(key any, f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.forgetLocked(key, f)
}

// forgetLocked lets the next caller start a new call, unless one has started already.
func (fs *flights) forgetLocked(key any, f *flight) {
	if fs.running[key] == f {
		delete(fs.running, key)
	}
}

func (fs *flights) close() {
	fs.mu.Lock()
	fs.closed = true
	fs.mu.Unlock()
	fs.all.Wait()
}
