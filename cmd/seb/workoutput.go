package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// workOutput keeps the worker's own words and the output of its commands on separate lines.
type workOutput struct {
	// open says that a command ended its last write in the middle of a line of standard error, or of what is
	// the same file, such as a terminal.
	open atomic.Bool
}

// own returns a writer of the worker's own lines to w.
func (o *workOutput) own(w io.Writer) io.Writer { return ownLines{w, &o.open} }

// ofCommand returns a writer of a command's output to w.
func (o *workOutput) ofCommand(w io.Writer) io.Writer { return commandLines{w, &o.open} }

type ownLines struct {
	w    io.Writer
	open *atomic.Bool
}

// Write begins a new line if a command has not ended its last one.
func (l ownLines) Write(p []byte) (int, error) {
	text := p
	if l.open.Swap(false) {
		text = slices.Concat([]byte("\n"), p)
	}
	n, err := l.w.Write(text)
	return max(0, n-len(text)+len(p)), err
}

type commandLines struct {
	w    io.Writer
	open *atomic.Bool
}

// Write passes the output of a command on.
func (l commandLines) Write(p []byte) (int, error) {
	if len(p) > 0 {
		l.open.Store(p[len(p)-1] != '\n')
	}
	return l.w.Write(p)
}

// sameFile tells whether two writers write to the same file, pipe or terminal.
func sameFile(a, b io.Writer) bool {
	first, ok := a.(*os.File)
	second, also := b.(*os.File)
	if !ok || !also {
		return false
	}
	x, err := first.Stat()
	y, err2 := second.Stat()
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// pipeTo returns the end of a pipe for a command to write to; w gets what the command writes. The caller calls
// passOn after the command exited: passOn waits until w has all output, for patience at most, since processes
// that the command left may hold the pipe open. If w returns an error, the command's next write fails.
func pipeTo(w io.Writer) (to *os.File, passOn func(patience time.Duration), err error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("forward the output of the command: %w", err)
	}
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		_, _ = io.Copy(w, from) // until all writers have closed the pipe, patience has passed, or w fails
		_ = from.Close()
	}()
	return to, func(patience time.Duration) {
		_ = to.Close()
		_ = from.SetReadDeadline(time.Now().Add(patience))
		<-passed
	}, nil
}
