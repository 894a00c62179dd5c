package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

const (
	// smallDiskVariable tells the second run of a test where its small disk is.
	smallDiskVariable = "SEB_TEST_SMALL_DISK"
	diskBytes         = 24 << 20
	ballastBytes      = 8 << 20
)

// onSmallDisk runs the test again in a second process. There it returns a directory on a file system of
// diskBytes. In the first process it returns "" when the second one has ended; the test returns then. The
// file system is a tmpfs that only the second process and its children see, so it goes away with them.
func onSmallDisk(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(smallDiskVariable); dir != "" {
		return dir
	}
	dir := t.TempDir()
	unshare := canMount(t, dir)
	script := fmt.Sprintf(`mount -t tmpfs -o size=%d tmpfs "$0" && exec "$@"`, diskBytes)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append(unshare[1:], "sh", "-c", script, dir, self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd := exec.CommandContext(t.Context(), unshare[0], args...)
	cmd.Env = append(os.Environ(), smallDiskVariable+"="+dir)
	out, err := cmd.CombinedOutput()
	t.Logf("on a disk of %s:\n%s", size(diskBytes), out)
	if err != nil {
		t.Fatal(err)
	}
	return ""
}

// canMount returns the command line that starts a process which may mount: as root, or as root of a user
// namespace. If neither is allowed, it skips the test.
func canMount(t *testing.T, dir string) []string {
	t.Helper()
	var said strings.Builder
	for _, unshare := range [][]string{{"unshare", "--mount"}, {"unshare", "--map-root-user", "--mount"}} {
		args := append(unshare[1:], "mount", "-t", "tmpfs", "tmpfs", dir)
		out, err := exec.CommandContext(t.Context(), unshare[0], args...).CombinedOutput()
		if err == nil {
			return unshare
		}
		fmt.Fprintf(&said, "\n%s: %v: %s", strings.Join(unshare, " "), err, out)
	}
	missing := "needs a tmpfs of its own, so root, or user namespaces that may mount:" + said.String()
	if os.Getenv("SEB_TEST_REQUIRE") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return nil
}

// fill writes a file of n bytes, or fewer if the disk is full.
func fill(t *testing.T, path string, n int) {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil && !isDiskFull(err) {
		t.Fatal(err)
	}
}

func isDiskFull(err error) bool { return strings.Contains(err.Error(), "no space left on device") }

// A broker whose store is on a full disk refuses appends with that error, and reports the right outcome for
// each. It serves reads, and takes appends again as soon as there is room.
func TestDiskFull(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while, and what has no room is no part of this process")
	}
	t.Parallel()
	dir := onSmallDisk(t)
	if dir == "" {
		return
	}
	ballast, filler := filepath.Join(dir, "ballast"), filepath.Join(dir, "filler")
	fill(t, ballast, ballastBytes)
	args := []string{"--store", filepath.Join(dir, "store"), "--linger", "5ms", "--checkpoint-commits", "20", "--append-timeout", "300ms"}
	broker := serve(t, nil, args...)
	target := newTarget(t, broker.url)
	var greedy atomic.Bool
	load := &load{each: 4, mix: func() []int {
		if greedy.Load() {
			return mixedRecords()
		}
		return smallRecords()
	}}
	load.start(t, target)
	load.more(t, target, 100, broker)

	fill(t, filler, diskBytes)
	whileFull(t, target, broker)
	remove(t, filler)
	load.more(t, target, 100, broker)

	// Now its own records fill the disk, and it is killed in that state.
	greedy.Store(true)
	whileFull(t, target, broker)
	broker.killed(t)
	greedy.Store(false)
	fill(t, filler, diskBytes) // the broker's unfinished writes have freed room
	if early, err := startServe(t.Context(), t.TempDir(), os.Environ(), args...); err == nil {
		early.kill()
		t.Error("it starts on a store that takes no probe")
	} else if !isDiskFull(err) {
		t.Errorf("a start on a full disk does not say so: %v", err)
	}
	remove(t, ballast)
	broker = serve(t, nil, args...)
	target.move(t, broker.url)
	load.more(t, target, 100, broker)
	load.verify(t)
	broker.stopped(t)
}

// If the disk is full, an append is refused at once with that cause, and the log says what to do.
func TestFullDiskIsNamedAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while, and what has no room is no part of this process")
	}
	t.Parallel()
	dir := onSmallDisk(t)
	if dir == "" {
		return
	}
	filler, store := filepath.Join(dir, "filler"), filepath.Join(dir, "store")
	broker := serve(t, nil, "--store", store, "--append-timeout", "5m", "--commit-bytes", "64KiB")
	records := broker.url + "/v1/topics/orders/records"
	for _, size := range []int{10, 6 << 20} {
		fill(t, filler, diskBytes)
		a := <-begin(t, http.MethodPost, records, strings.Repeat("x", size))
		for _, want := range []string{`"code":"store_unavailable"`, `"detail":"the store is full, so nothing was committed"`, `"outcome":"not_committed"`} {
			if a.err != nil || a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, want) {
				t.Errorf("%d bytes: %d %s %v, want %s", size, a.status, a.body, a.err, want)
			}
		}
		remove(t, filler)
		if a := <-begin(t, http.MethodPost, records, "x"); a.err != nil || a.status != http.StatusCreated {
			t.Errorf("after that: %d %s %v", a.status, a.body, a.err)
		}
	}
	if line, ok := broker.stderr.lineAfter(`level=ERROR msg="the store is full; writes are refused until there is room"`, broker.done); !ok ||
		!strings.Contains(line, "no space left on device") || !strings.Contains(line, "make room on the disk of "+store) {
		t.Errorf("the log is\n%s", broker.stderr)
	}
	broker.stopped(t)
}

// A disk without room is no broken promise: doctor names the cause, and its exit code says to try again later.
func TestDoctorOnAFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while, and what has no room is no part of this process")
	}
	t.Parallel()
	dir := onSmallDisk(t)
	if dir == "" {
		return
	}
	filler, store := filepath.Join(dir, "filler"), filepath.Join(dir, "store")
	if err := os.Mkdir(store, 0o700); err != nil {
		t.Fatal(err)
	}
	fill(t, filler, diskBytes)
	for _, left := range []int64{0, 12 << 10, 400 << 10} {
		if err := os.Truncate(filler, diskBytes-left); err != nil {
			t.Fatal(err)
		}
		r := runSeb(t, nil, "doctor", "--store", store, "--rounds", "2", "--samples", "4")
		r.want(t, exitUnreachable, "has no room: ", ": no space left on device\n     make room on the disk of "+store)
		if !strings.Contains(r.out, "verdict: unknown: the store has no room\n") || strings.Contains(r.out, "BAD") {
			t.Errorf("with %v left:\n%s", size(left), r.out)
		}
		if found, err := filepath.Glob(filepath.Join(store, "probe", "*")); err != nil || len(found) > 0 {
			t.Errorf("with %v left, it leaves %v, %v", size(left), found, err)
		}
	}
}

// whileFull expects refused appends and answered reads.
func whileFull(t *testing.T, target *target, broker *process) {
	t.Helper()
	grown(t, &target.refusals, 20, "appends are refused", broker)
	grown(t, &target.reads, 20, "reads are answered", broker)
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// A broker whose cache directory is full serves and takes records without the cache, and starts without it.
func TestCacheDiskFull(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while, and what has no room is no part of this process")
	}
	t.Parallel()
	dir := onSmallDisk(t)
	if dir == "" {
		return
	}
	ballast, filler := filepath.Join(dir, "ballast"), filepath.Join(dir, "filler")
	args := []string{
		"--store", t.TempDir(), "--linger", "5ms", "--checkpoint-commits", "20",
		"--cache-dir", filepath.Join(dir, "cache"), "--cache-bytes", "1GiB", "--memory", "24MiB",
	}
	fill(t, ballast, diskBytes-1<<20)
	broker := serve(t, nil, args...)
	target := newTarget(t, broker.url)
	load := &load{each: 4, mix: func() []int { return []int{rand.IntN(200 << 10), rand.IntN(2000)} }}
	load.start(t, target)
	if _, ok := broker.stderr.lineAfter("disk cache failed; some batches are not cached", broker.done); !ok {
		t.Errorf("the cache never met the end of its disk:\n%s", broker.stderr)
	}
	fill(t, filler, diskBytes)
	load.more(t, target, 200, broker)
	grown(t, &target.reads, 200, "reads are answered", broker)
	broker.killed(t)
	fill(t, filler, diskBytes)
	broker = serve(t, nil, args...)
	target.move(t, broker.url)
	load.more(t, target, 200, broker)
	load.verify(t)
	broker.stopped(t)
}
