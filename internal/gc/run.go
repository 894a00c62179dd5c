package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/internal/collect"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// Error is an error of [Run] about the log or the store.
type Error struct {
	// Damage is true if the log is damaged or the store can't be trusted, Unavailable if the store did not answer or has no
	// room, and Refused if the store does not let this program delete objects.
	Damage, Unavailable, Refused bool
	Hint                         string // what to do; may be empty
	Err                          error
}

// Error returns the text of the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Result says what [Run] has done.
type Result struct {
	Jobs       int           `json:"compactions"`
	MovedBytes int64         `json:"compacted_bytes"`
	Checkpoint uint64        `json:"checkpoint,omitempty"` // the slot of a checkpoint that was written, or read, so that more may be deleted later
	Deleted    Counts        `json:"deleted"`              // without bytes if not all of it was deleted
	Ghosts     int64         `json:"deleted_again"`        // commits that the store had after they were deleted
	EndedHold  string        `json:"ended_hold,omitempty"`
	Took       time.Duration `json:"-"`
	// After says what is dead now. It is nil after an error.
	After *Report `json:"after,omitempty"`
}

// Progress says how far [Run] is.
type Progress struct {
	Jobs    int
	Deleted int // objects
}

const (
	shutdownTimeout = 10 * time.Second
)

// Run opens the log as a broker does, and does what is due: jobs of compaction, a checkpoint if something dead waits for one,
// and the collection. It writes the engine's errors to log. It may run while brokers use the log. It calls tell again and again. After an error, the result says
// what was done before.
func Run(ctx context.Context, store objstore.Store, opts Options, log io.Writer, tell func(Progress)) (r Result, err error) {
	opts.clock()
	begun := time.Now()
	before, err := Preview(ctx, store, opts)
	if err == nil && opts.KeepDeleted > 0 {
		err = before.check(opts.KeepDeleted)
	}
	if err == nil && opts.EndHold != "" {
		_, _, err = before.hold(opts.EndHold)
	}
	if err == nil && before.Level >= format.LevelSegments {
		err = run(ctx, store, opts, log, tell, before, &r)
	}
	if r.Took = time.Since(begun); err == nil {
		r.After, err = Preview(ctx, store, opts)
	}
	return r, err
}

// DelayError says that dead objects can't stay as long as the caller wants.
type DelayError struct{ Reason string }

// Error returns the reason.
func (e *DelayError) Error() string { return e.Reason }

// check returns an error if dead objects can't stay for a time.
func (r *Report) check(keep time.Duration) error {
	switch {
	case r.Level < format.LevelSegments:
		return &DelayError{fmt.Sprintf("the log has the level %d: nothing is deleted below %d, where this can be set", r.Level, format.LevelSegments)}
	case keep < r.first || keep > state.DelayMax:
		return &DelayError{fmt.Sprintf("deleted objects can't be kept for %v: at least for the log's delete delay, %v, and at most for %v", keep, r.first, state.DelayMax)}
	}
	return nil
}

// HoldError says that the log has no hold with an id.
type HoldError struct {
	ID    string
	Holds []Hold // that the log has
}

// Error names the holds that the log has.
func (e *HoldError) Error() string {
	if len(e.Holds) == 0 {
		return fmt.Sprintf("the log has no hold %q: nothing holds it", e.ID)
	}
	var ids []string
	for _, x := range e.Holds {
		ids = append(ids, x.ID)
	}
	return fmt.Sprintf("the log has no hold %q; its holds are %s", e.ID, strings.Join(ids, ", "))
}

func holdID(id uint64) string { return fmt.Sprintf("%016x", id) }

// hold returns a hold of the log, and the number that its id stands for.
func (r *Report) hold(id string) (x Hold, number uint64, err error) {
	i := slices.IndexFunc(r.Holds, func(x Hold) bool { return x.ID == id })
	if i < 0 {
		return x, 0, &HoldError{id, r.Holds}
	}
	number, err = strconv.ParseUint(id, 16, 64)
	return r.Holds[i], number, err
}

func run(ctx context.Context, store objstore.Store, opts Options, log io.Writer, tell func(Progress), before *Report, r *Result) (err error) {
	o := engine.ToolOptions(log)
	o.Memory, o.StateMemory = cmp.Or(opts.Memory, o.Memory), cmp.Or(opts.StateMemory, o.StateMemory)
	o.Boot, o.BootID = opts.Boot, opts.BootID
	e := engine.New(store, o)
	if err := e.Open(ctx); err != nil {
		return explain(err)
	}
	if opts.KeepDeleted > 0 {
		if err := e.SetDelay(ctx, opts.KeepDeleted); err != nil {
			return errors.Join(explain(err), e.Shutdown(nil))
		}
	}
	if opts.EndHold != "" {
		x, id, err := before.hold(opts.EndHold)
		if err == nil {
			err = e.Hold(ctx, id, format.Seq(x.Slot), 0)
		}
		if err != nil {
			return errors.Join(explain(err), e.Shutdown(nil))
		}
		r.EndedHold = opts.EndHold
	}
	done, err := e.CollectAll(ctx, func(c engine.Cleanup, deleted int) { tell(Progress{c.Jobs, deleted}) })
	d := done.Deleted
	r.Jobs, r.MovedBytes, r.Checkpoint, r.Ghosts = done.Jobs, done.Bytes, uint64(done.Seen), int64(d.Ghosts)
	r.Deleted = Counts{Commits: int64(d.Commits), Data: int64(d.Data), Checkpoints: int64(d.Checkpoints), Orphans: int64(d.Orphans)}
	if stopped := e.Usable(); err != nil && stopped != nil {
		err = stopped
	}
	if err == nil && r.Deleted.Data == before.Due.Data {
		r.Deleted.Bytes = before.Due.Bytes
	}
	if err != nil && collect.Refused(err) {
		err = &Error{Refused: true, Err: err}
	}
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(shutdownTimeout, e.End) })
	defer stop()
	return errors.Join(explain(err), explain(e.Shutdown(nil)))
}

// explain returns err with what kind of error it is.
func explain(err error) error {
	if _, known := errors.AsType[*Error](err); known || err == nil {
		return err
	}
	if x, ok := errors.AsType[*engine.StoppedError](err); ok {
		return &Error{Damage: true, Hint: x.Hint, Err: err}
	}
	if _, ok := errors.AsType[*engine.UnusableError](err); ok {
		return &Error{Damage: true, Err: err}
	}
	if x, ok := errors.AsType[*engine.StoreError](err); ok && objstore.SetupFailureOf(err) == nil {
		return &Error{Unavailable: true, Hint: x.Hint, Err: err}
	}
	return err
}
