package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	manyConnections  = 10_000
	connectionKiBMax = 25 // memory of an idle connection
	followerKiBMax   = 45 // memory of a connection with an answer under way

	// How long a new client may wait when all connections are taken: until a connection without a request
	// is closed.
	placeTimeout = 10 * time.Second
	// How much longer a slow machine may take.
	machineSlack = 20 * time.Second
)

// wantCheap fails the test if each of n connections takes more than most KiB of memory. Without connections
// the process had before KiB.
func wantCheap(t *testing.T, broker *process, before, n, most int) {
	t.Helper()
	after := statusKiB(t, broker.cmd.Process.Pid, "VmRSS")
	each := float64(after-before) / float64(n)
	t.Logf("%d connections: %d KiB resident, %d KiB before: %.1f KiB each", n, after, before, each)
	if each > float64(most) {
		t.Errorf("a connection takes %.1f KiB, more than %d", each, most)
	}
}

// wantSockets waits until a process has lo to hi sockets open.
func wantSockets(t *testing.T, broker *process, lo, hi int) {
	t.Helper()
	deadline := time.After(placeTimeout)
	for ticker := time.NewTicker(20 * time.Millisecond); ; {
		got := sockets(t, broker)
		if lo <= got && got <= hi {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("the broker has %d sockets, want %d to %d", got, lo, hi)
		}
	}
}

func sockets(t *testing.T, broker *process) (n int) {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(broker.cmd.Process.Pid), "fd")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		// A descriptor that was closed meanwhile has no target.
		if target, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// wantPlace checks that a new client is served in time.
func wantPlace(t *testing.T, broker *process, within time.Duration) {
	t.Helper()
	start := time.Now()
	if a := <-begin(t, http.MethodGet, broker.url+"/v1/version", ""); a.err != nil || a.status != http.StatusOK {
		t.Fatalf("a new client got %+v", a)
	}
	took := time.Since(start)
	t.Logf("a new client was served after %v", took.Round(time.Millisecond))
	if took > within {
		t.Errorf("a new client waited for %v, want %v at most", took, within)
	}
}

// Idle connections take little memory, their number stays within the limit, and they do not keep new
// clients waiting for long.
func TestTenThousandIdleConnections(t *testing.T) {
	needFiles(t, manyConnections+1000)
	if testing.Short() {
		t.Skip("it takes a while, and the race detector its own memory")
	}
	t.Parallel()
	broker := serve(t, nil, "--store", "memory:", "--max-connections", strconv.Itoa(manyConnections))
	before := statusKiB(t, broker.cmd.Process.Pid, "VmRSS")
	const request = "GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n"
	c := gatherCrowd(t, broker, manyConnections, request, readAtOnce)
	wantCheap(t, broker, before, manyConnections, connectionKiBMax)
	more := gatherCrowd(t, broker, 100, request, readNever)
	// The listener, all connections that are allowed, and the first one that waits.
	wantSockets(t, broker, manyConnections+2, manyConnections+2)
	wantPlace(t, broker, placeTimeout+machineSlack)
	more.leave(t)
	c.leave(t)
	wantSockets(t, broker, 1, 10)
	wantPlace(t, broker, machineSlack)
	broker.stopped(t)
}

// Waiting readers take little memory, and all get the record that they wait for.
func TestTenThousandWaitingReaders(t *testing.T) {
	needFiles(t, manyConnections+1000)
	if testing.Short() {
		t.Skip("it takes a while, and the race detector its own memory")
	}
	t.Parallel()
	broker := serve(t, nil, "--store", "memory:", "--max-connections", strconv.Itoa(manyConnections+100))
	runSeb(t, strings.NewReader("first"), "produce", "events", "--server", broker.url).want(t, exitOK)
	before := statusKiB(t, broker.cmd.Process.Pid, "VmRSS")
	c := gatherCrowd(t, broker, manyConnections,
		"GET /v1/topics/events/records?offset=latest&wait=5m&limit=10&max_bytes=65536 HTTP/1.1\r\nHost: x\r\n\r\n", readInEnd)
	underWay(t, broker, manyConnections)
	wantCheap(t, broker, before, manyConnections, connectionKiBMax)
	start := time.Now()
	runSeb(t, strings.NewReader("second"), "produce", "events", "--server", broker.url).want(t, exitOK)
	c.leave(t)
	t.Logf("all were answered within %v", time.Since(start).Round(time.Millisecond))
	broker.stopped(t)
}

// Followers take little memory, all get new records, and the broker ends their answers when it shuts down.
func TestTenThousandFollowers(t *testing.T) {
	needFiles(t, manyConnections+1000)
	if testing.Short() {
		t.Skip("it takes a while, and the race detector its own memory")
	}
	t.Parallel()
	broker := serve(t, nil, "--store", "memory:", "--max-connections", strconv.Itoa(manyConnections+100))
	runSeb(t, strings.NewReader("first"), "produce", "events", "--server", broker.url).want(t, exitOK)
	before := statusKiB(t, broker.cmd.Process.Pid, "VmRSS")
	c := gatherCrowd(t, broker, manyConnections,
		"GET /v1/topics/events/records?offset=1 HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n", readInEnd)
	underWay(t, broker, manyConnections)
	wantCheap(t, broker, before, manyConnections, followerKiBMax)
	start := time.Now()
	runSeb(t, strings.NewReader("second"), "produce", "events", "--server", broker.url).want(t, exitOK)
	deadline := time.After(machineSlack)
	for ticker := time.NewTicker(20 * time.Millisecond); counter(t, broker, "seb_http_events_total") < manyConnections; {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("%d of %d followers have the record", counter(t, broker, "seb_http_events_total"), manyConnections)
		}
	}
	t.Logf("all have the record within %v", time.Since(start).Round(time.Millisecond))
	broker.stopped(t)
	c.leave(t)
}

// Clients that never end a request's header keep other clients out for at most the time allowed for a
// header, however many they are.
func TestSlowHeadersKeepNobodyOut(t *testing.T) {
	needFiles(t, 4000)
	t.Parallel()
	const limit = 1024
	broker := serve(t, nil, "--store", "memory:", "--max-connections", strconv.Itoa(limit))
	army := gatherCrowd(t, broker, limit+1000, "GET /v1/version HTTP/1.1\r\nHost: x\r\nX-Slow: ", readNever)
	wantPlace(t, broker, placeTimeout+machineSlack)
	army.leave(t)
	broker.stopped(t)
}

// needFiles skips the test if a process may not have n files open.
func needFiles(t *testing.T, n uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max >= n {
		return // Go raises the soft limit of every process to the hard one
	}
	missing := fmt.Sprintf("needs %d open files in a process, the hard limit is %d: see ulimit -Hn", n, limit.Max)
	if os.Getenv("SEB_TEST_REQUIRE") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}
