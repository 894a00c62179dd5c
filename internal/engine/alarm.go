package engine

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// Most jobs are due because of a commit. Some are due because time has passed, also on a log without traffic: these have an alarm.
// The broker that has won the last slot does them. If it is gone, another broker does them five to ten minutes later.

// alarm wakes a job.
type alarm struct {
	// commits and changed are told that a commit was applied, and that what the job depends on may have changed at once.
	commits, changed chan struct{}
}

func newAlarm() alarm { return alarm{make(chan struct{}, 1), make(chan struct{}, 1)} }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wakeJobs wakes jobs when a commit was applied. own says that this broker has written it.
func (e *fold) wakeJobs(c *format.Commit, own bool) {
	e.wonLast.Store(own)
	for _, entry := range c.Entries {
		switch entry.(type) {
		case *format.TopicConfigured, *format.QueuesPassed, *format.LevelRaised, *format.QueueDeleted:
			signal(e.retention.changed)
		}
	}
	signal(e.retention.commits)
	signal(e.idle.commits)
}

// maintain begins the jobs that are due because this broker has won a slot.
func (e *Engine) maintain(won format.Seq) {
	if e.opts.NoMaintenance {
		return
	}
	e.maybeCheckpoint(won)
	e.maybeRaise()
	e.maybeCompact()
	e.maybeCollect()
}

// grace returns for how long brokers leave jobs to the one that has won the last slot. It is random, so that they don't all begin
// at once.
func grace() time.Duration { return Compaction.RetainGrace + rand.N(Compaction.RetainGrace+1) }

// left returns for how long this broker leaves jobs to another one.
func (e *Engine) left() time.Duration {
	if e.wonLast.Load() {
		return 0
	}
	return e.grace
}

// repeat does a job again and again, until the commit loop ends. The job returns when to do it again, unless only a commit can make
// it due.
func (e *Engine) repeat(a *alarm, job func(ctx context.Context) (wait time.Duration, timed bool)) {
	ctx, cancel := context.WithCancel(e.life)
	defer cancel()
	go func() {
		select {
		case <-e.loopDone:
			cancel()
		case <-ctx.Done():
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, timed := job(ctx)
		if timed {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		for begun, commits, woken := time.Now(), a.commits, false; !woken; {
			select {
			case <-timer.C:
				woken = true
			case <-a.changed:
				woken = true
			case <-commits: // many commits wake the job once
				commits = nil
				if next := Compaction.RetainMin - time.Since(begun); !timed || next < wait-time.Since(begun) {
					timed, wait = true, Compaction.RetainMin
					timer.Reset(max(next, 0))
				}
			case <-ctx.Done():
				return
			}
		}
	}
}
