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

// List implements [Store]. It reads all names in the directories that prefix
// leads to, for every page, since a directory has them in no order: about half a
// second for a million. Remembered names would be cheaper, and could miss what
// another process creates. So a caller that walks a large directory asks for
// large pages, which cost no more, and one that wants to know whether certain
// objects are there uses [Dir.FirstMissing].
func (d *Dir) List(ctx context.Context, prefix, after string, limit int) (Page, error) {
	if reason := d.stopped.Load(); reason != nil {
		return Page{}, fmt.Errorf("list %s: %w", prefix, reason)
	}
	if err := CheckPrefix(prefix); err != nil {
		return Page{}, fmt.Errorf("list: %w", err)
	}
	limit = pageLimit(limit)
	page := Page{Time: d.time()} // before the list is evaluated
	walk := listing{dir: d, prefix: prefix, after: after, keep: limit + 1}
	// Only the directory part of the prefix leads to a directory.
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

// listing selects the smallest keys beneath a prefix and after a key while it
// reads directories in whatever order the file system has them.
type listing struct {
	dir           *Dir
	prefix, after string
	keep          int // keys
	// bound, unless "", is a key that at least keep candidates do not exceed;
	// so what lies beyond it is not needed.
	bound string
	keys  []string
}

// descend collects the keys beneath base, which is "" or ends with a slash.
func (l *listing) descend(ctx context.Context, base string) error {
	return l.dir.readNames(ctx, base, func(entry fs.DirEntry) error {
		return l.visit(ctx, base+entry.Name(), entry)
	})
}

// readNames calls visit with what stands in a directory, and not at all if no
// directory is there.
func (d *Dir) readNames(ctx context.Context, base string, visit func(fs.DirEntry) error) error {
	dirPath := path.Clean(base)
	var f *os.File
	_, err := d.way(dirPath)
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

// walk visits what stands below base, which is "" or ends with a slash.
func (d *Dir) walk(ctx context.Context, base string, visit func(path string, mode fs.FileMode)) error {
	return d.readNames(ctx, base, func(entry fs.DirEntry) error {
		key := base + entry.Name()
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
		return nil // temporary files, and what no Create can have made
	}
	if entry.IsDir() {
		sub := key + "/"
		// Everything beneath sub sorts before after: skip it unread.
		passed := sub < l.after && !strings.HasPrefix(l.after, sub)
		if !strings.HasPrefix(sub, l.prefix) || passed || l.bound != "" && sub > l.bound {
			return nil
		}
		return l.descend(ctx, sub)
	}
	// What is no regular file takes a key too: its Get tells what it is.
	if !strings.HasPrefix(key, l.prefix) || key <= l.after || l.bound != "" && key > l.bound {
		return nil
	}
	l.keys = append(l.keys, key)
	if len(l.keys) >= 2*l.keep+4096 {
		l.smallest()
	}
	return nil
}

// smallest sorts the candidates and drops those beyond keep.
func (l *listing) smallest() []string {
	slices.Sort(l.keys)
	if len(l.keys) >= l.keep {
		l.keys = l.keys[:l.keep]
		l.bound = l.keys[l.keep-1]
	}
	return l.keys
}
