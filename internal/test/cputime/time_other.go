//go:build !unix

package cputime

import (
	"testing"
	"time"
)

var started = time.Now()

// Used returns the time on the clock: package syscall does not tell the time of a process here.
func Used(testing.TB) time.Duration { return time.Since(started) }
