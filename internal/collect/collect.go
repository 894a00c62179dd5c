// Package collect deletes the objects of a log that are dead. What may be deleted is decided by the log's state:
// [state.State.PlanCollection]. This package sends the requests to the store, and checks that the objects are gone.
package collect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/internal/wait"
	"github.com/simple-event-broker/seb/objstore"
)

const (
	deletesMax = 16   // requests at once
	chunkKeys  = 1000 // keys between two checks
	// listKeys is how many keys a page has at most. In a directory, a page costs as much as all pages; S3 returns at most 1,000.
	listKeys = 50_000
	// confirmAge is for how long the collector deletes objects without a new proof that the store has the log.
	confirmAge = time.Minute
	triesMax   = 10 // how often a key is deleted that fails, or that the store still lists
	pauseMin   = time.Second
	pauseMax   = 5 * time.Minute
	// requestTimeout bounds a request.
	requestTimeout = 30 * time.Second
)

// Options configure a [Collector].
type Options struct {
	Store objstore.Store
	// Confirm returns an error unless the store still has the log that the plan is of: another log may have been restored
	// into the bucket.
	Confirm func(ctx context.Context) error
	Boot    func() time.Duration // the time since the machine started, suspended time included
	Logger  *slog.Logger
	Tell    func(deleted int) // is told how many objects Run has deleted so far; may be nil
}

// Collector deletes objects. Only one goroutine may use it.
type Collector struct {
	opts      Options
	parallel  int           // requests at once; fewer while deletes fail
	confirmed time.Duration // when Confirm succeeded last, by Boot
	deleted   int           // for Tell
}

// New returns a collector.
func New(opts Options) *Collector { return &Collector{opts: opts, parallel: deletesMax} }

// Result says what a collection has deleted.
type Result struct {
	// Commits, Data and Checkpoints count keys that the collector has told the store to delete. Some of them may have been
	// gone before.
	Commits, Data, Checkpoints int
	Orphans                    int // data objects that no commit refers to
	Ghosts                     int // commits that the store wrote again after they were deleted
}

// Run deletes what the plan names, and returns once the store no longer lists any of it.
func (c *Collector) Run(ctx context.Context, plan *state.Collection) (Result, error) {
	var r Result
	c.confirmed = 0
	if err := c.confirm(ctx); err != nil {
		return r, err
	}
	checkpoints, err := c.checkpoints(ctx, plan.Collected.Slot)
	if err == nil {
		err = c.pages(ctx, plan.Pages)
	}
	if err != nil {
		return r, err
	}
	n, err := c.delete(ctx, func(yield func(string) bool) {
		for s := plan.From; s < plan.Collected.Bottom; s++ {
			if !plan.Keep[s] && !yield(format.LogKey(s)) {
				return
			}
		}
	})
	r.Commits = n
	if err != nil {
		return r, err
	}
	n, err = c.delete(ctx, func(yield func(string) bool) {
		for _, ref := range plan.Data {
			if !yield(ref.Key()) {
				return
			}
		}
	})
	r.Data = n
	if err != nil {
		return r, err
	}
	r.Checkpoints, err = c.delete(ctx, list(checkpoints))
	if err != nil {
		return r, err
	}
	return r, c.sweep(ctx, plan, &r)
}

func list(keys []string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, key := range keys {
			if !yield(key) {
				return
			}
		}
	}
}

// pages returns an error unless the store has pages.
func (c *Collector) pages(ctx context.Context, pages []format.Page) error {
	for i := range pages {
		rctx, cancel := context.WithTimeout(ctx, requestTimeout)
		o, err := c.opts.Store.Get(rctx, pages[i].Ref.Key(), 0, 1)
		cancel()
		if err == nil && o.Size != int64(pages[i].Ref.Size) {
			err = format.Corrupt("it has %d bytes instead of %d", o.Size, pages[i].Ref.Size)
		}
		if err != nil {
			return fmt.Errorf("nothing is deleted: read %s, which the next checkpoint needs: %w", pages[i].Ref.Key(), err)
		}
	}
	return nil
}

// checkpoints returns the keys of the checkpoints that may go: those before the one that the plan rests on, except the newest
// two. It checks that this one is whole, and that there is a newer one: from each of the two the log can be opened.
func (c *Collector) checkpoints(ctx context.Context, slot format.Seq) (old []string, err error) {
	var keys []string
	at := -1
	newest := format.Seq(0)
	err = c.list(ctx, format.CheckpointPrefix, func(key string) bool {
		if s, ok := format.ParseSeqKey(format.CheckpointPrefix, key); ok {
			if s == slot {
				at = len(keys)
			}
			keys, newest = append(keys, key), s
		}
		return true
	})
	switch {
	case err != nil:
		return nil, err
	case at < 0 || newest == slot:
		return nil, fmt.Errorf("nothing is deleted: the store does not list %s and a newer checkpoint", format.CheckpointKey(slot))
	}
	rctx, cancel := context.WithTimeout(ctx, 10*requestTimeout)
	defer cancel()
	o, err := objstore.GetWholeIf(rctx, c.opts.Store, keys[at], format.CheckpointBytesMax, format.CheckCheckpointStart)
	if err == nil {
		_, err = format.DecodeCheckpoint(o.Body)
	}
	if err != nil {
		return nil, fmt.Errorf("nothing is deleted: read %s: %w", keys[at], err)
	}
	return keys[:min(at, len(keys)-2)], nil
}

// sweep deletes what the store still lists although it should be gone, and orphans, until the store lists none of them.
func (c *Collector) sweep(ctx context.Context, plan *state.Collection, r *Result) error {
	data := map[state.DataKey]bool{}
	last := plan.Floor
	for _, ref := range plan.Data {
		data[state.DataKey{Seq: ref.Seq, ID: ref.ID}] = true
		last = max(last, ref.Seq+1)
	}
	for try := 0; ; try++ {
		var left []string
		ghosts, orphans := 0, 0
		err := c.list(ctx, format.LogPrefix, func(key string) bool {
			s, ok := format.ParseSeqKey(format.LogPrefix, key)
			if ok && s < plan.Collected.Bottom && !plan.Keep[s] {
				left, ghosts = append(left, key), ghosts+1
			}
			return !ok || s < plan.Collected.Bottom
		})
		if err != nil {
			return err
		}
		err = c.list(ctx, format.DataPrefix, func(key string) bool {
			ref, ok := format.ParseDataKey(key)
			at := state.DataKey{Seq: ref.Seq, ID: ref.ID}
			switch {
			case !ok:
				return true
			case data[at]:
				left = append(left, key)
			case ref.Seq < plan.Floor && !plan.Known[at]:
				left, orphans = append(left, key), orphans+1
			}
			return ref.Seq < last
		})
		if err != nil || len(left) == 0 {
			return err
		}
		if try == triesMax {
			return fmt.Errorf("the store lists %d keys that it said were deleted, such as %s", len(left), left[0])
		}
		if try > 0 {
			c.pause(ctx, try)
		}
		r.Ghosts, r.Orphans = r.Ghosts+ghosts, r.Orphans+orphans
		if _, err := c.delete(ctx, list(left)); err != nil {
			return err
		}
	}
}

// list calls visit with the keys that begin with prefix, in order, until visit returns false.
func (c *Collector) list(ctx context.Context, prefix string, visit func(key string) bool) error {
	for after, more := "", true; more; {
		lctx, cancel := context.WithTimeout(ctx, requestTimeout)
		page, err := c.opts.Store.List(lctx, prefix, after, listKeys)
		cancel()
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		for _, key := range page.Keys {
			if !visit(key) {
				return nil
			}
			after = key
		}
		more = page.More && len(page.Keys) > 0
	}
	return ctx.Err()
}

// delete deletes keys, and returns how many.
func (c *Collector) delete(ctx context.Context, keys func(func(string) bool)) (n int, err error) {
	var chunk []string
	flush := func() bool {
		if len(chunk) > 0 {
			var done int
			done, err = c.deleteChunk(ctx, chunk)
			n, c.deleted = n+done, c.deleted+done
			if c.opts.Tell != nil {
				c.opts.Tell(c.deleted)
			}
			chunk = chunk[:0]
		}
		return err == nil
	}
	for key := range keys {
		if chunk = append(chunk, key); len(chunk) == chunkKeys && !flush() {
			return n, err
		}
	}
	flush()
	return n, err
}

// deleteChunk deletes keys side by side, and those that fail again. It returns how many it has deleted.
func (c *Collector) deleteChunk(ctx context.Context, keys []string) (n int, err error) {
	for try := 0; ; try++ {
		if err := c.confirm(ctx); err != nil {
			return n, err
		}
		failed, err := c.deleteOnce(ctx, keys)
		n += len(keys) - len(failed)
		if err == nil {
			c.parallel = min(c.parallel+1, deletesMax)
			return n, nil
		}
		if ctx.Err() != nil {
			return n, ctx.Err()
		}
		keys = failed
		switch {
		case Refused(err) || try == triesMax:
			return n, err
		case errors.Is(err, errStale):
			continue
		}
		c.opts.Logger.Debug("could not delete objects; trying again", "objects", len(failed), "err", err)
		c.parallel = max(1, c.parallel/2)
		c.pause(ctx, try)
	}
}

// Refused tells whether err says that the store does not let this process delete objects: no retry helps.
func Refused(err error) bool {
	return objstore.SetupFailureOf(err) != nil || errors.Is(err, fs.ErrPermission)
}

// errStale says that the last proof that the store has the log has become too old.
var errStale = errors.New("the bucket must be checked again")

// deleteOnce deletes keys side by side. It returns those that it could not delete, and one of the errors. It stops at an
// error that every other delete would meet too.
func (c *Collector) deleteOnce(ctx context.Context, keys []string) (failed []string, err error) {
	var (
		g    errgroup.Group
		mu   sync.Mutex
		stop atomic.Bool
	)
	fail := func(key string) {
		mu.Lock()
		defer mu.Unlock()
		failed = append(failed, key)
	}
	g.SetLimit(c.parallel)
	for _, key := range keys {
		g.Go(func() error {
			if stop.Load() {
				fail(key)
				return nil
			}
			err := errStale
			if c.fresh() {
				dctx, cancel := context.WithTimeout(ctx, requestTimeout)
				defer cancel()
				_, err = c.opts.Store.Delete(dctx, key)
			}
			if err == nil {
				return nil
			}
			fail(key)
			if errors.Is(err, errStale) || Refused(err) {
				stop.Store(true)
			}
			return err
		})
	}
	return failed, g.Wait()
}

// fresh reports whether the last proof that the store has the log is young enough. It is asked right before each request: the
// machine may have been suspended.
func (c *Collector) fresh() bool {
	return c.confirmed != 0 && c.opts.Boot()-c.confirmed < confirmAge
}

// confirm proves that the store has the log, if the last proof has become too old.
func (c *Collector) confirm(ctx context.Context) error {
	if c.fresh() {
		return nil
	}
	begun := c.opts.Boot()
	if err := c.opts.Confirm(ctx); err != nil {
		return err
	}
	c.confirmed = max(begun, 1)
	return nil
}

func (c *Collector) pause(ctx context.Context, try int) {
	wait.For(ctx, min(pauseMin<<min(try, 10), pauseMax))
}
