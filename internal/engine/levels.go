package engine

import (
	"context"
	"errors"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// Brokers of earlier versions stop at the commit that raises the level of the log. So a broker raises it by itself only when all
// commits of some time say that their writers can go on, and all brokers that were connected to them: see Bounds.

// agreed returns the highest level of the log that this broker agrees to.
func (o *Options) agreed() uint32 {
	if o.HoldLevel {
		return format.LevelSegments - 1
	}
	return format.LevelSegments
}

// levelEntry returns what this broker says about the level of the log in its next commit; nil if the log has the highest level.
// No earlier version has read a new log, so the first commit raises its level.
func (e *Engine) levelEntry() format.Entry {
	s := e.live.State
	switch hold := e.opts.HoldLevel || !e.mesh.AllAgree(format.LevelSegments); {
	case s.Level() >= format.LevelSegments:
		return nil
	case s.Seq() == 0 && !hold && Compaction.RaiseNew:
		return &format.LevelRaised{Level: format.LevelSegments, DeleteDelay: e.firstDelay()}
	default:
		return &format.LevelKnown{Level: format.LevelSegments, Hold: hold}
	}
}

// firstDelay returns the delete delay as the log can hold it: in whole microseconds.
func (e *Engine) firstDelay() time.Duration {
	return time.Duration(e.cluster.DeleteDelay).Truncate(time.Microsecond)
}

// levels counts the commits whose writers know the next level, and don't want to hold the log at the present one.
type levels struct {
	commits int   // without one of another writer among them
	since   int64 // the log's time of the first one, in microseconds since 1970
}

func (l *levels) applied(c *format.Commit) {
	for _, it := range c.Entries {
		if x, ok := it.(*format.LevelKnown); ok && x.Level >= format.LevelSegments && !x.Hold {
			if l.commits == 0 {
				l.since = c.Time
			}
			l.commits++
			return
		}
	}
	*l = levels{}
}

// maybeRaise is called when this broker has won a slot. It raises the level of the log if all brokers know the next one.
func (e *Engine) maybeRaise() {
	s := e.live.State
	if s.Level() >= format.LevelSegments || e.levels.commits < Compaction.RaiseCommits || s.Time()-e.levels.since < Compaction.RaiseAfter.Microseconds() || !e.raising.CompareAndSwap(false, true) {
		return
	}
	e.tasks.Go(func() {
		defer e.raising.Store(false)
		if err := e.RaiseLevel(e.life); err != nil && e.life.Err() == nil {
			e.logFailure("could not raise the level of the log; a later commit tries again", err)
		}
	})
}

// RaiseLevel raises the level of the log to [format.LevelSegments]. Brokers of versions that don't know this level stop at
// that commit. RaiseLevel returns nil if the log has the level already.
func (e *Engine) RaiseLevel(ctx context.Context) error {
	err := e.Commit(ctx, &Request{Change: raiseLevel{e.firstDelay()}, Synced: true})
	if errors.Is(err, errLevelRaised) {
		return nil
	}
	return err
}

// raiseLevel is the change that raises the level of the log.
type raiseLevel struct{ delay time.Duration }

var errLevelRaised = errors.New("the log has the level already")

// Apply implements Change.
func (x raiseLevel) Apply(d *state.Draft) ([]format.Entry, error) {
	switch {
	case d.Raised(): // the first commit of a log does that by itself
		return []format.Entry{&format.LevelKnown{Level: format.LevelSegments}}, nil // says nothing new, since a commit needs an entry
	case d.Level() >= format.LevelSegments:
		return nil, errLevelRaised
	}
	return []format.Entry{&format.LevelRaised{Level: format.LevelSegments, DeleteDelay: x.delay}}, nil
}
