//go:build unix

package cputime

import (
	"syscall"
	"testing"
	"time"
)

// Used returns the time that all threads of this process have used processors.
func Used(t testing.TB) time.Duration {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
