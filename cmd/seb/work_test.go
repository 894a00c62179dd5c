package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/s3test"
)

// work starts a `seb work orders mail` in dir; it ends with the test.
func work(t *testing.T, dir, url string, args ...string) *process {
	t.Helper()
	p := &process{
		cmd: exec.Command("seb", append([]string{"work", "orders", "mail", "--server", url}, args...)...), //nolint:noctx // it ends with the test
		url: "of a worker", stdout: newOutput(), stderr: newOutput(), done: make(chan struct{}),
	}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, p.stdout, p.stderr
	// Processes that a killed worker left behind may hold its outputs open.
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // ProcessState has the result
	}()
	ownedBy(t, p)
	return p
}

// signalled sends a signal to a process.
func (p *process) signalled(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// interrupted sends a signal to a worker that runs a command, and waits until the worker reports the
// signal.
func (p *process) interrupted(t *testing.T, s os.Signal) {
	t.Helper()
	p.signalled(t, s)
	until(t, "its word that it was interrupted", func() bool { return strings.Contains(p.stderr.String(), "taking no more records") }, p)
}

// left waits until the process has ended, and returns its exit code.
func (p *process) left(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(startTimeout):
		t.Fatalf("it did not end:\n%s", p.stderr)
	}
	return p.cmd.ProcessState.ExitCode()
}

// queueWith starts a broker with a queue of records with these values.
func queueWith(t *testing.T, flags []string, values ...string) (broker *process) {
	t.Helper()
	broker = serve(t, nil, "--store", t.TempDir(), "--linger", "1ms")
	runSeb(t, nil, "topic", "create", "orders", "--server", broker.url).want(t, exitOK)
	runSeb(t, nil, append([]string{"queue", "create", "orders", "mail", "--server", broker.url}, flags...)...).want(t, exitOK)
	runSeb(t, strings.NewReader(strings.Join(values, "\n")), "produce", "orders", "--server", broker.url).want(t, exitOK)
	return broker
}

// fileLines returns the lines of a file that a command writes, none if the file does not exist.
func fileLines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")[:strings.Count(string(b), "\n")]
}

func untilLines(t *testing.T, path string, n int, running ...*process) []string {
	t.Helper()
	until(t, fmt.Sprintf("%d lines in %s", n, filepath.Base(path)), func() bool { return len(fileLines(t, path)) >= n }, running...)
	return fileLines(t, path)
}

// queueLeft returns how many records are not done.
func queueLeft(t *testing.T, url string) int64 {
	t.Helper()
	c, err := serverFlag{Server: url}.client()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	q, err := c.Queue("orders", "mail").Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return q.Ready + q.Delayed + q.Dead + q.Leased + q.Held
}

func wantQueueLeft(t *testing.T, url string, want int64) {
	t.Helper()
	if left := queueLeft(t, url); left != want {
		t.Fatalf("%d records are left, not %d", left, want)
	}
}

// oneEach fails the test unless the lines are the numbers below n, each once.
func oneEach(t *testing.T, lines []string, n int) {
	t.Helper()
	got := make([]int, len(lines))
	for i, line := range lines {
		var err error
		if got[i], err = strconv.Atoi(line); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(got)
	for i := range n {
		if i >= len(got) || got[i] != i || len(got) > n {
			t.Fatalf("done is %v", got)
		}
	}
}

func numbers(n int) (list []string) {
	for i := range n {
		list = append(list, strconv.Itoa(i))
	}
	return list
}

func TestWorkersShareTheRecordsOfAQueue(t *testing.T) {
	t.Parallel()
	broker, dir := queueWith(t, nil, numbers(200)...), t.TempDir()
	var workers []*process
	for range 2 {
		workers = append(workers, work(t, dir, broker.url, "--drain", "--concurrency", "4", "--exec", `read x; echo "$x" >>done; sleep 0.01`))
	}
	for _, w := range workers {
		if code := w.left(t); code != exitOK || strings.HasPrefix(w.stderr.String(), "0 done") {
			t.Fatalf("a worker ended with %d:\n%s", code, w.stderr)
		}
	}
	oneEach(t, fileLines(t, filepath.Join(dir, "done")), 200)
	wantQueueLeft(t, broker.url, 0)
}

// A script learns from the exit code that not all work was done, although the queue is empty.
func TestDrainSaysThatRecordsDied(t *testing.T) {
	t.Parallel()
	broker, dir := queueWith(t, []string{"--max-attempts", "2", "--backoff", "0s"}, "good", "bad", "worse"), t.TempDir()
	w := work(t, dir, broker.url, "--limit", "2", "--exec", `read x; [ "$x" = good ]`)
	if code := w.left(t); code != exitOK || !strings.HasSuffix(w.stderr.String(), "\n1 done, 1 put back, 0 dead\n") {
		t.Fatalf("before any record died, it ended with %d:\n%s", code, w.stderr)
	}
	w = work(t, dir, broker.url, "--drain", "--exec", "exit 75")
	want := "\n0 done, 1 put back, 2 dead\nseb: work on queue mail of orders: 2 records were parked (dead letters)\n     seb queue dead orders mail lists them\n"
	if code := w.left(t); code != exitDead || !strings.HasSuffix(w.stderr.String(), want) {
		t.Fatalf("it ended with %d:\n%s", code, w.stderr)
	}
	// The attempts of a redriven record count from 1 again.
	runSeb(t, nil, "queue", "redrive", "orders", "mail", "--server", broker.url).want(t, exitOK)
	w = work(t, dir, broker.url, "--limit", "1", "--exec", "exit 75")
	if code := w.left(t); code != exitOK || !strings.HasSuffix(w.stderr.String(), "\n0 done, 1 put back, 0 dead\n") {
		t.Fatalf("after a redrive, it ended with %d:\n%s", code, w.stderr)
	}
}

// What a worker says begins on a new line of the terminal, also if a command ended in the middle of one.
func TestWorkerSpeaksOnItsOwnLines(t *testing.T) {
	t.Parallel()
	broker := queueWith(t, []string{"--max-attempts", "1"}, "one", "two")
	w := exec.Command("seb", "work", "orders", "mail", "--limit", "1", "--exec", "cat", "--server", broker.url) //nolint:noctx // it ends
	out, err := w.CombinedOutput()                                                                              // one pipe for both, as a terminal is
	if err != nil || !strings.HasSuffix(string(out), "are ready\none\n1 done, 0 put back, 0 dead\n") {
		t.Errorf("%v, it wrote\n%s", err, out)
	}
	// Standard error alone.
	failed := work(t, t.TempDir(), broker.url, "--drain", "--exec", "printf sorry >&2; cat; exit 3")
	failed.left(t)
	if !strings.Contains(failed.stderr.String(), "is ready\nsorry\nseb: partition 0 offset 1, attempt 1: exit status 3\n0 done") || failed.stdout.String() != "two" {
		t.Errorf("it wrote %q, and\n%s", failed.stdout, failed.stderr)
	}
}

// seb work says if the queue is paused.
func TestWorkerOfAPausedQueueSaysSo(t *testing.T) {
	t.Parallel()
	broker, dir := queueWith(t, nil, "0"), t.TempDir()
	for _, paused := range []bool{true, false} {
		runSeb(t, nil, "queue", map[bool]string{true: "pause", false: "resume"}[paused], "orders", "mail", "--server", broker.url).want(t, exitOK)
		w := work(t, dir, broker.url, "--drain", "--exec", "cat >>done")
		if code := w.left(t); code != exitOK || strings.Contains(w.stderr.String(), "paused: it hands out nothing until `seb queue resume orders mail`") != paused {
			t.Errorf("paused %v: it ended with %d:\n%s", paused, code, w.stderr)
		}
	}
	wantQueueLeft(t, broker.url, 0)
}

// slowly runs until a file go exists, or the test has removed its directory. It writes to files when it
// begins and ends.
const slowly = `read x; echo "$x $SEB_MESSAGE_ATTEMPT" >>begun; until [ -e go -o ! -e begun ]; do sleep 0.05; done; echo "$x" >>ended`

func TestRecordOfAKilledWorkerIsWithAnotherWithinALease(t *testing.T) {
	t.Parallel()
	broker, dir := queueWith(t, []string{"--lease", "2s"}, "0"), t.TempDir()
	killed := work(t, dir, broker.url, "--exec", slowly)
	untilLines(t, filepath.Join(dir, "begun"), 1, killed)
	killed.kill()
	began := time.Now()
	other := work(t, t.TempDir(), broker.url, "--limit", "1", "--exec", `echo "$SEB_MESSAGE_ATTEMPT"`)
	if code := other.left(t); code != exitOK || other.stdout.String() != "2\n" {
		t.Fatalf("exit code %d, attempt %q:\n%s", code, other.stdout, other.stderr)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	wantQueueLeft(t, broker.url, 0)
	writeFile(t, filepath.Join(dir, "go"), "") // the killed worker's command goes on
	untilLines(t, filepath.Join(dir, "ended"), 1)
}

// A command never takes a part of a value for the whole.
func TestCommandOfAKilledWorkerHasTheWholeValue(t *testing.T) {
	t.Parallel()
	value := strings.Repeat("x", 1<<20)
	broker, dir := queueWith(t, nil, value), t.TempDir()
	w := work(t, dir, broker.url, "--exec", `echo >>begun; until [ -e go -o ! -e begun ]; do sleep 0.05; done; wc -c >size; echo >>ended`)
	untilLines(t, filepath.Join(dir, "begun"), 1, w)
	w.kill()
	writeFile(t, filepath.Join(dir, "go"), "")
	untilLines(t, filepath.Join(dir, "ended"), 1)
	if got := strings.TrimSpace(fileLines(t, filepath.Join(dir, "size"))[0]); got != strconv.Itoa(len(value)) {
		t.Errorf("it has read %s bytes of %d", got, len(value))
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWorkerOutlivesItsBroker(t *testing.T) {
	t.Parallel()
	port, store, dir := freePort(t), t.TempDir(), t.TempDir()
	args := []string{"--store", store, "--http", "127.0.0.1:" + port}
	broker := serve(t, nil, args...)
	runSeb(t, nil, "topic", "create", "orders", "--server", broker.url).want(t, exitOK)
	runSeb(t, nil, "queue", "create", "orders", "mail", "--lease", "30s", "--server", broker.url).want(t, exitOK)
	runSeb(t, strings.NewReader("0\n"), "produce", "orders", "--server", broker.url).want(t, exitOK)
	w := work(t, dir, broker.url, "--limit", "1", "--exec", slowly)
	untilLines(t, filepath.Join(dir, "begun"), 1, w)
	broker.killed(t)
	writeFile(t, filepath.Join(dir, "go"), "")
	untilLines(t, filepath.Join(dir, "ended"), 1, w)
	broker = serve(t, nil, args...)
	// The new owner of the queue takes the answer for a record that the old owner handed out.
	if code := w.left(t); code != exitOK || !strings.Contains(w.stderr.String(), "1 done, 0 put back") {
		t.Fatalf("it ended with %d:\n%s", code, w.stderr)
	}
	oneEach(t, fileLines(t, filepath.Join(dir, "ended")), 1)
	wantQueueLeft(t, broker.url, 0)
}

func TestInterruptedWorkerFinishesWhatItHas(t *testing.T) {
	t.Parallel()
	broker, dir := queueWith(t, nil, "0", "1", "2"), t.TempDir()
	w := work(t, dir, broker.url, "--concurrency", "2", "--exec", slowly)
	untilLines(t, filepath.Join(dir, "begun"), 2, w)
	w.interrupted(t, syscall.SIGINT)
	writeFile(t, filepath.Join(dir, "go"), "")
	if code := w.left(t); code != exitOK || !strings.Contains(w.stderr.String(), "2 done, 0 put back") {
		t.Fatalf("it ended with %d:\n%s", code, w.stderr)
	}
	wantQueueLeft(t, broker.url, 1)
}

// When the terminal is closed, the worker waits for its commands to end, as after an interrupt. Under nohup
// it ignores the hangup.
func TestHangupIsAnInterruptUnlessItIsIgnored(t *testing.T) {
	t.Parallel()
	caught := make(chan os.Signal, 1) // else the worker would inherit that SIGHUP is ignored, such as under nohup
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	broker, dir := queueWith(t, nil, "0", "1"), t.TempDir()
	w := work(t, dir, broker.url, "--exec", slowly)
	untilLines(t, filepath.Join(dir, "begun"), 1, w)
	w.interrupted(t, syscall.SIGHUP)
	writeFile(t, filepath.Join(dir, "go"), "")
	if code := w.left(t); code != exitOK || !strings.Contains(w.stderr.String(), "1 done, 0 put back") {
		t.Fatalf("it ended with %d:\n%s", code, w.stderr)
	}
	deaf := exec.Command("sh", "-c", `trap "" HUP; exec seb work orders mail --drain --exec 'kill -HUP $PPID' --server `+broker.url) //nolint:noctx // it ends
	if out, err := deaf.CombinedOutput(); err != nil {
		t.Fatalf("it ended by %v:\n%s", err, out)
	}
	wantQueueLeft(t, broker.url, 0)
}

func TestSecondInterruptEndsTheCommandsAndPutsTheirRecordsBack(t *testing.T) {
	t.Parallel()
	broker, dir := queueWith(t, []string{"--backoff", "1h"}, "0", "1"), t.TempDir()
	w := work(t, dir, broker.url, "--concurrency", "2", "--drain", "--exec", `trap 'echo "$x" >>stopped; exit 1' TERM; `+slowly)
	untilLines(t, filepath.Join(dir, "begun"), 2, w)
	w.interrupted(t, syscall.SIGTERM)
	w.signalled(t, syscall.SIGINT)
	if code := w.left(t); code != exitSignal+int(syscall.SIGTERM) || !strings.Contains(w.stderr.String(), "0 done, 2 put back") {
		t.Fatalf("it ended with %d:\n%s", code, w.stderr)
	}
	oneEach(t, fileLines(t, filepath.Join(dir, "stopped")), 2)
	again := work(t, dir, broker.url, "--drain", "--exec", `read x; echo "$x $SEB_MESSAGE_ATTEMPT"`)
	if code := again.left(t); code != exitOK || len(strings.Fields(again.stdout.String())) != 4 {
		t.Fatalf("they were not there at once: %d, %s\n%s", code, again.stdout, again.stderr)
	}
}

func TestThirdInterruptEndsAWorkerAtOnce(t *testing.T) {
	t.Parallel()
	broker, dir := queueWith(t, nil, "0"), t.TempDir()
	w := work(t, dir, broker.url, "--grace", "1h", "--exec", `trap "echo >>heard" TERM; `+slowly)
	untilLines(t, filepath.Join(dir, "begun"), 1, w)
	w.interrupted(t, syscall.SIGINT)
	w.signalled(t, syscall.SIGINT)
	untilLines(t, filepath.Join(dir, "heard"), 1, w)
	w.signalled(t, syscall.SIGINT)
	if code := w.left(t); code != exitSignal+int(syscall.SIGINT) {
		t.Fatalf("it ended with %d:\n%s", code, w.stderr)
	}
	writeFile(t, filepath.Join(dir, "go"), "") // its command goes on
	untilLines(t, filepath.Join(dir, "ended"), 1)
}

func TestVariablesAreOfRecordsAndSafe(t *testing.T) {
	h := &handler{cmd: &workCmd{Topic: "orders", Queue: "mail"}}
	long := strings.Repeat("x", variableBytesMax)
	many := []seb.Header{
		{Name: "PATH", Value: []byte("/evil")}, {Name: "a=b\n", Value: []byte("1\n2")}, {Name: "A B_", Value: []byte("second")},
		{Name: "zero", Value: []byte("a\x00b")}, {Name: "grün", Value: []byte{0xff}}, {Name: "long", Value: []byte(long)}, {Name: "empty"},
	}
	got := h.environment(seb.Message{Attempt: 3, Record: seb.Record{Partition: 1, Offset: 41, Timestamp: time.UnixMilli(0), Key: []byte{}, Headers: many}})
	want := []string{
		"TOPIC=orders", "QUEUE=mail", "PARTITION=1", "OFFSET=41", "ATTEMPT=3", "TIMESTAMP=1970-01-01T00:00:00Z", "KEY=",
		"HEADER_PATH=/evil", "HEADER_A_B_=1\n2", "HEADER_GR_N=\xff", "HEADER_EMPTY=",
	}
	for i := range want {
		want[i] = variablePrefix + want[i]
	}
	if !slices.Equal(got, want) {
		t.Errorf("the variables are %q, not %q", got, want)
	}
	big := seb.Message{}
	for i := range 100 {
		big.Headers = append(big.Headers, seb.Header{Name: fmt.Sprint(i), Value: []byte(long[:variableBytesMax/2])})
	}
	size := 0
	for _, v := range h.environment(big) {
		size += len(v)
	}
	if size < variablesBytesMax/2 || size > variablesBytesMax+10_000 {
		t.Errorf("they have %d bytes", size)
	}
}

func TestReasonIsTheLastLines(t *testing.T) {
	for _, test := range []struct{ written, want string }{
		{"", ""},
		{"one\n", "one"},
		{"1\n2\n3\n4\n5\n6\n\n", "2\n3\n4\n5\n6"},
		{strings.Repeat("x", 2000) + "end", strings.Repeat("x", reasonBytes-3) + "end"},
		{"\xff\xfeok", "ok"},
	} {
		var passed strings.Builder
		w := &tailWriter{w: &passed}
		for chunk := range slices.Chunk([]byte(test.written), 700) {
			if _, err := w.Write(chunk); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.String(); got != test.want || passed.String() != test.written {
			t.Errorf("%.20q: %q, %d bytes passed on", test.written, got, passed.Len())
		}
	}
}

// The store is away for longer than a lease, while a command works on a record.
func TestWorkerOutlivesAnOutageOfTheStore(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while, as in the library")
	}
	t.Parallel()
	server, dir := s3test.Start(t), t.TempDir()
	broker := serve(t, s3test.Env(), "--store", server.URL, "--linger", "5ms", "--append-timeout", "1s", "--stale-max", "100ms")
	runSeb(t, nil, "topic", "create", "orders", "--server", broker.url).want(t, exitOK)
	runSeb(t, nil, "queue", "create", "orders", "mail", "--server", broker.url).want(t, exitOK)
	runSeb(t, strings.NewReader("0\n1\n2\n"), "produce", "orders", "--server", broker.url).want(t, exitOK)
	w := work(t, dir, broker.url, "--lease", "2s", "--exec", slowly)
	untilLines(t, filepath.Join(dir, "begun"), 1, w, broker)
	server.Kill()
	until(t, "its word that the lease was not extended", func() bool { return strings.Contains(w.stderr.String(), "store_unavailable") }, w, broker)
	writeFile(t, filepath.Join(dir, "go"), "")
	server.Restart()
	untilLines(t, filepath.Join(dir, "ended"), 3, w, broker)
	until(t, "all of it done", func() bool { return queueLeft(t, broker.url) == 0 }, broker)
	w.signalled(t, os.Interrupt)
	if code := w.left(t); code != exitOK {
		t.Fatalf("it ended with %d:\n%s", code, w.stderr)
	}
	for line := range strings.Lines(w.stderr.String()) { // an error of a request that commits nothing has no outcome
		if strings.Contains(line, "outcome") && !strings.Contains(line, "the outcome of a record") {
			t.Errorf("it says %s", line)
		}
	}
	ended := fileLines(t, filepath.Join(dir, "ended"))
	slices.Sort(ended)
	oneEach(t, slices.Compact(ended), 3) // the first may have been done twice
}
