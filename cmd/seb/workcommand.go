package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"github.com/simple-event-broker/seb"
)

const (
	// reasonLines and reasonBytes bound what a reason has of standard error; a reason may
	// be of 1 KiB.
	reasonLines = 5
	reasonBytes = 900
	// variableBytesMax is the longest value passed in the environment; systems have a limit
	// of 128 KiB, with the name.
	variableBytesMax = 64 << 10
	// variablesBytesMax is that of all headers together.
	variablesBytesMax = 256 << 10
	// outputGrace is how long what a command has left behind may hold its output open.
	outputGrace = time.Second

	variablePrefix = "SEB_MESSAGE_"
)

// commandError means that the command of a record has failed.
type commandError struct {
	code int // its exit code; -1 if a signal has ended it
	how  string
	tail string // the last that it wrote to standard error
}

func (e *commandError) Error() string {
	if e.tail == "" {
		return e.how
	}
	return e.how + "\n" + e.tail
}

// run runs the command in a process group of its own. The group is ended if ctx ends before
// the command does. What a command came to is a commandError; another error is of this
// machine, which can't run any.
func (h *handler) run(ctx context.Context, m seb.Message) error {
	in, err := valueFile(m.Value)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()         // there is nothing to lose: it has no name
	tail := &tailWriter{w: fileOf(h.std.err)} // what the command writes is its own
	stderr, passOn, err := tail.pipe()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", h.cmd.Exec)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), ofRecord), h.environment(m)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, fileOf(h.std.out), stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var kill *time.Timer
	cmd.Cancel = func() error {
		group := -cmd.Process.Pid
		kill = time.AfterFunc(h.cmd.Grace, func() { _ = syscall.Kill(group, syscall.SIGKILL) }) // it may be gone
		return syscall.Kill(group, syscall.SIGTERM)
	}
	cmd.WaitDelay = h.cmd.Grace + outputGrace
	err = cmd.Run()
	patience := outputGrace
	if kill != nil {
		patience += h.cmd.Grace // for what the shell has started and is to leave too
	}
	passOn(patience)
	if kill != nil && kill.Stop() {
		// The shell has left in time. What it has started and not ended must not go on.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	var exit *exec.ExitError
	switch {
	case err != nil && ctx.Err() != nil:
		return &commandError{code: -1, how: "ended: " + context.Cause(ctx).Error(), tail: tail.String()}
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it has left, and something of it holds its output
		return nil
	case errors.As(err, &exit):
		return &commandError{code: exit.ExitCode(), how: exit.String(), tail: tail.String()}
	default:
		return fmt.Errorf("start the command: %w", err)
	}
}

// ofRecord tells whether a variable says something of a record: of another one, if this
// worker has it.
func ofRecord(variable string) bool { return strings.HasPrefix(variable, variablePrefix) }

// valueFile returns a file without a name that holds a value. From a pipe the command would
// read a part of it, and take that for the whole, if this process were killed meanwhile.
func valueFile(value []byte) (*os.File, error) {
	f, err := os.CreateTemp("", "seb-work-")
	if err != nil {
		return nil, fmt.Errorf("keep the value for the command: %w", err)
	}
	if err = os.Remove(f.Name()); err == nil {
		_, err = f.Write(value)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("keep the value for the command: %w", err), f.Close())
	}
	return f, nil
}

// environment is what the command gets to know of a record.
func (h *handler) environment(m seb.Message) []string {
	v := &variables{taken: map[string]bool{}, left: variablesBytesMax}
	v.add("TOPIC", h.cmd.Topic)
	v.add("QUEUE", h.cmd.Queue)
	v.add("PARTITION", strconv.Itoa(int(m.Partition)))
	v.add("OFFSET", strconv.FormatInt(int64(m.Offset), 10))
	v.add("ATTEMPT", strconv.Itoa(m.Attempt))
	v.add("TIMESTAMP", m.Timestamp.UTC().Format(time.RFC3339Nano))
	if m.Key != nil {
		v.add("KEY", string(m.Key))
	}
	for _, header := range m.Headers {
		v.add("HEADER_"+variableName(header.Name), string(header.Value))
	}
	return v.list
}

// variables are what is added to an environment.
type variables struct {
	list  []string
	taken map[string]bool
	left  int // bytes
}

// add passes a value unless no environment can hold it, or the name is taken. A name has a
// prefix, so that no record chooses what a program takes for its own, such as PATH.
func (v *variables) add(name, value string) {
	size := len(name) + len(value)
	if v.taken[name] || size > variableBytesMax || size > v.left || strings.ContainsRune(value, 0) {
		return
	}
	v.taken[name] = true
	v.left -= size
	v.list = append(v.list, variablePrefix+name+"="+value)
}

// variableName is a header's name as a shell can have it.
func variableName(header string) string {
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return '_'
		}
		return unicode.ToUpper(r)
	}, header)
}

// tailWriter forwards what is written, and keeps the last of it.
type tailWriter struct {
	w io.Writer

	mu   sync.Mutex
	tail []byte // guarded by mu
}

// Write ignores errors of w, so a closed output does not make the command fail.
func (t *tailWriter) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.tail = append(t.tail, p[max(0, len(p)-reasonBytes):]...)
	t.tail = t.tail[max(0, len(t.tail)-reasonBytes):]
	t.mu.Unlock()
	_, _ = t.w.Write(p)
	return len(p), nil
}

// pipe returns what a command may write to. passOn is called once that has left: it waits
// until all was forwarded, but no longer than for what the command left behind.
func (t *tailWriter) pipe() (to *os.File, passOn func(patience time.Duration), err error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("forward standard error: %w", err)
	}
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		_, _ = io.Copy(t, from) // until nobody has the other end, or patience ends
	}()
	return to, func(patience time.Duration) {
		_ = to.Close()
		_ = from.SetReadDeadline(time.Now().Add(patience))
		<-passed
		_ = from.Close()
	}, nil
}

// String returns the last lines.
func (t *tailWriter) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.tail), ""))
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-reasonLines):], "\n")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
