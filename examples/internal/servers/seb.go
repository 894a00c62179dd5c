package servers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const startTimeout = 30 * time.Second

// Programs to build.
const (
	SebProgram    = "github.com/simple-event-broker/seb/cmd/seb"
	OutboxProgram = "github.com/simple-event-broker/seb/examples/outbox"
)

// Build builds a program from its source, and returns the binary, which it makes in the
// directory to. It works from any directory of this module, which knows where the other one
// is; there it builds, since a program's own module says what it needs.
func Build(ctx context.Context, program, to string) (string, error) {
	var said bytes.Buffer
	list := exec.CommandContext(ctx, "go", "list", "-find", "-f", "{{.Dir}}", program)
	list.Stderr = &said
	dir, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find the source of %s, from a directory of the examples: %w\n%s", program, err, &said)
	}
	binary := filepath.Join(to, path.Base(program))
	build := exec.CommandContext(ctx, "go", "build", "-C", strings.TrimSpace(string(dir)), "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return binary, nil
}

// Seb is a `seb serve`.
type Seb struct {
	URL string // the same over restarts

	binary  string
	args    []string
	process *exec.Cmd     // nil while it is down
	exited  chan struct{} // closed when it has ended
	stderr  *bytes.Buffer // readable once exited is closed
}

// StartSeb starts a broker on a store, with flags of `seb serve`.
func StartSeb(ctx context.Context, binary, store string, flags ...string) (*Seb, error) {
	address, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	s := &Seb{URL: "http://" + address, binary: binary, args: append([]string{"serve", "--store", store, "--http", address}, flags...)}
	return s, s.Start(ctx)
}

// freePort returns a loopback address that is free now, and again when the broker
// was killed: its port is of none that systems give to whoever names none.
func freePort(ctx context.Context) (string, error) {
	var err error
	for range 100 {
		address := "127.0.0.1:" + strconv.Itoa(20_000+rand.IntN(12_000))
		var l net.Listener
		if l, err = new(net.ListenConfig).Listen(ctx, "tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", fmt.Errorf("find a free port: %w", err)
}

// Start starts a broker that was killed, and returns when it is ready.
func (s *Seb) Start(ctx context.Context) error {
	// Kill ends it, not the context of the start.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.binary, s.args...)
	s.stderr = &bytes.Buffer{}
	cmd.Stderr = s.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ready := make(chan bool, 1)
	s.process, s.exited = cmd, make(chan struct{})
	go func(exited chan<- struct{}) {
		defer close(exited)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "Seb is ready at ") {
				ready <- true
				break
			}
		}
		for lines.Scan() { // so that it never waits for its output to be read
			continue
		}
		_ = cmd.Wait() // how it ended says its ProcessState
	}(s.exited)
	select {
	case <-ready:
		return nil
	case <-s.exited:
		return fmt.Errorf("seb serve ended with %v:\n%s", cmd.ProcessState, s.stderr)
	case <-ctx.Done():
		s.Kill()
		return ctx.Err()
	case <-time.After(startTimeout):
		s.Kill()
		return errors.New("seb serve was not ready in time:\n" + s.stderr.String())
	}
}

// Kill ends the broker at once. It does nothing if it is down.
func (s *Seb) Kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill() // it may have ended
	<-s.exited
	s.process = nil
}

// Stop ends the broker as an operator does.
func (s *Seb) Stop() error {
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop seb serve: %w", err)
	}
	<-s.exited
	state := s.process.ProcessState
	s.process = nil
	if !state.Success() {
		return fmt.Errorf("seb serve ended with %v:\n%s", state, s.stderr)
	}
	return nil
}
