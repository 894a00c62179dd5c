package main

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	killAppenders = 6
	killAcksMax   = 40                    // acknowledged appends before a kill, at most
	killDelayMax  = 20 * time.Millisecond // after the last acknowledgement
)

// crashCycles is how often a test kills a process: SEB_KILL_CYCLES, or few times by default, so that tests
// stay quick.
func crashCycles(t *testing.T, few int) int {
	t.Helper()
	s := os.Getenv("SEB_KILL_CYCLES")
	if s == "" && testing.Short() {
		return min(few, 2)
	}
	if s == "" {
		return few
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("SEB_KILL_CYCLES=%q is no number of cycles", s)
	}
	return n
}

// A broker is killed at any moment, under load, during a checkpoint or during its start. It is restarted,
// on the same port or another, with its cache intact or damaged. Then it has every record that it
// acknowledged at the offset that it named, and none twice. Meanwhile, if it takes long enough, brokers merge records into
// segments, and delete what is dead.
func TestKillNine(t *testing.T) {
	onStores(t, func(t *testing.T, env []string, store string) {
		cache := t.TempDir()
		args := []string{
			"--store", store, "--linger", "10ms", "--checkpoint-commits", "5",
			"--cache-dir", cache, "--memory", "48MiB", // too small for all that is read
			"--margin", "10s", "--delete-delay", "40s",
		}
		broker := serve(t, env, args...)
		runsOn(t, env, "upgrade", "--store", store)
		target := newTarget(t, broker.url)
		load := &load{each: killAppenders, mix: mixedRecords}
		load.start(t, target)
		startTook, startsCut := time.Second, 0
		for range crashCycles(t, 10) {
			load.more(t, target, 1+rand.IntN(killAcksMax), broker)
			<-time.After(rand.N(killDelayMax))
			broker.killed(t)
			harmCache(t, cache)
			if rand.IntN(3) == 0 {
				killedAsItStarts(t, rand.N(2*startTook), env, args...)
				startsCut++
			}
			began := time.Now()
			broker = restart(t, broker, env, args...)
			startTook = time.Since(began)
			target.move(t, broker.url)
		}
		load.verify(t)
		broker.stopped(t)
		t.Logf("%d starts were cut short", startsCut)
		t.Log(runsOn(t, env, "fsck", "--deep", "--store", store))
	})
}

// runsOn runs a command in a process of its own, and returns what it writes.
func runsOn(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "seb", args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("seb %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// restart starts a broker after old has ended, at times on the same port, if that is still free.
func restart(t *testing.T, old *process, env []string, args ...string) *process {
	t.Helper()
	if rand.IntN(2) == 0 {
		return serve(t, env, args...)
	}
	address := strings.TrimPrefix(old.url, "http://")
	p, err := startServe(context.WithoutCancel(t.Context()), t.TempDir(), append(os.Environ(), env...), append(args, "--http", address)...)
	if err != nil && strings.Contains(err.Error(), "address already in use") {
		return serve(t, env, args...)
	}
	if err != nil {
		t.Fatal(err)
	}
	ownedBy(t, p)
	return p
}

// killedAsItStarts starts a broker and kills it after that time, whether it is ready or not.
func killedAsItStarts(t *testing.T, after time.Duration, env []string, args ...string) {
	t.Helper()
	p, err := launch(context.WithoutCancel(t.Context()), t.TempDir(), append(os.Environ(), env...), args...)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(after)
	p.killed(t)
}

// harmCache damages the files of a cache that no process uses, in a random way; at times it does nothing.
func harmCache(t *testing.T, dir string) {
	t.Helper()
	harm := map[int]func(path string, size int64) error{
		0: func(path string, _ int64) error { return os.Remove(path) },
		1: func(path string, size int64) error { return os.Truncate(path, rand.Int64N(size+1)) },
		2: flipBytes,
		3: func(path string, size int64) error { return os.WriteFile(path, make([]byte, size), 0o600) },
	}[rand.IntN(8)]
	if harm == nil {
		return
	}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return harm(path, info.Size())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// flipBytes changes one byte in a thousand, and at least one.
func flipBytes(path string, size int64) error {
	b, err := os.ReadFile(path)
	if err != nil || size == 0 {
		return err
	}
	for range 1 + len(b)/1000 {
		b[rand.IntN(len(b))] ^= byte(1 + rand.IntN(255))
	}
	return os.WriteFile(path, b, 0o600)
}
