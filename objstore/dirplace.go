package objstore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// place is the path and the inode of a directory when it was opened.
type place struct {
	path string
	info fs.FileInfo
}

var errElsewhere = errors.New("the directory was moved away or replaced")

// checkPlace stops the store if its path leads to another directory by now, or
// to none. The open handle would follow the directory to wherever it was moved.
// A process that opens the path later, such as the next start on a restored
// backup, would not find what is created there.
func (d *Dir) checkPlace() error {
	info, err := os.Stat(d.place.path)
	if err == nil && os.SameFile(info, d.place.info) || err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil // where the path may not be followed, nothing can be told
	}
	d.stopped.CompareAndSwap(nil, &stopReason{
		what: d.place.path, err: errElsewhere,
		todo: "the last writes are in the moved directory; put the right directory in place, then restart",
	})
	return d.stopped.Load()
}
