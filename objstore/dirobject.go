package objstore

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// openObject opens the file under key. It refuses whatever is not a regular
// file, and never waits: opening a FIFO would otherwise wait for a writer.
func (d *Dir) openObject(key string) (*os.File, fs.FileInfo, error) {
	f, err := d.root.OpenFile(key, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		// A socket can't be opened at all, nor a link that leads out of the store.
		if info, statErr := d.root.Lstat(key); statErr == nil && !info.Mode().IsRegular() {
			return nil, nil, fmt.Errorf("%w: %w", d.notRegular(key, info), err)
		}
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = d.notRegular(key, info)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, err
	}
	return f, info, nil
}

// notRegular names the file under key, and says what it is.
func (d *Dir) notRegular(key string, info fs.FileInfo) error {
	return fmt.Errorf("%w: %s is %s, which no object can be", ErrNotRegular, filepath.Join(d.place.path, key), kindOf(info.Mode()))
}

// kindOf says what a file that is not regular is.
func kindOf(mode fs.FileMode) string {
	switch {
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
