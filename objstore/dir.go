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
	"syscall"
	"time"
)

const (
	// tempDir is the directory in which the store writes an object's bytes before it links the file to the
	// key. A key can't begin with a dot, so no object is ever in tempDir.
	tempDir = ".tmp"
	// tempAgeMax is the age from which OpenDir removes a temporary file: the process that made the file must be
	// dead.
	tempAgeMax = 24 * time.Hour

	// Objects hold records, and secrets that sign pushes. So only the files' owner may access them, whatever
	// the umask.
	dirMode  = 0o700
	fileMode = 0o600
)

// Dir is a store in a local directory: the object "log/1" is the file log/1
// in it. Any number of processes on this machine may share a directory.
//
// Create fsyncs an object's bytes in a temporary file, then links it to its key with link(2), which fails if
// the name exists. A crash can undo the link until the directory is fsynced, but other processes see the name
// before that fsync. So the store answers "created", "exists" and "found" only if the directory was fsynced
// after the link, whichever process made the link. List does not wait for the fsync: a client that relies on
// a listed name must Get the object first.
//
// After a failed fsync it is unknown what is on the disk, and another fsync may succeed although the kernel
// has dropped pages. So the store stops: the request whose fsync failed and all later requests return
// [ErrStopped].
//
// If part of a key's path is not a directory, for example because "log" is a file or a symbolic link,
// requests return [ErrNotRegular], and not [ErrNotFound]: the objects below that part may exist somewhere
// else.
//
// The store also stops if the directory is moved away or replaced while the store is open. It answers no
// request from a directory that was moved.
//
// The store's clock is this machine's wall clock, which must not step back by
// more than an hour. Use a network file system only if you know that its link(2), fsync
// and clocks work as on a local one.
type Dir struct {
	root  *os.Root
	temp  *os.Root // at tempDir; nil if the store is for reading only
	place place
	// fsync is (*os.File).Sync, except in tests, which count calls or make them fail.
	fsync func(*os.File) error
	now   func() time.Time

	readOnly   bool
	tempPrefix string
	tempCount  atomic.Uint64
	stopped    atomic.Pointer[stopReason]
	durable    durableNames

	mu   sync.Mutex
	dirs map[string]*directory    // by path beneath root; entries are never removed
	held map[string]heldDirectory // by path beneath root; heldMax at most
}

// OpenDir opens the store in the directory at path, and creates the directory if it is
// missing. It removes temporary files older than a day.
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
		tempPrefix: rand.Text() + "-",
		dirs:       make(map[string]*directory),
		held:       make(map[string]heldDirectory),
	}
	if err := d.openRoot(dirPath); err != nil {
		return nil, fmt.Errorf("open store %s: %w", dirPath, err)
	}
	if err := d.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", dirPath, err), d.Close())
	}
	return d, nil
}

// OpenDirReadOnly opens the store in an existing directory for reading. The store writes nothing, refuses
// Create and Delete, and works on a read-only file system. A Get may return an object that a crash could
// still remove, so a broker can't use the store.
func OpenDirReadOnly(dirPath string) (*Dir, error) {
	d := &Dir{now: time.Now, readOnly: true, held: make(map[string]heldDirectory)}
	if err := d.pin(dirPath); err != nil {
		return nil, fmt.Errorf("open store %s: %w", dirPath, err)
	}
	return d, nil
}

// mustBeDirectory returns an error if something other than a directory is at path.
func mustBeDirectory(path string) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return fmt.Errorf("it is %s: name a directory", KindOf(info.Mode()))
	}
	return nil
}

// openRoot creates the directory and its missing parents, fsyncs the directories that got new entries, and
// opens the directory. Requests use the open handle, which refuses paths to files outside of the directory.
func (d *Dir) openRoot(dirPath string) error {
	dirPath, err := filepath.Abs(dirPath)
	if err != nil {
		return err
	}
	if err := mustBeDirectory(dirPath); err != nil {
		return err
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
	// The loop runs even if no directory was missing: another process may have created the directory just
	// before, and may not have fsynced the parent yet.
	for p := dirPath; p != parent && p != filepath.Dir(p); {
		p = filepath.Dir(p)
		f, err := os.Open(p)
		if errors.Is(err, fs.ErrPermission) {
			break // this process can't have created an entry in p
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

// pin opens the directory, and stores its path and inode for checkPlace.
func (d *Dir) pin(dirPath string) (err error) {
	if err := mustBeDirectory(dirPath); err != nil { // to open a FIFO would wait for its writer
		return err
	}
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

// prepare removes temporary files of dead processes, and checks that the store can be
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
	var err error
	if d.temp, err = d.root.OpenRoot(tempDir); err != nil {
		return err
	}
	entries, err := fs.ReadDir(d.temp.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || d.now().Sub(info.ModTime()) < tempAgeMax {
			continue // the file is so young that it may be in use, or its process has just removed it
		}
		if err := d.temp.Remove(entry.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	temp, err := d.writeTemp(nil)
	if err != nil {
		return fmt.Errorf("it can't be written to: %w", err)
	}
	return d.temp.Remove(temp.name)
}

// Close closes the directory. Requests in progress may fail.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.root.Close()
	if d.temp != nil {
		err = errors.Join(err, d.temp.Close())
	}
	for _, held := range d.held {
		err = errors.Join(err, held.root.Close())
	}
	return err
}

// time returns the time of the store's clock. UTC drops the monotonic reading: the difference between two
// times with such readings would leave out the hours for which the machine was suspended.
func (d *Dir) time() time.Time { return d.now().UTC() }

// begin returns an error if ctx has ended, or if the store has stopped, can't serve verb, or does not allow
// key.
func (d *Dir) begin(ctx context.Context, verb Verb, key string) error {
	if reason := d.stopped.Load(); reason != nil {
		return fmt.Errorf("%s %s: %w", verb, key, reason)
	}
	if d.readOnly && verb != VerbGet {
		return fmt.Errorf("%s %s: the store was opened for reading only", verb, key)
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
	// If the key exists, this check saves the work of writing the bytes.
	info, err := d.lstat(key)
	if err == nil {
		return true, d.confirm(ctx, key, info)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	dir, err := d.makeDirectory(ctx, path.Dir(key))
	if err != nil {
		return false, d.full(err)
	}
	temp, err := d.writeTemp(parts)
	if err != nil {
		return false, d.full(err)
	}
	// The error is ignored: a temporary file that stays does no harm, and a later OpenDir
	// removes it.
	defer func() { _ = d.temp.Remove(temp.name) }()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	err = d.root.Link(tempDir+"/"+temp.name, key)
	if errors.Is(err, fs.ErrExist) {
		info, err := d.lstat(key)
		if err != nil {
			return false, err
		}
		return true, d.confirm(ctx, key, info)
	}
	if err != nil {
		return false, d.full(err)
	}
	if err := d.sync(ctx, dir); err != nil {
		return false, err
	}
	d.durable.add(key, temp.modTime)
	return false, nil
}

// full adds [ErrFull] to err if err says that the disk has no room, or that the quota of the user is used up.
// The caller got err before it linked a file to the key, so there is certainly no object. If the store has
// stopped, err stays as it is: the store takes no object even if there is room again.
func (d *Dir) full(err error) error {
	if errors.Is(err, ErrStopped) {
		return err
	}
	f := &Failure{Hint: "make room on the disk of " + d.place.path, Full: true, Err: fmt.Errorf("%w: %w", ErrFull, err)}
	switch {
	case errors.Is(err, syscall.ENOSPC):
		f.Detail = "no space left on device"
	case errors.Is(err, syscall.EDQUOT):
		f.Detail, f.Hint = "the disk quota of this user is used up", "raise the quota, or make room in "+d.place.path
	default:
		return err
	}
	return f
}

// tempFile is a file whose bytes are on the disk, but which is not linked to its key yet.
type tempFile struct {
	name    string // in tempDir
	modTime time.Time
}

func (d *Dir) writeTemp(parts [][]byte) (tempFile, error) {
	name := d.tempPrefix + strconv.FormatUint(d.tempCount.Add(1), 10)
	f, err := d.temp.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return tempFile{}, err
	}
	modTime, err := d.fill(f, parts)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		// If the file stayed, callers that retry on a full disk would leave more and more temporary
		// files.
		return tempFile{}, errors.Join(err, d.temp.Remove(name))
	}
	return tempFile{name: name, modTime: modTime}, nil
}

// partWriters buffer small parts; large ones bypass the buffer.
var partWriters = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 16<<10) }}

func (d *Dir) fill(f *os.File, parts [][]byte) (time.Time, error) {
	w := partWriters.Get().(*bufio.Writer)
	defer partWriters.Put(w)
	defer w.Reset(nil) // a pooled writer keeps no file
	w.Reset(f)
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
	readAhead(f, from, end-from)
	if read, err := f.ReadAt(body, from); read < len(body) {
		return Object{}, fmt.Errorf("read %d bytes at offset %d, got only %d: %w", len(body), from, read, err)
	}
	return Object{Body: body, Size: info.Size()}, nil
}

// Delete implements [Store]. It returns nil only once a crash can no longer undo the
// deletion.
func (d *Dir) Delete(ctx context.Context, key string) (time.Time, error) {
	if err := d.begin(ctx, VerbDelete, key); err != nil {
		return time.Time{}, err
	}
	err := d.checkPlace() // first, so that nothing is deleted from a directory that was moved
	if err == nil {
		err = d.delete(ctx, key)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, fmt.Errorf("delete %s: %w", key, err)
	}
	return d.time(), nil
}

func (d *Dir) delete(ctx context.Context, key string) error {
	if _, err := d.checkWay(path.Dir(key)); err != nil {
		return err
	}
	dir, err := d.openDirectory(ctx, path.Dir(key))
	if err != nil {
		return err
	}
	d.durable.remove(key)
	// Remove would also remove an empty directory.
	info, err := d.lstat(key)
	if err == nil && info.IsDir() {
		return d.notRegular(key, info.Mode())
	}
	if err := d.root.Remove(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// The fsync is needed even if the name did not exist: the process that removed the name may not have
	// fsynced the directory yet.
	return d.sync(ctx, dir)
}
