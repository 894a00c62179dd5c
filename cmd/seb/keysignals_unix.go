//go:build linux || darwin

package main

import "golang.org/x/sys/unix"

// keepSignals has a terminal in raw mode make signals of Ctrl-C, Ctrl-Z and the like.
func keepSignals(fd int) error {
	mode, err := unix.IoctlGetTermios(fd, readTermios)
	if err != nil {
		return err
	}
	mode.Lflag |= unix.ISIG
	return unix.IoctlSetTermios(fd, writeTermios, mode)
}
