package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/test/loglines"
)

const (
	startTimeout = 60 * time.Second
	leaveTimeout = 10 * time.Second // what serve promises
)

// process is a `seb serve` in a process of its own.
type process struct {
	cmd    *exec.Cmd
	url    string
	stdout *output
	stderr *output
	done   chan struct{} // closed when it has ended
}

// output keeps what a process writes.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{} // closed by the next Write
}

func newOutput() *output { return &output{written: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.written)
	o.written = make(chan struct{})
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// lineAfter waits for a line with prefix in it, and returns the rest of the line.
func (o *output) lineAfter(prefix string, giveUp <-chan struct{}) (string, bool) {
	timeout := time.After(startTimeout)
	for {
		o.mu.Lock()
		text, written := o.text.String(), o.written
		o.mu.Unlock()
		if _, rest, ok := strings.Cut(text, prefix); ok {
			if line, _, ok := strings.Cut(rest, "\n"); ok {
				return line, true
			}
		}
		select {
		case <-written:
		case <-giveUp:
			return "", false
		case <-timeout:
			return "", false
		}
	}
}

// launch starts a broker on a free port, and does not wait for it.
func launch(ctx context.Context, dir string, env []string, args ...string) (*process, error) {
	return launchBinary(ctx, "seb", dir, env, args...)
}

// launchBinary is launch with another binary than the one under test.
func launchBinary(ctx context.Context, binary, dir string, env []string, args ...string) (*process, error) {
	p := &process{
		cmd:    exec.CommandContext(ctx, binary, append([]string{"serve", "--http", "127.0.0.1:0"}, args...)...),
		stdout: newOutput(),
		stderr: newOutput(),
		done:   make(chan struct{}),
	}
	p.cmd.Dir, p.cmd.Env = dir, env
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // ProcessState has the result
	}()
	return p, nil
}

// startServe starts a broker on a free port and returns once it is ready.
func startServe(ctx context.Context, dir string, env []string, args ...string) (*process, error) {
	p, err := launch(ctx, dir, env, args...)
	if err != nil {
		return nil, err
	}
	return p.ready()
}

// ready returns the broker once it is ready.
func (p *process) ready() (*process, error) {
	var ok bool
	if p.url, ok = p.stdout.lineAfter("Seb is ready at ", p.done); !ok {
		p.kill()
		return nil, fmt.Errorf("serve is not ready; it ended with %v:\n%s", p.cmd.ProcessState, p.stderr)
	}
	return p, nil
}

// serve is startServe for tests; the process ends with the test.
func serve(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p, err := startServe(context.WithoutCancel(t.Context()), t.TempDir(), append(os.Environ(), env...), args...)
	if err != nil {
		t.Fatal(err)
	}
	ownedBy(t, p)
	return p
}

// ownedBy kills the process when the test ends.
func ownedBy(t *testing.T, p *process) {
	t.Cleanup(func() {
		p.kill()
		loglines.Check(t, p.stderr.String())
		if t.Failed() {
			t.Logf("standard error of serve %s:\n%s", p.url, p.stderr)
		}
	})
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// killed kills the process, and fails the test if it had ended by itself before.
func (p *process) killed(t *testing.T) {
	t.Helper()
	p.kill()
	if p.cmd.ProcessState.Exited() {
		t.Fatalf("serve ended by itself (%v):\n%s", p.cmd.ProcessState, p.stderr)
	}
}

// stop asks the process to end, and returns its exit code.
func (p *process) stop() (int, error) {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, err
	}
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(leaveTimeout):
		p.kill()
		return 0, fmt.Errorf("serve did not end within %v:\n%s", leaveTimeout, p.stderr)
	}
}

// stopped stops the process, and fails the test unless it ended well.
func (p *process) stopped(t *testing.T) {
	t.Helper()
	if code, err := p.stop(); err != nil || code != exitOK {
		t.Fatalf("serve ended with %d, %v:\n%s", code, err, p.stderr)
	}
}

// counter returns one of the broker's metrics. Its name includes its labels, if it has any.
func counter(t testing.TB, broker *process, name string) int {
	t.Helper()
	a := <-begin(t, http.MethodGet, broker.url+"/metrics", "")
	_, rest, ok := strings.Cut(a.body, "\n"+name+" ")
	if a.err != nil || !ok {
		t.Fatalf("no metric %s: %+v", name, a)
	}
	value, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(value, 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// freePort returns a free port that is outside the range of ephemeral ports, so that it stays free for a
// process that is restarted.
func freePort(t *testing.T) string {
	t.Helper()
	var err error
	for range 100 {
		port := strconv.Itoa(20_000 + rand.IntN(12_000))
		var l net.Listener
		if l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:"+port); err == nil {
			if err = l.Close(); err == nil {
				return port
			}
		}
	}
	t.Fatalf("no port is free: %v", err)
	return ""
}
