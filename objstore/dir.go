package objstore

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// tempDir is where bodies are written before they get their name. A key
	// can't begin with a dot, so no object is ever in it.
	tempDir = ".tmp"
	// tempAgeMax is after how long a temporary file must belong to a process
	// that died.
	tempAgeMax = 24 * time.Hour

	// The objects hold records, and what signs pushed ones: they are the
	// owner's, whatever the umask.
	dirMode  = 0o700
	fileMode = 0o600
)

// Dir is a store in a local directory: the object "log/1" is the file log/1
// beneath it. Any number of processes on this machine may share one.
//
// An object's name appears by link(2), which fails if the name is taken, after
// its bytes were fsynced. A name that appeared is lost in a crash until its
// directory is fsynced, and another process may see it before that; so "created",
// the store answers "exists" and "found" only after the directory was fsynced since
// the name appeared, whichever process linked it. List does not wait for that:
// a client that acts on a name Gets the object first.
//
// After an fsync that fails it is unknown what is on the disk, and trying again
// may answer success for pages that the kernel has dropped. So the store stops:
// that request and all later ones answer [ErrStopped].
//
// What is no directory on the way to a key, such as a file or a symbolic link named
// "log", is refused as [ErrNotRegular]: objects may be hidden behind it.
//
// A directory that is moved away or replaced while it is open stops the store
// too, before it answers from the directory at the wrong place.
//
// The store's clock is this machine's wall clock, which must not step back by
// more than an hour. Network file systems are as good as their link(2), fsync
// and clocks; use them only if you know these are.
type Dir struct {
	root  *os.Root
	place place
	// fsync is (*os.File).Sync except in tests, which fail and count it.
	fsync func(*os.File) error
	now   func() time.Time

	readOnly   bool
	tempPrefix string
	tempCount  atomic.Uint64
	stopped    atomic.Pointer[stopReason]
	durable    durableNames

	mu   sync.Mutex
	dirs map[string]*directory    // by path beneath root; entries are never removed
	held map[string]heldDirectory // by path beneath root
}

// OpenDir opens the store in the directory at path and creates that if need
// be. Temporary files older than a day are removed.
func OpenDir(path string) (*Dir, error) {
	return openDir(path, (*os.File).Sync)
}

func openDir(dirPath string, fsync func(*os.File) error) (*Dir, error) {
	if runtime.GOOS == "windows" {
		return nil, fmt.Errorf("open store %s: a directory can't be fsynced on Windows, so records could be lost in a crash: use an S3 store", dirPath)
	}
	d := &Dir{
		fsync:      fsync,
		now:        time.Now,
		tempPrefix: tempDir + "/" + rand.Text() + "-",
		dirs:       make(map[string]*directory),
		held:       make(map[string]heldDirectory),
	}
	if err := d.openRoot(dirPath); err != nil {
		return nil, fmt.Errorf("open store %s: %w", dirPath, err)
	}
	if err := d.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", dirPath, err), d.root.Close())
	}
	return d, nil
}

// OpenDirReadOnly opens the store in an existing directory for reading: it writes
// nothing at all, refuses Create and Delete, and works on a read-only file system.
// What a Get finds need not outlast a crash, so a broker can't use it.
func OpenDirReadOnly(dirPath string) (*Dir, error) {
	d := &Dir{now: time.Now, readOnly: true, held: make(map[string]heldDirectory)}
	if err := d.pin(dirPath); err != nil {
		return nil, fmt.Errorf("open store %s: %w", dirPath, err)
	}
	return d, nil
}

// openRoot makes the directory and every one above it that was missing, fsyncs
// the parents of those, and opens it. The handle pins the directory: requests
// can't leave it.
func (d *Dir) openRoot(dirPath string) error {
	dirPath, err := filepath.Abs(dirPath)
	if err != nil {
		return err
	}
	if info, err := os.Stat(dirPath); err == nil && !info.IsDir() {
		return errors.New("it is a file: name a directory")
	}
	parent := filepath.Dir(dirPath)
	for ; ; parent = filepath.Dir(parent) {
		if _, err := os.Stat(parent); err == nil || parent == filepath.Dir(parent) {
			break
		}
	}
	if err := os.MkdirAll(dirPath, dirMode); err != nil {
		return err
	}
	// Also if nothing was missing: another process may have made the directory
	// a moment ago.
	for p := dirPath; p != parent && p != filepath.Dir(p); {
		p = filepath.Dir(p)
		f, err := os.Open(p)
		if errors.Is(err, fs.ErrPermission) {
			break // this process made no entry in it
		}
		if err != nil {
			return err
		}
		if err := errors.Join(d.fsync(f), f.Close()); err != nil {
			return fmt.Errorf("fsync %s: %w", p, err)
		}
	}
	return d.pin(dirPath)
}

// pin opens the directory, and remembers where it is.
func (d *Dir) pin(dirPath string) (err error) {
	if d.root, err = os.OpenRoot(dirPath); err != nil {
		return err
	}
	if d.place.path, err = filepath.Abs(dirPath); err == nil {
		d.place.info, err = d.root.Stat(".")
	}
	if err != nil {
		return errors.Join(err, d.root.Close())
	}
	return nil
}

// prepare removes what dead processes left and checks that the store can be
// written to.
func (d *Dir) prepare() error {
	if err := d.root.Mkdir(tempDir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, err := d.root.Lstat(tempDir); err != nil {
		return err
	} else if !info.IsDir() {
		return &misfit{d.Path(tempDir), KindOf(info.Mode()), "a directory"}
	}
	entries, err := fs.ReadDir(d.root.FS(), tempDir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || d.now().Sub(info.ModTime()) < tempAgeMax {
			continue // in use, or taken away meanwhile by its owner
		}
		if err := d.root.Remove(path.Join(tempDir, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	temp, err := d.writeTemp(nil)
	if err != nil {
		return fmt.Errorf("it can't be written to: %w", err)
	}
	return d.root.Remove(temp.name)
}

// Close closes the directory. Requests in progress may fail.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.root.Close()
	for _, held := range d.held {
		err = errors.Join(err, held.root.Close())
	}
	return err
}

// time is the store's clock. UTC drops the monotonic reading: comparing two of
// those would hide the hours a suspended machine slept.
func (d *Dir) time() time.Time { return d.now().UTC() }

// begin refuses what can't be served.
func (d *Dir) begin(ctx context.Context, verb Verb, key string) error {
	if reason := d.stopped.Load(); reason != nil {
		return fmt.Errorf("%s %s: %w", verb, key, reason)
	}
	if d.readOnly && verb != VerbGet {
		return fmt.Errorf("%s %s: the store was opened to be read", verb, key)
	}
	return begin(ctx, string(verb), key)
}

// Create implements [Store].
func (d *Dir) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	if err := d.begin(ctx, VerbCreate, key); err != nil {
		return time.Time{}, err
	}
	exists, err := d.create(ctx, key, parts)
	if err == nil {
		err = d.checkPlace()
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("create %s: %w", key, err)
	}
	at := d.time()
	if exists {
		return at, fmt.Errorf("create %s: %w", key, ErrExists)
	}
	return at, nil
}

func (d *Dir) create(ctx context.Context, key string, parts [][]byte) (exists bool, err error) {
	// Finding out first spares the loser of a race the writing.
	info, err := d.lstat(key)
	if err == nil {
		return true, d.confirm(ctx, key, info)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	dir, err := d.makeDirectory(ctx, path.Dir(key))
	if err != nil {
		return false, err
	}
	temp, err := d.writeTemp(parts)
	if err != nil {
		return false, err
	}
	// A temporary file that stays behind does no harm, and the next open
	// removes it, so the caller does not get this error.
	defer func() { _ = d.root.Remove(temp.name) }()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	err = d.root.Link(temp.name, key)
	if errors.Is(err, fs.ErrExist) {
		info, err := d.lstat(key)
		if err != nil {
			return false, err
		}
		return true, d.confirm(ctx, key, info)
	}
	if err != nil {
		return false, err
	}
	if err := d.sync(ctx, dir); err != nil {
		return false, err
	}
	d.durable.add(key, temp.modTime)
	return false, nil
}

// tempFile is a file whose bytes are on the disk, but not under its key.
type tempFile struct {
	name    string
	modTime time.Time
}

func (d *Dir) writeTemp(parts [][]byte) (tempFile, error) {
	name := d.tempPrefix + strconv.FormatUint(d.tempCount.Add(1), 10)
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return tempFile{}, err
	}
	modTime, err := d.fill(f, parts)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		// Without this, callers that try again would fill a full disk with
		// temporary files.
		return tempFile{}, errors.Join(err, d.root.Remove(name))
	}
	return tempFile{name: name, modTime: modTime}, nil
}

func (d *Dir) fill(f *os.File, parts [][]byte) (time.Time, error) {
	w := bufio.NewWriterSize(f, 16<<10) // gathers small parts; large ones bypass it
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return time.Time{}, err
		}
	}
	if err := w.Flush(); err != nil {
		return time.Time{}, err
	}
	if err := d.syncFile(f); err != nil {
		return time.Time{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// Get implements [Store].
func (d *Dir) Get(ctx context.Context, key string, off, n int64) (Object, error) {
	if err := d.begin(ctx, VerbGet, key); err != nil {
		return Object{}, err
	}
	if err := checkRange(key, off); err != nil {
		return Object{}, err
	}
	object, err := d.get(ctx, key, off, n)
	if moved := d.checkPlace(); moved != nil {
		err = moved
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Object{Time: d.time()}, fmt.Errorf("get %s: %w", key, ErrNotFound)
	case err != nil:
		return Object{}, fmt.Errorf("get %s: %w", key, err)
	}
	object.Time = d.time()
	return object, nil
}

func (d *Dir) get(ctx context.Context, key string, off, n int64) (Object, error) {
	f, info, err := d.openObject(key)
	if err != nil {
		return Object{}, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	if !d.readOnly {
		if err := d.confirm(ctx, key, info); err != nil {
			return Object{}, err
		}
	}
	from, end := clampRange(off, n, info.Size())
	body := make([]byte, end-from)
	if read, err := f.ReadAt(body, from); read < len(body) {
		return Object{}, fmt.Errorf("read %d bytes at %d, got %d: %w", len(body), from, read, err)
	}
	return Object{Body: body, Size: info.Size()}, nil
}

// Delete implements [Store]. It answers success only once the deletion would
// outlast a crash.
func (d *Dir) Delete(ctx context.Context, key string) (time.Time, error) {
	if err := d.begin(ctx, VerbDelete, key); err != nil {
		return time.Time{}, err
	}
	err := d.checkPlace() // before it is gone from where it was moved to
	if err == nil {
		err = d.delete(ctx, key)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, fmt.Errorf("delete %s: %w", key, err)
	}
	return d.time(), nil
}

func (d *Dir) delete(ctx context.Context, key string) error {
	if _, err := d.way(path.Dir(key)); err != nil {
		return err
	}
	dir, err := d.openDirectory(ctx, path.Dir(key))
	if err != nil {
		return err
	}
	d.durable.remove(key)
	// Remove would also take an empty directory.
	info, err := d.lstat(key)
	if err == nil && info.IsDir() {
		return d.notRegular(key, info.Mode())
	}
	if err := d.root.Remove(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Also if the name was gone: the process that removed it may not have fsynced yet.
	return d.sync(ctx, dir)
}
