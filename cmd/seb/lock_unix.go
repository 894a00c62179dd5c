//go:build unix && !solaris && !aix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// flock locks f for this process. It returns an error at once if another process has the lock. Closing f releases the lock.
func flock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
