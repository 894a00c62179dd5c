//go:build !unix || solaris || aix

package objstore

import (
	"os"
	"syscall"
)

// openNames opens a directory of the store to read its names. If the name is a FIFO, openNames does
// not wait for a writer.
func (d *Dir) openNames(name string) (*os.File, error) {
	return d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}
