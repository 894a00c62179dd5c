package main

import (
	"context"
	"errors"
	"os"
	"syscall"

	"golang.org/x/term"
)

// errQuit is the cause of the end of a context that the user ended with the key q.
var errQuit = errors.New("the user typed q")

// ctrlC is what a terminal sends for Ctrl-C where it can't both send keys at once and make signals of them.
const ctrlC = 3

// untilQuitKey returns a context that ends when ctx ends or the user types q, if standard input is a terminal. The
// terminal then sends keys at once, and does not show them, until the caller calls restore.
func untilQuitKey(ctx context.Context, std streams) (quittable context.Context, restore func()) {
	in, ok := std.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return ctx, func() {}
	}
	quittable, quit := context.WithCancelCause(ctx)
	before, err := term.MakeRaw(int(in.Fd()))
	if err == nil {
		err = keepSignals(int(in.Fd()))
	}
	restore = func() {
		quit(nil)
		if before != nil {
			_ = term.Restore(int(in.Fd()), before) // nobody could do anything about an error
		}
	}
	if err != nil {
		restore()
		return ctx, func() {} // without q, which is only a convenience
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
				quit(codedError{errEnded, exitSignal + int(syscall.SIGINT)})
				return
			}
		}
	}()
	return quittable, restore
}

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
