package objstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// openObject opens the file under key. It refuses whatever is not a regular
// file, also a symbolic link to one, which Create would refuse to take for an
// object. It never waits: opening a FIFO would otherwise wait for a writer.
func (d *Dir) openObject(key string) (*os.File, fs.FileInfo, error) {
	info, err := d.root.Lstat(key)
	if err == nil && !info.Mode().IsRegular() {
		err = d.notRegular(key, info.Mode())
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := d.root.OpenFile(key, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err = f.Stat()
	if err == nil && !info.Mode().IsRegular() { // it was replaced meanwhile
		err = d.notRegular(key, info.Mode())
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, err
	}
	return f, info, nil
}

// misfit is the error of a path where a file of another kind must be.
type misfit struct {
	path, kind string
	must       string // be there
}

func (e *misfit) Error() string {
	return fmt.Sprintf("%s is %s, and must be %s", e.path, e.kind, e.must)
}

func (*misfit) Is(target error) bool { return target == ErrNotRegular }

// notRegular says what stands where only an object can be.
func (d *Dir) notRegular(key string, mode fs.FileMode) error {
	return &misfit{d.Path(key), KindOf(mode), "a regular file"}
}

// checkWay refuses whatever is not a directory at dirPath or on the way there, also a link to
// a directory. A directory that is missing is fine.
func (d *Dir) checkWay(dirPath string) error {
	if dirPath == "." {
		return nil
	}
	if err := d.checkWay(path.Dir(dirPath)); err != nil {
		return err
	}
	info, err := d.root.Lstat(dirPath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return &misfit{d.Path(dirPath), KindOf(info.Mode()), "a directory"}
	}
	return nil
}

// KindOf says what a file is, such as "a directory".
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
