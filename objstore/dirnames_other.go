//go:build !unix || solaris || aix

package objstore

import "os"

// openNames opens a directory of the store to read its names.
func (d *Dir) openNames(name string) (*os.File, error) { return d.root.Open(name) }
