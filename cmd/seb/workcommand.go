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
	// The reason for a failed attempt has the last lines of standard error: at most reasonLines, and at most
	// reasonBytes, since a reason has at most 1 KiB.
	reasonLines = 5
	reasonBytes = 900
	// variableBytesMax is the size of the largest variable, its name included; systems allow 128 KiB.
	variableBytesMax = 64 << 10
	// variablesBytesMax is the largest size of all variables of a record together.
	variablesBytesMax = 256 << 10
	// outputGrace is how long seb work waits after a command has ended, if processes that the command left
	// running keep its output open.
	outputGrace = time.Second

	variablePrefix = "SEB_MESSAGE_"
)

// commandError means that the command for a record failed.
type commandError struct {
	code int // exit code of the command; -1 if a signal ended it, or if ctx ended while it ran
	how  string
	tail string // the last lines that the command wrote to standard error
}

func (e *commandError) Error() string {
	if e.tail == "" {
		return e.how
	}
	return e.how + "\n" + e.tail
}

// run runs the command in its own process group, and ends the group if ctx ends first. It returns a
// *commandError if the command failed. Any other error means that this machine can't run commands.
func (h *handler) run(ctx context.Context, m seb.Message) error {
	in, err := valueFile(m.Value)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()                             // nothing is lost: the file is removed already
	tail := &tailWriter{w: h.output.ofCommand(fileOf(h.std.err))} // not escaped: it is the command's output
	stdout, stderr, passOn, err := h.outputs(tail)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", h.cmd.Exec)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), ofRecord), h.environment(m)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, stdout, stderr
	inGroup(cmd)
	var kill *time.Timer
	cmd.Cancel = func() error {
		leader := cmd.Process.Pid
		kill = time.AfterFunc(h.cmd.Grace, func() { _ = signalGroup(leader, syscall.SIGKILL) }) // the group may be gone
		return signalGroup(leader, syscall.SIGTERM)
	}
	cmd.WaitDelay = h.cmd.Grace + outputGrace
	err = cmd.Run()
	patience := outputGrace
	if kill != nil {
		patience += h.cmd.Grace // after SIGTERM, processes that the shell started have --grace to end
	}
	passOn(patience)
	if kill != nil && kill.Stop() {
		// The shell exited before the SIGKILL. Kill the processes that it left running.
		_ = signalGroup(cmd.Process.Pid, syscall.SIGKILL)
	}
	var exit *exec.ExitError
	switch {
	case err != nil && ctx.Err() != nil:
		return &commandError{code: -1, how: "ended: " + context.Cause(ctx).Error(), tail: tail.String()}
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // the command succeeded, even if a process that it left still holds its output
		return nil
	case errors.As(err, &exit):
		return &commandError{code: exit.ExitCode(), how: exit.String(), tail: tail.String()}
	default:
		return fmt.Errorf("start the command: %w", err)
	}
}

// outputs returns where a command writes. The caller calls passOn after the command exited: see pipeTo.
func (h *handler) outputs(tail *tailWriter) (stdout, stderr io.Writer, passOn func(patience time.Duration), err error) {
	stdout = fileOf(h.std.out)
	stderr, passErr, err := pipeTo(tail)
	if err != nil || !sameFile(stdout, fileOf(h.std.err)) {
		return stdout, stderr, passErr, err
	}
	stdout, passOut, err := pipeTo(h.output.ofCommand(stdout))
	if err != nil {
		passErr(0)
		return nil, nil, nil, err
	}
	return stdout, stderr, func(patience time.Duration) {
		until := time.Now().Add(patience)
		passOut(patience)
		passErr(time.Until(until))
	}, nil
}

// ofRecord tells whether a variable describes a record. The worker has such variables if another worker's
// command started it.
func ofRecord(variable string) bool { return strings.HasPrefix(variable, variablePrefix) }

// valueFile returns an open file with the value. valueFile has removed the file's name, so the file goes away
// when it is closed. With a pipe instead of a file, the command would take a part of the value for the whole value if
// this process were killed.
func valueFile(value []byte) (*os.File, error) {
	f, err := os.CreateTemp("", "seb-work-")
	if err != nil {
		return nil, fmt.Errorf("write the value to a temporary file for the command: %w", err)
	}
	if err = os.Remove(f.Name()); err == nil {
		_, err = f.Write(value)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write the value to a temporary file for the command: %w", err), f.Close())
	}
	return f, nil
}

// environment returns the variables that describe a record to the command.
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

// variables collects the environment variables that describe a record.
type variables struct {
	list  []string
	taken map[string]bool
	left  int // bytes that may still be added
}

// add adds a variable unless its value is too large or has a zero byte, or the name is taken. The prefix
// keeps records from setting variables that programs use, such as PATH.
func (v *variables) add(name, value string) {
	size := len(name) + len(value)
	if v.taken[name] || size > variableBytesMax || size > v.left || strings.ContainsRune(value, 0) {
		return
	}
	v.taken[name] = true
	v.left -= size
	v.list = append(v.list, variablePrefix+name+"="+value)
}

// variableName returns a header's name in a form that is valid for a variable.
func variableName(header string) string {
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return '_'
		}
		return unicode.ToUpper(r)
	}, header)
}

// tailWriter forwards what is written, and keeps the last reasonBytes bytes.
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
