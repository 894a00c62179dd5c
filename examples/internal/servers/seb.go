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

// Build builds a program from source. It puts the binary into the given directory, and returns the
// path of the binary. The program may be in the module of the examples or in the module of Seb. Build
// runs in the directory of the program, so that the go.mod of the program's module applies. The
// working directory must be in the module of the examples, whose go.mod says where the module of Seb is.
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

// Seb is a process of `seb serve`.
type Seb struct {
	URL string // stays the same after a restart

	binary  string
	args    []string
	process *exec.Cmd     // nil while the broker is down
	exited  chan struct{} // closed when the process has ended
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

// freePort returns a loopback address with a free port. The port is outside of the range from
// which systems choose ports for programs. So no system gives the port to another program while
// the broker is down.
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

// Start starts the broker, which must be down, and returns when the broker is ready.
func (s *Seb) Start(ctx context.Context) error {
	// Kill ends the process; the end of ctx does not.
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
		for lines.Scan() { // reads on, so that the broker can always write its output
			continue
		}
		_ = cmd.Wait() // ProcessState tells how the process ended
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

// Kill ends the broker at once. It does nothing if the broker is down.
func (s *Seb) Kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill() // the process may have ended already
	<-s.exited
	s.process = nil
}

// Stop ends the broker by SIGTERM, as an operator does.
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
