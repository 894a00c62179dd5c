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
	for left := listCheckMax; left > 0; {
		gone, err := firstGone(ctx, l.store, first, last)
		if err != nil || gone > last {
			return err
		}
		// A List may leave out an object that exists, so check with a Get.
		there, err := l.isThere(ctx, format.LogKey(gone))
		if there {
			first, left = gone+1, left-1
			continue
		}
		switch {
		case err == nil:
			err = objstore.ErrNotFound
		case !errors.Is(err, objstore.ErrNotRegular):
			return err
		}
		// Brokers may delete all slots that a checkpoint covers, but none behind it.
		covered, listErr := l.newestCheckpoint(ctx, gone)
		switch {
		case listErr != nil:
			return listErr
		case covered < gone:
			return fmt.Errorf("%w: this broker applied log slot %d, which is gone now, and no checkpoint covers it: %w", ErrRolledBack, gone, err)
		}
		first = covered + 1
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

// newestCheckpoint returns the slot of the newest checkpoint that covers a slot; 0 if no checkpoint covers it.
func (l *Log) newestCheckpoint(ctx context.Context, slot format.Seq) (newest format.Seq, err error) {
	for after, more := format.AfterKey(format.CheckpointPrefix, slot), true; more; {
		page, err := listOnce(ctx, l.store, format.CheckpointPrefix, after)
		if err != nil {
			return 0, err
		}
		for _, key := range page.Keys {
			if s, ok := format.ParseSeqKey(format.CheckpointPrefix, key); ok {
				newest = s
			}
			after = key
		}
		more = page.More && len(page.Keys) > 0
	}
	return newest, nil
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

// Confirm returns nil if the store has the log of this broker: its seb.json, and the commit that this broker has applied last.
// An error that wraps [ErrFork] or [ErrRolledBack] says that the store has another log. Any goroutine may call Confirm.
func (l *Log) Confirm(ctx context.Context) error {
	cluster, err := readCluster(ctx, l.store)
	if err != nil {
		return err
	}
	if cluster.ID != l.cluster.ID {
		return fmt.Errorf("%w: %s is of cluster %v, this broker's log is of cluster %v", ErrRolledBack, format.ClusterKey, cluster.ID, l.cluster.ID)
	}
	applied, tip := l.Position()
	start, _, err := l.readStart(ctx, applied, headRead)
	if err != nil {
		return err
	}
	c, _, err := l.readHead(ctx, applied, start)
	if err != nil {
		return err
	}
	if c.Hash != tip {
		return fmt.Errorf("%w: the commit in log slot %d has the hash %v, and this broker has applied one with the hash %v", ErrFork, applied, c.Hash, tip)
	}
	return nil
}
