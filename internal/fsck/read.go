package fsck

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/objstore"
)

const (
	workers      = 16        // requests at once
	collectMin   = 64 << 20  // before it reads more bytes at once, the check frees the memory of earlier reads
	memoryMax    = 128 << 20 // bytes of payloads in memory at once; a larger one is read alone; heads: as much again
	listPageKeys = 100_000   // keys per page of a directory store; S3 has its own limit

	// A request times out after requestTimeout plus the time that its bytes take at bytesPerSecond.
	requestTimeout = 30 * time.Second
	bytesPerSecond = 256 << 10
	attemptsMax    = 6 // attempts of a request that fails
	pauseMin       = 200 * time.Millisecond

	rechecksMax  = 3 // failed reads after which an object counts as damaged or absent
	recheckPause = 50 * time.Millisecond
)

// reader reads from the store, and repeats requests that fail. It is safe for concurrent use.
type reader struct {
	store   objstore.Store
	memory  *semaphore.Weighted
	objects atomic.Int64 // number of objects checked
	bytes   atomic.Int64 // number of bytes read
}

func newReader(store objstore.Store) *reader {
	return &reader{store: store, memory: semaphore.NewWeighted(memoryMax)}
}

// hold waits until there is room for the given number of bytes under memoryMax, and reserves them. The caller
// calls release when it no longer needs them.
func (r *reader) hold(ctx context.Context, bytes int64) (release func(), err error) {
	bytes = min(bytes, memoryMax)
	if err := r.memory.Acquire(ctx, bytes); err != nil {
		return nil, err
	}
	return func() { r.memory.Release(bytes) }, nil
}

// get reads n bytes of an object from position off on. An error wraps objstore.ErrNotFound or
// ErrNotRegular, or says that the store failed.
func (r *reader) get(ctx context.Context, key string, off, n int64) (o objstore.Object, err error) {
	err = r.try(ctx, max(n, 0), func(ctx context.Context) error {
		if n > collectMin {
			debug.FreeOSMemory() // on its own, the garbage collector would run only once the heap has doubled
		}
		o, err = r.store.Get(ctx, key, off, n)
		return err
	})
	if err != nil {
		return o, err
	}
	r.bytes.Add(int64(len(o.Body)))
	return o, nil
}

// page sends a List of the keys that begin with prefix, and returns the first page. If after is not "", the
// page begins with the first key above after.
func (r *reader) page(ctx context.Context, prefix, after string) (page objstore.Page, err error) {
	err = r.try(ctx, 0, func(ctx context.Context) error {
		if page, err = r.store.List(ctx, prefix, after, listPageKeys); err != nil {
			return err
		}
		if err := commitlog.CheckPage(page, prefix, after); err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		return nil
	})
	return page, err
}

// try sends a request until the store answers it, at most attemptsMax times. "Not found" is an answer, too.
func (r *reader) try(ctx context.Context, bytes int64, request func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		bounded, cancel := context.WithTimeout(ctx, requestTimeout+time.Duration(bytes)*time.Second/bytesPerSecond)
		err := request(bounded)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil, errors.Is(err, objstore.ErrNotFound), errors.Is(err, objstore.ErrStopped), errors.Is(err, objstore.ErrNotRegular), objstore.SetupFailureOf(err) != nil:
			return err
		case attempt == attemptsMax:
			return fmt.Errorf("all %d attempts failed, the last with: %w", attempt, err)
		}
		if err := pause(ctx, pauseMin<<(attempt-1)); err != nil {
			return err
		}
	}
}

// believe calls read, and calls it again if the object seems damaged or absent: networks and proxies may
// damage bytes, and a store may show an object late. It calls read at most rechecksMax times, and
// returns the error of the last call.
func believe(ctx context.Context, read func() error) error {
	for times := 1; ; times++ {
		err := read()
		if _, damaged := classOf(err); !damaged && !errors.Is(err, objstore.ErrNotFound) || times == rechecksMax {
			return err
		}
		if err := pause(ctx, recheckPause); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
