package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// List implements [Store]. A file system returns the names of a directory in no order. So for every page,
// List reads all names in the directories that can have keys with the prefix: about half a second for a
// million names. A cache of names would be cheaper, but would miss objects that other processes create. A
// caller that walks a large directory should ask for large pages, which take no longer. A caller that wants
// to know whether certain objects exist should use [Dir.FirstMissing].
func (d *Dir) List(ctx context.Context, prefix, after string, limit int) (Page, error) {
	if reason := d.stopped.Load(); reason != nil {
		return Page{}, fmt.Errorf("list %s: %w", prefix, reason)
	}
	if err := CheckPrefix(prefix); err != nil {
		return Page{}, fmt.Errorf("list: %w", err)
	}
	limit = pageLimit(limit)
	page := Page{Time: d.time()} // taken before the directories are read: the time must not be later than the list
	walk := listing{dir: d, prefix: prefix, after: after, keep: limit + 1}
	// The part of the prefix before its last slash names a directory.
	if err := walk.descend(ctx, prefix[:strings.LastIndexByte(prefix, '/')+1]); err != nil {
		return Page{}, fmt.Errorf("list %s: %w", prefix, err)
	}
	if err := d.checkPlace(); err != nil {
		return Page{}, fmt.Errorf("list %s: %w", prefix, err)
	}
	page.Keys = walk.smallest()
	if len(page.Keys) > limit {
		page.Keys, page.More = page.Keys[:limit], true
	}
	return page, nil
}

// listing selects the smallest keys that begin with prefix and are larger than after, while it reads
// directories in the file system's order.
type listing struct {
	dir           *Dir
	prefix, after string
	keep          int // how many keys to select
	// bound is "" until the listing has found keep keys. From then on, no key above bound can be among the
	// keep smallest keys.
	bound string
	keys  []string
}

// descend collects the keys below the directory base, which is "" or ends with a slash.
func (l *listing) descend(ctx context.Context, base string) error {
	last, ok := strings.CutPrefix(l.after, base)
	return l.dir.readNames(ctx, base, func(entry fs.DirEntry) error {
		if ok && entry.Name() <= last && !entry.IsDir() {
			return nil // visit would skip this file too, but more slowly: usually, most files come before l.after
		}
		return l.visit(ctx, base+entry.Name(), entry)
	})
}

// readNames calls visit with each entry of a directory. If the directory does not exist, it
// returns nil.
func (d *Dir) readNames(ctx context.Context, base string, visit func(fs.DirEntry) error) error {
	dirPath := path.Clean(base)
	var f *os.File
	_, err := d.checkWay(dirPath)
	if err == nil {
		f, err = d.openNames(dirPath)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := f.ReadDir(4096)
		for _, entry := range entries {
			if err := visit(entry); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Walk implements [Walker].
func (d *Dir) Walk(ctx context.Context, visit func(path string, mode fs.FileMode)) error {
	if reason := d.stopped.Load(); reason != nil {
		return fmt.Errorf("walk: %w", reason)
	}
	err := d.walk(ctx, "", visit)
	if err == nil {
		err = d.checkPlace()
	}
	if err != nil {
		return fmt.Errorf("walk: %w", err)
	}
	return nil
}

// walk visits everything below base, which is "" or ends with a slash.
func (d *Dir) walk(ctx context.Context, base string, visit func(path string, mode fs.FileMode)) error {
	return d.readNames(ctx, base, func(entry fs.DirEntry) error {
		key := base + entry.Name()
		if key == tempDir && !entry.IsDir() {
			visit(key, entry.Type())
		}
		if !isKey(key) {
			return nil
		}
		visit(key, entry.Type())
		if entry.IsDir() {
			return d.walk(ctx, key+"/", visit)
		}
		return nil
	})
}

// Path implements [Walker].
func (d *Dir) Path(key string) string { return filepath.Join(d.place.path, key) }

func (l *listing) visit(ctx context.Context, key string, entry fs.DirEntry) error {
	if !isKey(key) {
		return nil // temporary files, and names that are not valid keys
	}
	if entry.IsDir() {
		sub := key + "/"
		// If passed is true, all keys below sub are smaller than l.after, so List need not read that
		// directory.
		passed := sub < l.after && !strings.HasPrefix(l.after, sub)
		if !strings.HasPrefix(sub, l.prefix) || passed || l.bound != "" && sub > l.bound {
			return nil
		}
		return l.descend(ctx, sub)
	}
	// A file that is not regular is listed too: a Get of its key returns an error that says what the file is.
	if !strings.HasPrefix(key, l.prefix) || key <= l.after || l.bound != "" && key > l.bound {
		return nil
	}
	l.keys = append(l.keys, key)
	if len(l.keys) >= 2*l.keep+4096 {
		l.smallest()
	}
	return nil
}

// smallest sorts the keys, and drops all but the first l.keep of them.
func (l *listing) smallest() []string {
	slices.Sort(l.keys)
	if len(l.keys) >= l.keep {
		l.keys = l.keys[:l.keep]
		l.bound = l.keys[l.keep-1]
	}
	return l.keys
}
