package objstore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// place is the path of a directory, and the directory's inode when the store was opened.
type place struct {
	path string
	info fs.FileInfo
}

var errElsewhere = errors.New("the directory was moved away or replaced")

// checkPlace stops the store if the path of the directory now names another directory, or nothing. The open
// handle then still refers to the original directory, which was moved. Objects created there would be
// missing for a process that opens the path later, such as a broker that starts on a restored backup.
func (d *Dir) checkPlace() error {
	info, err := os.Stat(d.place.path)
	if err == nil && os.SameFile(info, d.place.info) || err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil // if the path can't be read, it is unknown whether the directory was moved
	}
	d.stopped.CompareAndSwap(nil, &stopReason{
		what: d.place.path, err: errElsewhere,
		todo: "the last writes are in the moved directory; put the right directory in place, then restart",
	})
	return d.stopped.Load()
}
