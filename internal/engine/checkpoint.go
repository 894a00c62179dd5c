package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// checkpointShare limits the time that large checkpoints take to about 1/checkpointShare of all time. For
// example, after a large checkpoint that took 1 s, the engine skips the checkpoints of the next 7 s.
// Without the limit, a broker with a large state and many commits would always write checkpoints.
const checkpointShare = 8

// maybeCheckpoint is called when this broker has won a slot. If a checkpoint is due, it searches for
// holes in the log and writes a checkpoint, concurrently with the commit loop. A checkpoint is due if
// CheckpointCommits divides the slot. A checkpoint is also due if this broker has neither loaded nor begun
// one in the last 2*CheckpointCommits slots: then the broker that should have written the last checkpoint
// may have failed.
func (e *Engine) maybeCheckpoint(won format.Seq) {
	every := format.Seq(e.opts.CheckpointCommits)
	if won%every != 0 && won < e.lastCheckpoint+2*every || e.stopped.Load() != nil {
		return
	}
	if !e.checkpointing.CompareAndSwap(false, true) {
		return
	}
	e.lastCheckpoint = won
	view, hash := e.snapshot()
	e.tasks.Go(func() {
		defer e.checkpointing.Store(false)
		for attempt := 0; e.life.Err() == nil; attempt++ {
			err := e.findHole(e.life, view.Seq())
			if err == nil && time.Now().Before(e.nextCheckpoint) {
				return
			}
			if err == nil {
				err = e.writeCheckpoint(e.life, view, hash)
			}
			if err == nil {
				return
			}
			if contradicts(err) {
				e.stop(err)
				e.end() // so that the commit under way ends too
				return
			}
			if errors.Is(err, errOtherState) {
				e.logger.Error("a checkpoint differs from what this broker would have written", "slot", uint64(view.Seq()), "err", err)
				return
			}
			if errors.Is(err, objstore.ErrTooLarge) {
				e.logger.Error("the state is too large for a checkpoint, so the next start replays all commits since the last checkpoint: delete topics, and lower --state-memory",
					"slot", uint64(view.Seq()), "err", err)
				return
			}
			if errors.Is(err, objstore.ErrNotRegular) { // a retry would fail too; the next checkpoint has another key
				e.logger.Error("a checkpoint can't be written", "slot", uint64(view.Seq()), "err", err, "hint", Hint(err))
				return
			}
			if errors.Is(err, objstore.ErrFull) {
				e.logFull(err)
			} else {
				e.logFailure("could not write a checkpoint; trying again", err, "slot", uint64(view.Seq()), "attempt", attempt+1)
			}
			pause(e.life, attempt)
		}
	})
}

// snapshot returns a view of the state, and the hash of the last commit in that view. Only the commit loop
// may call snapshot, or Shutdown after the loop has ended. So the engine applies no commit between reading
// the hash and copying the state.
func (e *Engine) snapshot() (*state.View, format.Hash) {
	e.live.RLock()
	defer e.live.RUnlock()
	_, hash := e.log.Position()
	return e.live.State.View(), hash
}

// finalCheckpoint writes a checkpoint when the loop has ended, so that the next start need not
// replay commits.
func (e *Engine) finalCheckpoint(ctx context.Context) error {
	applied, _ := e.log.Position()
	if applied <= e.lastCheckpoint || e.opts.NoMaintenance {
		return nil
	}
	view, hash := e.snapshot()
	err := e.findHole(ctx, view.Seq())
	if err == nil {
		err = e.writeCheckpoint(ctx, view, hash)
	}
	if contradicts(err) {
		e.stop(err)
		return nil // Shutdown returns the error with which the engine has stopped
	}
	if err != nil {
		return fmt.Errorf("write the checkpoint of slot %d (nothing is lost, the next start takes longer): %w", applied, err)
	}
	e.lastCheckpoint = applied
	return nil
}

// contradicts tells whether err says that the bucket differs from what this broker has
// written or read.
func contradicts(err error) bool {
	return errors.Is(err, commitlog.ErrFork) || errors.Is(err, commitlog.ErrRolledBack)
}

// errOtherState says that the store has a checkpoint of the same slot with another state. A retry does
// not help.
var errOtherState = errors.New("the checkpoint in the store does not hold the state after the checkpoint's slot")

// findHole returns an error if the store has lost a recent slot up to s. It is called before a checkpoint
// at s, which would hide the loss.
func (e *Engine) findHole(ctx context.Context, s format.Seq) error {
	sound := format.Seq(e.sound.Load())
	if window := 2 * format.Seq(e.opts.CheckpointCommits); s > window {
		sound = max(sound, s-window) // the writers of earlier checkpoints have searched the slots below
	}
	if err := e.log.FindHole(ctx, sound+1, s); err != nil {
		return err
	}
	e.sound.Store(uint64(s))
	return nil
}

// writeCheckpoint creates a checkpoint and reads it back, to check that the store has what was written.
// The caller has checked that the log has no hole up to the checkpoint's slot.
func (e *Engine) writeCheckpoint(ctx context.Context, view *state.View, hash format.Hash) error {
	begun := time.Now()
	c := &format.Checkpoint{
		Cluster: e.cluster.ID,
		Seq:     view.Seq(),
		Hash:    hash,
		Created: e.opts.Wall().UnixMicro(),
		Body:    view.Encode(),
	}
	key, head := format.CheckpointKey(c.Seq), format.EncodeCheckpoint(c)
	if size := int64(len(head)) + int64(len(c.Body)); size > format.CheckpointBytesMax {
		return fmt.Errorf("write %s: %w: it would have %d bytes, at most %d are allowed", key, objstore.ErrTooLarge, size, format.CheckpointBytesMax)
	}
	ctx, cancel := storeContext(ctx, 2*int64(len(c.Body)))
	defer cancel()
	if _, err := e.stores[format.CauseCheckpoint].Create(ctx, key, head, c.Body); err != nil && !errors.Is(err, objstore.ErrExists) {
		return err
	}
	o, err := objstore.GetWholeIf(ctx, e.stores[format.CauseCheckpoint], key, format.CheckpointBytesMax, format.CheckCheckpointStart)
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	got, err := format.DecodeCheckpoint(o.Body)
	if err != nil {
		return fmt.Errorf("read back %s: %w", key, err)
	}
	if got.Cluster == c.Cluster && got.Seq == c.Seq && got.Hash != c.Hash {
		// Two brokers have applied different commits in the same slot, for example because the store
		// ignores the conditions of creates. Possibly neither broker has noticed that before.
		return fmt.Errorf("%w: %s says that the commit in slot %d has the hash %v; this broker has applied a commit with the hash %v", commitlog.ErrFork, key, c.Seq, got.Hash, c.Hash)
	}
	if got.Cluster != c.Cluster || got.Seq != c.Seq || !bytes.Equal(got.Body, c.Body) && !view.Is(got.Body) {
		return fmt.Errorf("read back %s: %w", key, errOtherState)
	}
	took := time.Since(begun)
	if len(c.Body) >= e.opts.CheckpointLarge {
		e.nextCheckpoint = time.Now().Add((checkpointShare - 1) * took)
	}
	e.metrics.checkpoint(len(c.Body), took)
	e.collector.read(view.Seq(), view.Bottom())
	e.logger.Debug("checkpoint", "slot", uint64(c.Seq), "bytes", len(c.Body), "took", took)
	return nil
}
