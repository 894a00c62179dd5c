//go:build unix && !solaris && !aix

package objstore

import (
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// openNames opens a directory of the store to read its names. If the name is a FIFO, openNames does not wait
// for a writer. If a directory was opened by an [os.Root], Go calls stat for every entry that it reads, and
// these calls take most of the time. So openNames duplicates the file descriptor: a plain [os.File] gets the
// type of an entry from the directory.
func (d *Dir) openNames(name string) (*os.File, error) {
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "dup", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(d.place.path, name)), nil
}
