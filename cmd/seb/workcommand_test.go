package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

// handlerOf returns a handler that runs a command, without a broker.
func handlerOf(command string, std streams) *handler {
	return &handler{cmd: &workCmd{Topic: "orders", Queue: "mail", Exec: command}, std: std}
}

// A worker that is itself the command of another worker does not pass that worker's variables on.
func TestCommandGetsNoVariablesOfAnotherRecord(t *testing.T) {
	t.Setenv("SEB_MESSAGE_KEY", "other")
	t.Setenv("SEB_MESSAGE_HEADER_A", "other")
	t.Setenv("SEB_MESSAGES", "mine")
	var out strings.Builder
	h := handlerOf(`echo "${SEB_MESSAGE_KEY-none} ${SEB_MESSAGE_HEADER_A-none} $SEB_MESSAGE_TOPIC $SEB_MESSAGES"`, streams{out: &out, err: io.Discard})
	if err := h.run(t.Context(), seb.Message{}); err != nil || out.String() != "none none orders mine\n" {
		t.Errorf("it got %q, %v", out.String(), err)
	}
}

// Exit code 0 means that the record is done, also if nobody reads the command's output.
func TestCommandIsDoneAlsoWhenNobodyReadsWhatItWrites(t *testing.T) {
	std := streams{out: io.Discard, err: brokenPipe{}}
	if err := handlerOf(`echo a >&2; echo b >&2; exit 0`, std).run(t.Context(), seb.Message{}); err != nil {
		t.Error(err)
	}
	var failure *commandError
	err := handlerOf(`echo first >&2; echo last >&2; exit 3`, std).run(t.Context(), seb.Message{})
	if !errors.As(err, &failure) || failure.code != 3 || failure.tail != "first\nlast" {
		t.Errorf("it has failed as %v", err)
	}
}

// If no command can run, the worker ends, so that records do not use up their attempts.
func TestWorkerThatCanRunNothingEnds(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()+"/none")
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	h := handlerOf("exit 0", streams{out: io.Discard, err: io.Discard})
	h.stop, h.onEnd = stop, func(func()) func() bool { return func() bool { return true } }
	err := h.handle(ctx, seb.Message{})
	if err == nil || ctx.Err() == nil {
		t.Errorf("it goes on: %v, %v", err, context.Cause(ctx))
	}
}

// A process that a command left behind may hold its output open; the next record does not wait for it.
func TestCommandIsDoneWhenItExitsEvenIfItsChildRuns(t *testing.T) {
	var written strings.Builder
	h := handlerOf(`echo said >&2; sleep 30 & echo $!; exit 0`, streams{err: &written})
	child, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Close() }()
	h.std.out, h.cmd.Grace = child, time.Minute
	began := time.Now()
	if err := h.run(t.Context(), seb.Message{}); err != nil || written.String() != "said\n" {
		t.Errorf("it came to %v, and wrote %q", err, written.String())
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	text, err := os.ReadFile(child.Name())
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.FindProcess(pid)
	if err == nil {
		err = left.Kill()
	}
	if err != nil {
		t.Errorf("the child is gone: %v", err)
	}
}
