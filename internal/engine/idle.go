package engine

import (
	"context"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// When nothing is committed any longer, no commit makes a checkpoint or a collection due, although what has died last still takes
// space. So a broker does what is left, step by step, and then nothing: after that, a log without traffic costs no requests.

// idleShare: a log is idle when a 1/idleShare of the delete delay has passed since the last commit. That is longer than the time
// between two checkpoints of which the state remembers only one.
const idleShare = 24

// tidyPauseMax bounds the time between two tries on an idle log, after several have failed.
const tidyPauseMax = 24 * time.Hour

// ending reports whether a job has failed since the engine ends.
func (e *Engine) ending(ctx context.Context) bool { return ctx.Err() != nil || e.closing.Load() }

// tidy does the next step that deletes what is dead on an idle log, if it is time to do so.
func (e *Engine) tidy(ctx context.Context) (wait time.Duration, timed bool) {
	idle := time.Duration(e.cluster.DeleteDelay) / idleShare
	var (
		dead, covered bool
		last          time.Time
	)
	e.View(func(s *state.State) {
		dead, covered, last = s.Level() >= format.LevelSegments && s.DeadData(), s.Covered(format.BootID{}), time.UnixMicro(s.Time())
	})
	if !dead { // commits that are dead wait for the next ones: to delete them takes commits
		return 0, false
	}
	if quiet := e.StoreNow().Sub(last); quiet < idle+e.left() {
		return max(idle+e.left()-quiet, Compaction.RetainMin), true
	}
	c := &e.collector
	if !c.busy.CompareAndSwap(false, true) {
		return idle, true
	}
	defer c.busy.Store(false)
	if c.refused {
		return 0, false
	}
	plan := e.planCollection()
	if plan != nil && time.Now().Before(c.next) || plan == nil && covered {
		return idle, true
	}
	before := e.Applied()
	if err := e.SyncToAct(ctx); err != nil || e.Applied() != before {
		return Compaction.RetainMin, true // another broker has done something meanwhile
	}
	var err error
	if plan != nil {
		if _, err = e.deleteDead(ctx, plan); err != nil && !e.ending(ctx) {
			e.collectFailed(err)
		}
	} else if err = e.showCheckpoint(ctx, &Cleanup{}); err != nil && !e.ending(ctx) {
		e.logFailure("could not write a checkpoint, after which dead objects may be deleted; trying again", err)
	}
	if err == nil {
		e.tidyFailures = 0
		return idle, true
	}
	e.tidyFailures++ // what fails for hours on an idle log must not cost a request every minute
	return max(idle, min(collectPause<<min(e.tidyFailures, 16), tidyPauseMax)), true
}
