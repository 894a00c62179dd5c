package engine

import (
	"context"
	"errors"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// Pages keep idempotency keys out of checkpoints: see internal/state/pages.go. The broker that compacts stores them.

// pageShare says how large a page may be: pageShare times [Bounds].PageBytes.
const pageShare = 4

// doPage stores a page of appends with an idempotency key, as a job of compaction.
func (e *Engine) doPage(list []state.Keyed) {
	begun := time.Now()
	switch page, err := e.storePage(e.jobs, list); {
	case err == nil:
		e.metrics.pages.add(compactDone)
		e.logger.Debug("stored a page of idempotency keys", "page", page.Ref.Key(), "keys", page.Keys, "bytes", page.Size, "took", time.Since(begun))
	case errors.Is(err, state.ErrNonsense):
		e.metrics.pages.add(compactOvertaken)
	case e.jobs.Err() == nil && !e.closing.Load():
		e.metrics.pages.add(compactFailed)
		e.logFailure("could not store a page of idempotency keys; the next commits try again", err)
		pause(e.jobs, 8)
	}
}

// storePage writes a page to the store, reads it back, and commits it.
func (e *Engine) storePage(ctx context.Context, list []state.Keyed) (format.Page, error) {
	ref := e.newRef()
	object, page := format.EncodePage(e.cluster.ID, ref, e.opts.Wall().UnixMicro(), state.EncodeKeyed(list), uint32(len(list)))
	if err := e.putChecked(ctx, format.CauseCheckpoint, ref.Key(), object); err != nil {
		return page, err
	}
	return page, e.Commit(ctx, &Request{Change: addPage{Page: page, First: list[0].Key}, Synced: true})
}

// addPage is the change that makes the log refer to a page.
type addPage format.PageStored

// Apply implements Change.
func (x addPage) Apply(d *state.Draft) ([]format.Entry, error) {
	stored := format.PageStored(x)
	if err := d.CheckPage(&stored); err != nil {
		return nil, err
	}
	return []format.Entry{&stored}, nil
}
