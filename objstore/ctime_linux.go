package objstore

import (
	"io/fs"
	"syscall"
	"time"
)

// changeTime returns when the inode last changed, and false if that time is unknown.
func changeTime(info fs.FileInfo) (time.Time, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(stat.Ctim.Unix()), true
}
