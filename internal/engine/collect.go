package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/collect"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// The collector deletes what is dead. It needs to know that a checkpoint was in the store long ago: so brokers say in their
// commits which checkpoint they have read last. The broker that wins a slot deletes what may go.

// collector is what an Engine knows about deletion beside the state.
type collector struct {
	last    atomic.Pointer[format.CheckpointSeen] // the last checkpoint that this broker has read, all of it
	busy    atomic.Bool
	sights  map[format.Seq]int64 // when this process first knew that a checkpoint was seen, by Options.Boot in microseconds; owned by the goroutine that set busy
	next    time.Time            // earliest time of the next collection; owned by the same goroutine
	refused bool                 // the store does not let this broker delete; owned by the same goroutine
	tell    func(deleted int)    // told how many objects a collection has deleted so far; may be nil; owned by the same goroutine
}

const (
	// The data floor rises to a slot that was applied orphanAge ago, or a quarter of the delete delay if that is less.
	orphanAge = time.Hour
	// After a collection failed, the next one begins after collectPause, or after refusedPause if the store does not let this
	// broker delete objects.
	collectPause, refusedPause = 5 * time.Minute, time.Hour
)

// What becomes of collections, in metrics.
const (
	collectDone   = "done"
	collectFailed = "failed"
)

// Kinds of deleted objects, in metrics.
const (
	deletedCommits     = "commit"
	deletedData        = "data"
	deletedCheckpoints = "checkpoint"
	deletedOrphans     = "orphan"
	deletedGhosts      = "ghost"
)

// read notes that this broker has read all of the checkpoint of a slot, whose state had that bottom.
func (c *collector) read(slot, bottom format.Seq) {
	c.last.Store(&format.CheckpointSeen{Slot: slot, Bottom: bottom})
}

// seen returns the entry that says which checkpoint this broker has read last; nil if the log says so already.
func (c *collector) seen(e *Engine) *format.CheckpointSeen {
	s, last := e.live.State, c.last.Load()
	if last == nil || s.Level() < format.LevelSegments {
		return nil
	}
	if seen := s.Seen(); len(seen) > 0 && seen[len(seen)-1].Slot >= last.Slot {
		return nil
	}
	x := *last
	x.Boot, x.Since = e.opts.BootID, e.opts.Boot().Microseconds()
	if s.CheckSeen(&x) != nil {
		return nil // another broker has read a newer one
	}
	return &x
}

// clocks returns what the state needs to know to plan a collection.
func (e *Engine) clocks() state.CollectOptions {
	return state.CollectOptions{
		Now: e.StoreNow().UnixMicro(), Delay: time.Duration(e.cluster.DeleteDelay), Error: time.Duration(e.cluster.Margin) / 4,
		Boot: e.opts.BootID, Since: e.opts.Boot().Microseconds(),
		Sight: func(slot format.Seq) int64 { return e.collector.sights[slot] },
	}
}

// maybeCollect is called when this broker has won a slot. If a checkpoint has become old enough, it deletes what the
// checkpoint shows to be dead, concurrently with the commit loop.
func (e *Engine) maybeCollect() {
	c := &e.collector
	if e.stopped.Load() != nil || e.closing.Load() || e.live.State.Level() < format.LevelSegments || !c.busy.CompareAndSwap(false, true) {
		return
	}
	plan := e.planCollection()
	if plan == nil || time.Now().Before(c.next) {
		c.busy.Store(false)
		return
	}
	e.tasks.Go(func() {
		defer c.busy.Store(false) // after next is set
		if _, err := e.deleteDead(e.life, plan); err != nil && e.life.Err() == nil && !e.closing.Load() {
			e.collectFailed(err)
		}
	})
}

// planCollection returns what may be deleted now; nil if there is nothing. Only the goroutine that set busy calls it.
func (e *Engine) planCollection() (plan *state.Collection) {
	e.View(func(s *state.State) {
		e.collector.look(s.Seen(), e.opts.Boot().Microseconds())
		plan = s.PlanCollection(e.clocks())
	})
	return plan
}

// look notes when this process first knew each of the checkpoints.
func (c *collector) look(seen []state.Seen, now int64) {
	sights := make(map[format.Seq]int64, len(seen))
	for _, x := range seen {
		at, known := c.sights[x.Slot]
		if !known {
			at = now
		}
		sights[x.Slot] = at
	}
	c.sights = sights
}

func (e *Engine) collectFailed(err error) {
	c := &e.collector
	e.metrics.collections.add(collectFailed)
	c.next = time.Now().Add(collectPause)
	switch {
	case contradicts(err):
		e.stop(err)
		e.end()
	case collect.Refused(err):
		c.next = time.Now().Add(refusedPause)
		if !c.refused {
			e.logFailure("the store does not let this broker delete objects, so the bucket keeps what is dead; this broker goes on without", err)
		}
		c.refused = true
	default:
		e.logFailure("could not delete dead objects; a later commit tries again", err)
	}
}

// deleteDead deletes what a plan names, and commits that it is deleted.
func (e *Engine) deleteDead(ctx context.Context, plan *state.Collection) (collect.Result, error) {
	begun := time.Now()
	r, err := collect.New(collect.Options{Store: e.stores[format.CauseDelete], Confirm: e.log.Confirm, Boot: e.opts.Boot, Logger: e.logger, Tell: e.collector.tell}).Run(ctx, plan)
	for kind, n := range map[string]int{
		deletedCommits: r.Commits, deletedData: r.Data, deletedCheckpoints: r.Checkpoints, deletedOrphans: r.Orphans, deletedGhosts: r.Ghosts,
	} {
		e.metrics.deletions.addAll(kind, n)
	}
	if err != nil {
		return r, err
	}
	e.collector.refused = false
	err = e.Commit(ctx, &Request{Change: collected(plan.Collected), Synced: true})
	if errors.Is(err, state.ErrNonsense) {
		return r, nil // another broker has deleted more meanwhile
	}
	if err != nil {
		return r, err
	}
	e.metrics.collections.add(collectDone)
	e.logger.Debug("deleted dead objects", "up_to", uint64(plan.Collected.Slot), "commits", r.Commits, "data", r.Data, "checkpoints", r.Checkpoints,
		"orphans", r.Orphans, "took", time.Since(begun))
	return r, nil
}

// collected is the change that says what is deleted. Once in each delay, it also raises the data floor, so that the next
// collection finds the orphans below.
type collected format.Collected

// Apply implements Change.
func (x collected) Apply(d *state.Draft) ([]format.Entry, error) {
	said := format.Collected(x)
	if err := d.CheckCollected(&said); err != nil {
		return nil, err
	}
	entries := []format.Entry{&said}
	if floor := NextFloor(d); floor > 0 {
		entries = append(entries, &format.DataFloor{Seq: floor})
	}
	return entries, nil
}

// NextFloor returns the slot to which the commit of a collection raises the data floor; 0 if it does not.
func NextFloor(d *state.Draft) format.Seq { return d.NextFloor(min(orphanAge, d.DeleteDelay()/4)) }
