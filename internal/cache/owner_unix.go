//go:build unix

package cache

import (
	"io/fs"
	"os"
	"syscall"
)

const checksMode = true

// ownedByUs reports whether a file belongs to the user that runs this process.
func ownedByUs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
