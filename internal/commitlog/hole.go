package commitlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
)

// listCheckMax bounds how many slots FindHole checks with a Get because a List left them out.
const listCheckMax = 5

// FindHole returns an error that wraps [ErrRolledBack] if one of the applied slots from first to
// last is gone, and no checkpoint covers that slot. Appends don't notice such a rollback of the
// bucket: they create the next slot, which is free whether or not earlier slots are gone. Any
// goroutine may call FindHole.
func (l *Log) FindHole(ctx context.Context, first, last format.Seq) error {
	for range listCheckMax {
		gone, err := firstGone(ctx, l.store, first, last)
		if err != nil || gone > last {
			return err
		}
		// A List may leave out an object that exists, so check with a Get.
		there, err := l.isThere(ctx, format.LogKey(gone))
		if errors.Is(err, objstore.ErrNotRegular) {
			return l.deletedBehindCheckpoint(ctx, gone, err)
		}
		if err != nil {
			return err
		}
		if !there {
			return l.deletedBehindCheckpoint(ctx, gone, objstore.ErrNotFound)
		}
		first = gone + 1
	}
	return fmt.Errorf("a List of %s leaves out objects that exist, such as slot %d", format.LogPrefix, first-1)
}

func (l *Log) isThere(ctx context.Context, key string) (bool, error) {
	ctx, cancel := timeout(ctx, 0)
	defer cancel()
	_, err := l.store.Get(ctx, key, 0, 1)
	if err != nil && !errors.Is(err, objstore.ErrNotFound) {
		return false, err
	}
	return err == nil, nil
}

// deletedBehindCheckpoint returns nil if a checkpoint covers a slot that a Get did not find: brokers may
// delete such a slot. Otherwise it returns an error that wraps [ErrRolledBack] and got, the error of the
// Get.
func (l *Log) deletedBehindCheckpoint(ctx context.Context, gone format.Seq, got error) error {
	page, err := listOnce(ctx, l.store, format.CheckpointPrefix, format.AfterKey(format.CheckpointPrefix, gone))
	if err != nil {
		return err
	}
	if len(page.Keys) > 0 {
		return nil
	}
	return fmt.Errorf("%w: this broker applied log slot %d, which is gone now, and no checkpoint covers it: %w", ErrRolledBack, gone, got)
}

// firstGone returns the first of the slots from first to last that the store does not find or list,
// or last+1 if there is no such slot.
func firstGone(ctx context.Context, store objstore.Store, first, last format.Seq) (format.Seq, error) {
	if finder, ok := store.(objstore.Finder); ok {
		return firstNotFound(ctx, finder, first, last)
	}
	return firstNotListed(ctx, store, first, last)
}

// firstNotFound does what firstGone does, for a store that can look up many keys at once.
func firstNotFound(ctx context.Context, store objstore.Finder, first, last format.Seq) (format.Seq, error) {
	for first <= last {
		keys := make([]string, min(last-first+1, listPageKeys))
		for i := range keys {
			keys[i] = format.LogKey(first + format.Seq(i))
		}
		found, err := findOnce(ctx, store, keys)
		if err != nil {
			return 0, fmt.Errorf("find slots from %s on: %w", keys[0], err)
		}
		first += format.Seq(found)
		if found < len(keys) {
			break
		}
	}
	return first, nil
}

func findOnce(ctx context.Context, store objstore.Finder, keys []string) (int, error) {
	ctx, cancel := timeout(ctx, 0)
	defer cancel()
	return store.FirstMissing(ctx, keys)
}

// firstNotListed does what firstGone does, for a store that can only list.
func firstNotListed(ctx context.Context, store objstore.Store, first, last format.Seq) (format.Seq, error) {
	want, after := first, format.AfterKey(format.LogPrefix, first)
	for want <= last {
		page, err := listOnce(ctx, store, format.LogPrefix, after)
		if err != nil {
			return 0, err
		}
		for _, key := range page.Keys {
			if s, ok := format.ParseSeqKey(format.LogPrefix, key); ok && want <= last {
				if s != want {
					return want, nil
				}
				want++
			}
			after = key
		}
		if !page.More {
			break
		}
	}
	return want, nil
}
