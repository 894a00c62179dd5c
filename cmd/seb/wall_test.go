package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// wallJumps is added to package time of the brokers under test: the wall clock is wrong by the time that
// the environment says, ahead and behind in turns of three seconds of the monotonic clock.
const wallJumps = `package time

import "syscall"

var wallOff int64

func init() {
	text, _ := syscall.Getenv("SEB_TEST_WALL_SECONDS")
	for i := range len(text) {
		wallOff = 10*wallOff + int64(text[i]-'0')
	}
}

func wallJump(mono int64) int64 {
	if mono/3e9%2 == 0 {
		return wallOff
	}
	return -wallOff
}
`

// sebWithJumpingWallClock builds seb with a package time whose wall clock is wrong. This takes a while,
// since all packages that import time are built again.
func sebWithJumpingWallClock(t *testing.T) string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir, source := t.TempDir(), filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	const reads = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	changed := strings.Replace(string(text), reads, strings.Replace(reads, "\n", "\n\tsec += wallJump(mono)\n", 1), 1)
	if changed == string(text) {
		t.Fatal("this version of Go reads the wall clock elsewhere: mend this test")
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(source, "time.go"):     filepath.Join(dir, "time.go"),
		filepath.Join(source, "walljump.go"): filepath.Join(dir, "walljump.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"time.go": changed, "walljump.go": wallJumps, "overlay.json": string(overlay)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "seb")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return binary
}

// delayedWork keeps what clients know of records that were appended with a delay.
type delayedWork struct {
	t     *testing.T
	urls  []string
	early time.Duration // by how much a broker that takes over may cut a delay short

	mu   sync.Mutex
	due  map[string]time.Time // by value: the earliest time to be handed out
	done map[string]bool
}

// call sends a request to any of the brokers, until one of them answers it.
func (w *delayedWork) call(ctx context.Context, path, body string, header http.Header) []byte {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.urls[rand.IntN(len(w.urls))]+path, strings.NewReader(body))
		if err != nil {
			w.t.Error(err)
			return nil
		}
		if header != nil {
			req.Header = header
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			var answer json.RawMessage
			err := json.NewDecoder(resp.Body).Decode(&answer)
			_ = resp.Body.Close() // the body was read
			if err == nil && resp.StatusCode < 300 {
				return answer
			}
		}
		<-time.After(pollPause)
	}
	return nil
}

// append appends a record with a delay.
func (w *delayedWork) append(ctx context.Context, value string, delay time.Duration) {
	w.mu.Lock()
	w.due[value] = time.Now().Add(delay)
	w.mu.Unlock()
	w.call(ctx, "/v1/topics/orders/records", value, http.Header{"Seb-Delay": {delay.String()}, "Idempotency-Key": {value}})
}

// work receives and acknowledges records until ctx ends.
func (w *delayedWork) work(ctx context.Context) {
	for ctx.Err() == nil {
		var got struct {
			Messages []struct{ Token, Value string }
		}
		if err := json.Unmarshal(w.call(ctx, "/v1/topics/orders/queues/mail/receive", `{"max":100,"wait":"2s"}`, nil), &got); err != nil {
			continue // ctx has ended
		}
		now := time.Now()
		for _, m := range got.Messages {
			w.mu.Lock()
			if early := w.due[m.Value].Sub(now); early > w.early {
				w.t.Errorf("record %s was handed out %v too early", m.Value, early)
			}
			w.done[m.Value] = true
			w.mu.Unlock()
			w.call(ctx, "/v1/topics/orders/queues/mail/ack", fmt.Sprintf(`{"tokens":[%q]}`, m.Token), nil)
		}
	}
}

func (w *delayedWork) left() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.due) - len(w.done)
}

// Brokers whose wall clocks are minutes wrong, and jump, hand out delayed records neither early nor much
// later, also when they are killed. Clocks are wrong by less than 15 minutes, since an S3 server refuses
// the requests of such clients. In a directory the wall clock is the store's clock, and the same for all
// brokers: a broker that takes a queue over after a jump takes the jump for time that has passed. There the
// test shows only that all records are handed out.
func TestKillNineOfBrokersWhoseWallClocksJump(t *testing.T) {
	if os.Getenv("SEB_KILL_CYCLES") == "" {
		t.Skip("it rebuilds Go's standard library: set SEB_KILL_CYCLES, or see make crash")
	}
	binary := sebWithJumpingWallClock(t)
	onStores(t, func(t *testing.T, env []string, store string) {
		off, early := []int{600, 300}, time.Second // dates of S3 are in whole seconds
		if env == nil {
			off, early = []int{300, 300}, 2*300*time.Second
		}
		w := &delayedWork{t: t, early: early, due: map[string]time.Time{}, done: map[string]bool{}}
		brokers := make([]*process, len(off))
		addresses := make([]string, len(off))
		start := func(i int) {
			env := append(append(os.Environ(), env...), "SEB_TEST_WALL_SECONDS="+strconv.Itoa(off[i]))
			p, err := launchBinary(context.WithoutCancel(t.Context()), binary, t.TempDir(), env,
				"--store", store, "--linger", "5ms", "--http", addresses[i], "--advertise", "http://"+addresses[i])
			if err == nil {
				p, err = p.ready()
			}
			if err != nil {
				t.Fatal(err)
			}
			ownedBy(t, p)
			brokers[i] = p
		}
		for i := range brokers {
			addresses[i] = "127.0.0.1:" + freePort(t)
			start(i)
			w.urls = append(w.urls, brokers[i].url)
		}
		runSeb(t, nil, "topic", "create", "orders", "--server", brokers[0].url).want(t, exitOK)
		runSeb(t, nil, "queue", "create", "orders", "mail", "--lease", killLease.String(), "--max-attempts", "1000", "--server", brokers[0].url).want(t, exitOK)
		ctx, cancel := context.WithCancel(t.Context())
		var working sync.WaitGroup
		working.Go(func() { w.work(ctx) })
		defer func() { cancel(); working.Wait() }()
		for i := range crashCycles(t, 6) {
			var appends sync.WaitGroup
			for k := range 5 {
				appends.Go(func() { w.append(ctx, fmt.Sprint(i, "-", k), time.Duration(1+rand.IntN(6))*time.Second) })
			}
			<-time.After(rand.N(killDelayMax))
			dies := rand.IntN(len(brokers))
			brokers[dies].killed(t)
			start(dies)
			appends.Wait()
		}
		until(t, "all that was delayed is done", func() bool { return w.left() == 0 }, brokers...)
	})
}
