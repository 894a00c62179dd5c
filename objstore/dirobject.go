package objstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// openObject opens the file under key. It refuses anything but a regular file, even a
// symbolic link to one, just as Create does not accept a link as an existing
// object. It does not wait for a writer if key is a FIFO.
func (d *Dir) openObject(key string) (*os.File, fs.FileInfo, error) {
	dir, err := d.way(path.Dir(key))
	if err != nil {
		return nil, nil, err
	}
	info, err := dir.Lstat(path.Base(key))
	if err == nil && !info.Mode().IsRegular() {
		err = d.notRegular(key, info.Mode())
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := dir.OpenFile(path.Base(key), os.O_RDONLY|syscall.O_NONBLOCK, 0)
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

// lstat describes what stands under key.
func (d *Dir) lstat(key string) (fs.FileInfo, error) {
	dir, err := d.way(path.Dir(key))
	if err != nil {
		return nil, err
	}
	return dir.Lstat(path.Base(key))
}

// misfit is the error of a path where a file of another kind must be.
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

// way returns the directory at dirPath. It refuses whatever is not a directory there or on
// the way there, also a link to a directory. The directory stays open, so that the next
// request need only find that it still stands there.
func (d *Dir) way(dirPath string) (*os.Root, error) {
	if dirPath == "." {
		return d.root, nil
	}
	parent, err := d.way(path.Dir(dirPath))
	if err != nil {
		return nil, err
	}
	name := path.Base(dirPath)
	info, err := parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &misfit{d.Path(dirPath), KindOf(info.Mode()), "a directory"}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if held, ok := d.held[dirPath]; ok && os.SameFile(held.info, info) {
		return held.root, nil
	}
	// With "/." it does not wait for a writer, should a FIFO stand there by now.
	root, err := parent.OpenRoot(name + "/.")
	if err != nil {
		return nil, err
	}
	if info, err = root.Stat("."); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	// Requests may still use the directory that stood there before: when they have
	// ended, the garbage collector closes it.
	d.held[dirPath] = heldDirectory{root, info}
	return root, nil
}

// heldDirectory is an open directory below the root, and its inode.
type heldDirectory struct {
	root *os.Root
	info fs.FileInfo
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
