//go:build !linux && !darwin

package objstore

import (
	"io/fs"
	"time"
)

// changeTime always returns false: on this system a program can't learn when an inode last changed. So a Get
// of a name that this process has not made durable costs an fsync.
func changeTime(fs.FileInfo) (time.Time, bool) { return time.Time{}, false }
