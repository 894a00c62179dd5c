package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/collect"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/internal/wait"
)

// Brokers compact, write checkpoints and delete what is dead when they win slots. [Engine.CollectAll] does at once all of this
// that is due.

// Cleanup says what [Engine.CollectAll] has done.
type Cleanup struct {
	Jobs  int   // of compaction
	Bytes int64 // of batches that these jobs have moved
	// Seen is the slot of the checkpoint that this engine has read, so that what was dead then may be deleted later; 0 if no such
	// checkpoint was needed.
	Seen    format.Seq
	Deleted collect.Result
}

const (
	// compactTries is how often in a row a job of compaction may fail before CollectAll goes on without.
	compactTries = 5
	// busyPause is the time between two looks whether the commit loop's own job is done.
	busyPause = 50 * time.Millisecond
)

// CollectAll does all jobs of compaction that are due, says which checkpoint this engine has read if something dead waits for
// that, and deletes what may be deleted by the same rules as after a commit. It calls tell again and again with what is
// done so far, and how many objects it has told the store to delete. Below [format.LevelSegments] it does nothing. Even if
// compaction fails, it deletes what is dead already.
func (e *Engine) CollectAll(ctx context.Context, tell func(r Cleanup, deleted int)) (r Cleanup, err error) {
	if err := e.Usable(); err != nil {
		return r, err
	}
	level := uint32(0)
	e.View(func(s *state.State) { level = s.Level() })
	if level < format.LevelSegments {
		return r, nil
	}
	// Own commits would begin such jobs too.
	for _, busy := range []*atomic.Bool{&e.compacting, &e.collector.busy} {
		if err := acquire(ctx, busy); err != nil {
			return r, err
		}
		defer busy.Store(false)
	}
	// The commits of jobs say nothing of the checkpoint that was loaded: the next one, which shows what has died by these jobs,
	// would come so soon that it gives way to the one after it.
	loaded := e.collector.last.Swap(nil)
	failed := e.compactAll(ctx, &r, func() { tell(r, 0) })
	e.collector.last.CompareAndSwap(nil, loaded)
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	if err := e.showCheckpoint(ctx, &r); err != nil {
		return r, errors.Join(failed, err)
	}
	tell(r, 0)
	plan := e.planCollection()
	if plan == nil {
		return r, failed
	}
	e.collector.tell = func(deleted int) { tell(r, deleted) }
	defer func() { e.collector.tell = nil }()
	r.Deleted, err = e.deleteDead(ctx, plan)
	if contradicts(err) {
		e.stop(err)
		e.end()
	}
	return r, errors.Join(failed, err)
}

// acquire waits until busy is false, and sets it.
func acquire(ctx context.Context, busy *atomic.Bool) error {
	for !busy.CompareAndSwap(false, true) {
		if wait.For(ctx, busyPause); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// compactAll does all jobs of compaction that are due.
func (e *Engine) compactAll(ctx context.Context, r *Cleanup, tell func()) (err error) {
	for tries := 0; tries < compactTries; {
		var (
			plan  *state.Plan
			loads uint64
		)
		e.View(func(s *state.State) { plan, loads = e.plan(s, e.planOptions()), e.loads })
		if plan == nil {
			return nil
		}
		var done *state.Plan
		if done, _, err = e.compact(ctx, plan, loads); err == nil {
			tries = 0
			if done != nil {
				r.Jobs, r.Bytes = r.Jobs+1, r.Bytes+done.Bytes
				tell()
			}
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if stopped := e.Usable(); stopped != nil {
			return stopped
		}
		if tries++; !errors.Is(err, state.ErrNonsense) { // else another broker has done the job
			pause(ctx, tries)
		}
	}
	return fmt.Errorf("could not compact records: %w", err)
}

// showCheckpoint makes the log say that this engine has read a checkpoint that shows what is dead, unless the log says so
// already.
func (e *Engine) showCheckpoint(ctx context.Context, r *Cleanup) error {
	var covered, read bool
	look := func(s *state.State) {
		covered = s.Covered(e.opts.BootID)
		if last := e.collector.last.Load(); last != nil && !covered {
			read = s.CoversDead()(last.Slot, last.Bottom) && e.collector.seen(e) != nil
		}
	}
	if e.View(look); covered {
		return nil
	}
	if !read {
		if err := e.checkpointNow(ctx); err != nil {
			return fmt.Errorf("could not write a checkpoint: %w", err)
		}
	}
	if err := e.Commit(ctx, &Request{Change: showSeen{}, Synced: true}); err != nil {
		return fmt.Errorf("could not commit that a checkpoint was read: %w", err)
	}
	r.Seen = e.collector.last.Load().Slot
	return nil
}

// showSeen is the change of a commit that is made for the entry of [collector.seen], which comes with every commit. Once in each
// delay it also raises the data floor.
type showSeen struct{}

// Apply implements Change.
func (showSeen) Apply(d *state.Draft) ([]format.Entry, error) {
	entries := []format.Entry{&format.LevelKnown{Level: format.LevelSegments}} // says nothing new, since a commit needs an entry
	if floor := NextFloor(d); floor > 0 {
		entries = append(entries, &format.DataFloor{Seq: floor})
	}
	return entries, nil
}

// checkpointNow writes a checkpoint of the present state, and reads it back.
func (e *Engine) checkpointNow(ctx context.Context) error {
	if err := acquire(ctx, &e.checkpointing); err != nil {
		return err
	}
	defer e.checkpointing.Store(false)
	for ctx.Err() == nil {
		applied, hash := e.log.Position() // not in View: the log's lock comes before the state's
		var view *state.View
		e.View(func(s *state.State) { view = s.View() })
		if view.Seq() != applied {
			continue // a commit was applied in between
		}
		err := e.findHole(ctx, applied)
		if err == nil {
			err = e.writeCheckpoint(ctx, view, hash)
		}
		if contradicts(err) {
			e.stop(err)
			e.end()
		}
		return err
	}
	return ctx.Err()
}
