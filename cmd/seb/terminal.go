package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// terminal is standard output or error if it is a terminal. It escapes control characters: text from others,
// such as the names and errors of a server, may contain control sequences, which the terminal would obey.
type terminal struct{ file *os.File }

// shown returns a writer that escapes what it writes to f if f is a terminal, else f itself.
func shown(f *os.File) io.Writer {
	if term.IsTerminal(int(f.Fd())) {
		return terminal{f}
	}
	return f
}

// Write implements [io.Writer]. p must not end in the middle of a character or of a control sequence.
func (t terminal) Write(p []byte) (int, error) {
	if _, err := t.file.Write(appendVisible(nil, p, ownSequences)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// fileOf returns the file behind a terminal, else w itself, for output that must not be escaped.
func fileOf(w io.Writer) io.Writer {
	if o, ok := w.(outputStream); ok {
		return fileOf(o.w)
	}
	if t, ok := w.(terminal); ok {
		return t.file
	}
	return w
}

// closedAtStart tells whether w is standard output, and was closed when seb started. Go's runtime then opens the null
// device in its place, for reading and writing; for >/dev/null, a shell opens it for writing only.
func closedAtStart(w io.Writer) bool {
	f, ok := fileOf(w).(*os.File)
	if !ok {
		return false
	}
	out, err := f.Stat()
	null, nullErr := os.Stat(os.DevNull)
	if err != nil || nullErr != nil || !os.SameFile(out, null) {
		return false
	}
	_, err = f.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// isTerminal tells whether w writes to a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := fileOf(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// ownMark stands before each control sequence that seb itself writes to a terminal. It is random in each
// process, so that text of others can't contain it.
var ownMark = "\x00" + rand.Text()

// own marks a control sequence as written by seb.
func own(sequence string) string { return ownMark + sequence }

// ownSequences are the control sequences that seb itself writes.
var ownSequences = []string{
	own(lineStart), own(toTopLeft), own(eraseToEnd), own(eraseBelow), own(eraseScreen), own(startColor(red)), own(startColor(green)), own(endColor),
}

// appendVisible appends text to dst. It escapes control characters, characters that change the direction of
// text, and bytes that are not UTF-8. It keeps LF and tabs. It also keeps the given sequences, and only
// removes their ownMark.
func appendVisible(dst, text []byte, sequences []string) []byte {
next:
	for len(text) > 0 {
		for _, s := range sequences {
			if bytes.HasPrefix(text, []byte(s)) {
				dst, text = append(dst, s[len(ownMark):]...), text[len(s):]
				continue next
			}
		}
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\n' || r == '\t':
			dst = append(dst, text[0])
		case n == 1 && (r == utf8.RuneError || r < ' '):
			dst = fmt.Appendf(dst, `\x%02x`, text[0])
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r): // in this form, which JSON has, too
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = append(dst, text[:n]...)
		}
		text = text[n:]
	}
	return dst
}

// color is the parameter of an ANSI escape; "" changes nothing.
type color string

const (
	red   color = "1;31"
	green color = "32"

	endColor = "\x1b[0m"
)

func startColor(c color) string { return "\x1b[" + string(c) + "m" }

// painter colours text if its value is true.
type painter bool

// painterFor returns a painter that colours text if w is a terminal, and neither NO_COLOR
// (https://no-color.org) nor TERM=dumb is set.
func painterFor(w io.Writer) painter {
	return painter(isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func (p painter) paint(c color, text string) string {
	if !p || c == "" || text == "" {
		return text
	}
	return own(startColor(c)) + text + own(endColor)
}
