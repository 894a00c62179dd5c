package objstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// openObject opens the file under key. It refuses anything but a regular file, even a symbolic link to a
// regular file. Create does not accept such a link as an existing object either. openObject does not wait
// for a writer if key is a FIFO.
func (d *Dir) openObject(key string) (*os.File, fs.FileInfo, error) {
	dir, name, err := d.find(key)
	if err != nil {
		return nil, nil, err
	}
	info, err := dir.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = d.notRegular(key, info.Mode())
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err = f.Stat()
	if err == nil && !info.Mode().IsRegular() { // the file was replaced meanwhile
		err = d.notRegular(key, info.Mode())
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, err
	}
	return f, info, nil
}

// lstat returns the file info of whatever is under key; it does not follow a symbolic link.
func (d *Dir) lstat(key string) (fs.FileInfo, error) {
	dir, name, err := d.find(key)
	if err != nil {
		return nil, err
	}
	return dir.Lstat(name)
}

// misfit is the error for a path that has a file of the wrong kind.
type misfit struct {
	path, kind string
	must       string // the kind that must be there
}

func (e *misfit) Error() string {
	return fmt.Sprintf("%s is %s, and must be %s", e.path, e.kind, e.must)
}

func (*misfit) Is(target error) bool { return target == ErrNotRegular }

// notRegular returns the error for a key whose file is not a regular one.
func (d *Dir) notRegular(key string, mode fs.FileMode) error {
	return &misfit{d.Path(key), KindOf(mode), "a regular file"}
}

// checkWay returns the file info of the directory at dirPath. It returns an error if dirPath or one of its
// parents is not a directory. A symbolic link to a directory is not a directory.
func (d *Dir) checkWay(dirPath string) (fs.FileInfo, error) {
	if dirPath == "." {
		return d.place.info, nil
	}
	if _, err := d.checkWay(path.Dir(dirPath)); err != nil {
		return nil, err
	}
	info, err := d.root.Lstat(dirPath)
	if err == nil && !info.IsDir() {
		err = &misfit{d.Path(dirPath), KindOf(info.Mode()), "a directory"}
	}
	return info, err
}

// heldMax is the most directories that a store keeps open.
const heldMax = 16

// heldDirectory is an open directory below the root.
type heldDirectory struct {
	root *os.Root
	info fs.FileInfo
}

// find returns an open directory, and the path of key's object relative to that directory. Usually this is
// the directory that contains the object. find opens that directory if it is not open yet, and keeps it open:
// to open it for every request would take longer than to check that it is still at its path. If heldMax other
// directories are open, find returns the root instead.
func (d *Dir) find(key string) (*os.Root, string, error) {
	dirPath := path.Dir(key)
	info, err := d.checkWay(dirPath)
	if err != nil || dirPath == "." {
		return d.root, key, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	held, ok := d.held[dirPath]
	if ok && os.SameFile(held.info, info) {
		return held.root, path.Base(key), nil
	}
	if !ok && len(d.held) >= heldMax {
		return d.root, key, nil
	}
	// If a FIFO has just replaced the directory, OpenRoot with "/." fails and does not wait for a writer.
	root, err := d.root.OpenRoot(dirPath + "/.")
	if err != nil {
		return nil, "", err
	}
	if info, err = root.Stat("."); err != nil {
		return nil, "", errors.Join(err, root.Close())
	}
	// If this assignment replaces an open directory, find can't close the old one, since other requests may
	// still use it. The garbage collector closes it.
	d.held[dirPath] = heldDirectory{root, info}
	return root, path.Base(key), nil
}

// KindOf returns the kind of a file in words, such as "a directory".
func KindOf(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a file"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}
