package commitlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/simple-event-broker/seb/objstore"
)

// FindHole returns an error that wraps [ErrRolledBack] if a slot from first to
// last is gone, all of which were applied, and no checkpoint at or above it
// stands in the bucket, behind which it could have been deleted. A broker whose
// bucket is rolled back while it appends sees nothing of that by itself: its next
// slot is free. It may be called while the log is used.
func (l *Log) FindHole(ctx context.Context, first, last Seq) error {
	gone, err := firstGone(ctx, l.store, first, last)
	if err != nil || gone > last {
		return err
	}
	if err := l.confirmGone(ctx, LogKey(gone)); err != nil {
		return err
	}
	// After that: what was deleted had a checkpoint over it.
	page, err := listOnce(ctx, l.store, CheckpointPrefix, afterKey(CheckpointPrefix, gone))
	if err != nil {
		return fmt.Errorf("list %s: %w", CheckpointPrefix, err)
	}
	if len(page.Keys) > 0 {
		return nil
	}
	return fmt.Errorf("%w: log slot %d was applied and is gone, and no checkpoint covers it", ErrRolledBack, gone)
}

// confirmGone returns an error unless an object that a List did not show is not
// there: it takes more than a List to stop a broker.
func (l *Log) confirmGone(ctx context.Context, key string) error {
	ctx, cancel := timeout(ctx, 0)
	defer cancel()
	_, err := l.store.Get(ctx, key, 0, 1)
	switch {
	case err == nil:
		return fmt.Errorf("the store's List leaves out %s, which is there", key)
	case errors.Is(err, objstore.ErrNotFound):
		return nil
	}
	return fmt.Errorf("get %s: %w", key, err)
}

// firstGone returns the first of the slots from first to last that does not
// stand in the bucket, or the one after last.
func firstGone(ctx context.Context, store objstore.Store, first, last Seq) (Seq, error) {
	want := first
	for want <= last {
		page, err := listOnce(ctx, store, LogPrefix, afterKey(LogPrefix, want))
		if err != nil {
			return 0, fmt.Errorf("list %s: %w", LogPrefix, err)
		}
		for _, key := range page.Keys {
			if s, ok := ParseSeqKey(LogPrefix, key); ok && want <= last {
				if s != want {
					return want, nil
				}
				want++
			}
		}
		if !page.More {
			break
		}
	}
	return want, nil
}
