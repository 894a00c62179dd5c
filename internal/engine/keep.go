package engine

import (
	"context"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// How long dead objects stay is in the log, so that every broker keeps to it, and seb gc too.

// delayEntry returns what this broker's next commit, at a time of the log in microseconds, says about how long dead objects stay;
// nil if it says nothing.
func (e *Engine) delayEntry(now int64) format.Entry {
	s, keep := e.live.State, min(e.opts.KeepDeleted, state.DelayMax).Truncate(time.Microsecond)
	next, from := s.NextKeeps()
	if keep <= s.DeleteDelay() || s.Level() < format.LevelSegments || keep <= s.Keeps(now) && (from == 0 || keep <= next) {
		return nil
	}
	return &format.DelaySet{Delay: keep}
}

// SetDelay sets how long dead objects stay. A delay that is shorter than the present one comes into force once the log's first
// delay is over, unless a broker with a longer [Options].KeepDeleted writes before. The error wraps [state.ErrNonsense] if the delay
// is impossible.
func (e *Engine) SetDelay(ctx context.Context, delay time.Duration) error {
	return e.Commit(ctx, &Request{Change: setDelay(delay.Truncate(time.Microsecond)), Synced: true})
}

type setDelay time.Duration

// Apply implements Change.
func (x setDelay) Apply(d *state.Draft) ([]format.Entry, error) {
	entry := &format.DelaySet{Delay: time.Duration(x)}
	if err := d.CheckDelay(entry); err != nil {
		return nil, err
	}
	return []format.Entry{entry}, nil
}

// Hold tells all brokers, in the log, to delete nothing for some time that was live after a slot, or later. A later call with the same
// id renews the hold; a time of 0 ends it. The error wraps [state.ErrNonsense] if what was live then may be deleted already, or
// if there are too many holds.
func (e *Engine) Hold(ctx context.Context, id uint64, slot format.Seq, lasts time.Duration) error {
	x := hold{ID: id, Slot: slot}
	if lasts > 0 {
		x.Until = e.StoreNow().Add(lasts).UnixMicro()
	}
	return e.Commit(ctx, &Request{Change: x, Synced: true})
}

type hold format.Held

// Apply implements Change.
func (x hold) Apply(d *state.Draft) ([]format.Entry, error) {
	entry := format.Held(x)
	if err := d.CheckHeld(&entry); err != nil {
		return nil, err
	}
	return []format.Entry{&entry}, nil
}
