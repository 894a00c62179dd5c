package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// errQuit is the cause of the end of a context that the user ended with the key q.
var errQuit = errors.New("the user typed q")

// What a terminal in raw mode sends for Ctrl-C and Ctrl-\, of which it makes no signals.
const (
	ctrlC         = 3
	ctrlBackslash = 28
)

// untilQuitKey returns a context that ends when ctx ends, or the user types q, Ctrl-C or Ctrl-\, if standard input is a
// terminal. The terminal is then in raw mode until the caller calls restore: it sends keys at once, shows none, makes no
// signals of them, and LF alone does not move the cursor to the start of a line. SIGQUIT ends the context too.
func untilQuitKey(ctx context.Context, std streams) (quittable context.Context, restore func()) {
	in, ok := std.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return ctx, func() {}
	}
	quittable, quit := context.WithCancelCause(ctx)
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		quit(nil)
		return ctx, func() {} // without q, which is only a convenience
	}
	quits := make(chan os.Signal, 1)
	signal.Notify(quits, syscall.SIGQUIT)
	go func() {
		select {
		case <-quits:
			quit(endedBy(syscall.SIGQUIT))
		case <-quittable.Done():
		}
	}()
	restore = func() {
		quit(nil)
		_ = term.Restore(int(in.Fd()), before) // nobody could do anything about an error
		signal.Stop(quits)
	}
	go func() { // nobody waits for this: a read from a terminal can't be interrupted, and ends with the process
		for key := make([]byte, 1); ; {
			if n, err := in.Read(key); err != nil || n == 0 {
				return
			}
			switch key[0] {
			case 'q', 'Q':
				quit(errQuit)
				return
			case ctrlC:
				quit(endedBy(syscall.SIGINT))
				return
			case ctrlBackslash:
				quit(endedBy(syscall.SIGQUIT))
				return
			}
		}
	}()
	return quittable, restore
}

// endedBy returns the error of a command that the user ended by a key that usually sends s.
func endedBy(s syscall.Signal) error { return codedError{errEnded, exitSignal + int(s)} }

// ended returns the error of a command whose context, one of untilQuitKey, has ended.
func ended(ctx context.Context) error {
	coded, isCoded := errors.AsType[codedError](context.Cause(ctx))
	switch {
	case errors.Is(context.Cause(ctx), errQuit):
		return nil
	case isCoded:
		return coded
	}
	return errEnded
}
