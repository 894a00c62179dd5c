package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// isTerminal tells whether a person sees what is written to w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// color is the parameter of an ANSI escape; "" changes nothing.
type color string

const (
	red   color = "1;31"
	green color = "32"
)

// painter colours text for terminals that want it.
type painter bool

// painterFor returns one that leaves text as it is unless w is a terminal, and
// neither NO_COLOR (https://no-color.org) nor TERM=dumb is set.
func painterFor(w io.Writer) painter {
	return painter(isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func (p painter) paint(c color, text string) string {
	if !p || c == "" || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
