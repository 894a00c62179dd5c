//go:build unix && !solaris && !aix

package cache

import (
	"os"

	"golang.org/x/sys/unix"
)

// flock takes f for this process, without waiting; closing f gives it free.
func flock(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
