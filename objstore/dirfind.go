package objstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// FirstMissing implements [Finder]. It looks up each name, and does not read the whole directory. Like List,
// FirstMissing does not wait until names are durable.
func (d *Dir) FirstMissing(ctx context.Context, keys []string) (int, error) {
	if reason := d.stopped.Load(); reason != nil {
		return 0, fmt.Errorf("find objects: %w", reason)
	}
	index := 0
	for ; index < len(keys); index++ {
		found, err := d.exists(ctx, keys[index])
		if err != nil {
			return 0, fmt.Errorf("find %s: %w", keys[index], err)
		}
		if !found {
			break
		}
	}
	if err := d.checkPlace(); err != nil {
		return 0, fmt.Errorf("find objects: %w", err)
	}
	return index, nil
}

func (d *Dir) exists(ctx context.Context, key string) (bool, error) {
	if err := begin(ctx, "find", key); err != nil {
		return false, err
	}
	info, err := d.lstat(key)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Mode().IsRegular(), err
}
