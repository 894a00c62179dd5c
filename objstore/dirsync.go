package objstore

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"
)

// clockStepMax is how far this machine's wall clock may step back. A link changes the file's inode. So if the
// inode last changed more than clockStepMax before an fsync of the directory began, the link was made before
// that fsync, even if the clock stepped back in between.
const clockStepMax = time.Hour

// stampMax bounds the time between two ticks of the clock from which file systems take the times of changes.
const stampMax = 2 * time.Second

// stopReason is what went wrong, such as an fsync that failed.
type stopReason struct {
	what string
	err  error
	todo string
}

func (r *stopReason) Error() string {
	return fmt.Sprintf("%v: %s: %v: %s", ErrStopped, r.what, r.err, r.todo)
}

// Unwrap makes errors.Is find ErrStopped and the cause.
func (r *stopReason) Unwrap() []error { return []error{ErrStopped, r.err} }

// syncFile fsyncs f. If the fsync fails, syncFile stops the store. It returns an error if the store has
// stopped.
func (d *Dir) syncFile(f *os.File) error {
	if err := d.fsync(f); err != nil {
		d.stopped.CompareAndSwap(nil, &stopReason{
			what: "fsync of " + f.Name(), err: err,
			todo: "what was being written may or may not be on the disk; check the disk and the system's log, then restart",
		})
	}
	if reason := d.stopped.Load(); reason != nil {
		return reason
	}
	return nil
}

// directory is a directory of the store. The directory's name in its parent is durable. Callers share the
// fsyncs of a directory: at most one fsync runs at a time, and all callers that come while it runs share the
// next fsync.
type directory struct {
	path  string
	baton chan struct{} // capacity 1: the caller that put a value in it may fsync

	mu     sync.Mutex
	queued *syncRound  // the next fsync, which has not begun; nil if no caller waits for one
	synced time.Time   // wall-clock time at which the last successful fsync began
	before fs.FileInfo // the directory's file info from just before the last successful fsync, for the method unchanged
}

// syncRound is one fsync. Only the holder of the directory's baton may access the fields.
type syncRound struct {
	done bool
	err  error
}

// openDirectory returns the directory at dirPath. The first call for a directory fsyncs the parent
// directory: another process may have created the directory, and may not have fsynced the parent yet.
func (d *Dir) openDirectory(ctx context.Context, dirPath string) (*directory, error) {
	if dir := d.lookup(dirPath); dir != nil {
		return dir, nil
	}
	if dirPath != "." {
		if _, err := d.root.Stat(dirPath); err != nil {
			return nil, err
		}
		parent, err := d.openDirectory(ctx, path.Dir(dirPath))
		if err != nil {
			return nil, err
		}
		if err := d.sync(ctx, parent); err != nil {
			return nil, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if dir := d.dirs[dirPath]; dir != nil {
		return dir, nil
	}
	dir := &directory{path: dirPath, baton: make(chan struct{}, 1)}
	d.dirs[dirPath] = dir
	return dir, nil
}

func (d *Dir) lookup(dirPath string) *directory {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dirs[dirPath]
}

// makeDirectory is like openDirectory, but creates a missing directory. It does not do so for a directory
// that this process has used before: if that directory is gone, the objects in it are lost too.
func (d *Dir) makeDirectory(ctx context.Context, dirPath string) (*directory, error) {
	if dir := d.lookup(dirPath); dir != nil {
		return dir, nil
	}
	if err := d.root.MkdirAll(dirPath, dirMode); err != nil {
		return nil, err
	}
	return d.openDirectory(ctx, dirPath)
}

// sync waits for an fsync of dir that begins after the call. It returns an error if the fsync failed or could
// not begin, or if ctx has ended.
func (d *Dir) sync(ctx context.Context, dir *directory) error {
	dir.mu.Lock()
	if dir.queued == nil {
		dir.queued = new(syncRound)
	}
	round := dir.queued
	dir.mu.Unlock()

	select {
	case dir.baton <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err() // the round's other callers can still run the fsync
	}
	defer func() { <-dir.baton }()
	if round.done {
		return round.err
	}
	dir.mu.Lock()
	dir.queued = nil // a caller that comes from now on waits for the next fsync: its link may be too late for this one
	dir.mu.Unlock()
	begun := d.time()
	before, err := d.syncDirectory(dir.path)
	round.done, round.err = true, err
	if err == nil {
		dir.mu.Lock()
		dir.synced, dir.before = begun, before
		dir.mu.Unlock()
	}
	return round.err
}

// syncDirectory fsyncs a directory. It returns the directory's file info from before the fsync, so
// that unchanged can tell whether the directory has changed since.
func (d *Dir) syncDirectory(dirPath string) (before fs.FileInfo, err error) {
	// If Open or Stat fails, the caller gets an error and treats no name as durable, so the store need not
	// stop. Such a failure may be temporary, for example if too many files are open.
	f, err := d.root.Open(dirPath)
	if err != nil {
		return nil, fmt.Errorf("can't fsync %s: %w", dirPath, err)
	}
	defer func() { _ = f.Close() }() // the fsync has reported every error
	if before, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("can't fsync %s: %w", dirPath, err)
	}
	return before, d.syncFile(f)
}

// confirm makes sure that key's name in its directory is durable. info is the file info of key's file.
// confirm needs no fsync if this process has made key durable before, if the name is older than the last
// fsync of the directory, or if the directory has not changed since that fsync.
func (d *Dir) confirm(ctx context.Context, key string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return d.notRegular(key, info.Mode())
	}
	if d.durable.has(key, info.ModTime()) {
		return nil
	}
	dir, err := d.openDirectory(ctx, path.Dir(key))
	if err != nil {
		return err
	}
	if dir.covers(info) || d.unchanged(dir) {
		return nil
	}
	if err := d.sync(ctx, dir); err != nil {
		return err
	}
	d.durable.add(key, info.ModTime())
	return nil
}

// covers reports whether the last fsync of dir certainly began after the file that info describes got its
// name. It compares the inode's change time, which link(2) sets and programs can't set themselves, with the
// time of that fsync.
func (dir *directory) covers(info fs.FileInfo) bool {
	changed, ok := changeTime(info)
	if !ok {
		return false
	}
	dir.mu.Lock()
	defer dir.mu.Unlock()
	return changed.Before(dir.synced.Add(-clockStepMax))
}

// unchanged reports whether the directory's last change is older than the last fsync of the directory. Then
// all names in the directory are durable, even the newest. So a broker that starts and reads many new
// objects needs only one fsync for a directory.
func (d *Dir) unchanged(dir *directory) bool {
	dir.mu.Lock()
	synced, before := dir.synced, dir.before
	dir.mu.Unlock()
	if before == nil {
		return false
	}
	now, err := d.lstat(dir.path)
	if err != nil || !os.SameFile(before, now) {
		return false
	}
	changed, ok := changeTime(now)
	last, _ := changeTime(before)
	return ok && changed.Equal(last) && isUnique(last, synced)
}

// isUnique reports whether the next change of a directory certainly gets another change time than changed.
// The directory last changed at that time, and an fsync of the directory began at synced. So changed must be
// more than stampMax before synced. Also, changed must not be a whole number of microseconds: such a time may
// come from a file system with coarse times, where a change after the clock has stepped back can get the same
// time.
func isUnique(changed, synced time.Time) bool {
	return changed.Before(synced.Add(-stampMax)) && changed.Nanosecond()%1000 != 0
}

// durableNames remembers some names that were fsynced. A name that was forgotten costs one more fsync. There
// are two generations of up to durableNamesMax names, about 3 MB. When the younger generation is full, the
// older generation is dropped.
type durableNames struct {
	mu           sync.Mutex
	young, older map[string]int64 // the file's modification time, nanoseconds since 1970
}

const durableNamesMax = 8192

// add stores a name with the modification time of the file. If another process deletes the object and creates
// it again, the new file has another modification time, so the new name does not pass for the old one.
func (n *durableNames) add(key string, modTime time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.young) >= durableNamesMax || n.young == nil {
		n.young, n.older = make(map[string]int64), n.young
	}
	n.young[key] = modTime.UnixNano()
}

func (n *durableNames) has(key string, modTime time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, ok := n.young[key]
	if !ok {
		at, ok = n.older[key]
	}
	return ok && at == modTime.UnixNano()
}

func (n *durableNames) remove(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.young, key)
	delete(n.older, key)
}
