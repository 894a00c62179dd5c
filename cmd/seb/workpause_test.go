//go:build unix

package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSlowCommandKeepsItsRecordAndALostLeaseEndsIt(t *testing.T) {
	t.Parallel()
	broker, dir := queueWith(t, []string{"--lease", "1s"}, "0"), t.TempDir()
	// The shell ends at SIGTERM; its child ignores the signal.
	paused := work(t, dir, broker.url, "--grace", "500ms", "--exec", `sh -c 'trap "" TERM; echo $$ >>child; while [ -e child ]; do sleep 0.05; done' & wait`)
	child, err := strconv.Atoi(untilLines(t, filepath.Join(dir, "child"), 1, paused)[0])
	if err != nil {
		t.Fatal(err)
	}
	other := work(t, dir, broker.url, "--limit", "1", "--exec", "true")
	select {
	case <-other.done:
		t.Fatalf("it went to another worker:\n%s%s", other.stderr, paused.stderr)
	case <-time.After(2500 * time.Millisecond):
	}
	paused.signalled(t, syscall.SIGSTOP)
	if code := other.left(t); code != exitOK {
		t.Fatalf("the other worker ended with %d:\n%s", code, other.stderr)
	}
	paused.signalled(t, syscall.SIGCONT)
	until(t, "the end of what the command started", func() bool { return syscall.Kill(child, 0) == syscall.ESRCH }, paused)
	wantQueueLeft(t, broker.url, 0)
	paused.signalled(t, syscall.SIGTERM)
	if code := paused.left(t); code != exitOK || !strings.Contains(paused.stderr.String(), "went to another worker") ||
		!strings.Contains(paused.stderr.String(), "0 done, 0 put back") {
		t.Fatalf("it ended with %d:\n%s", code, paused.stderr)
	}
}
