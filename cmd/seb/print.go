package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// outputFlag chooses how a command writes its result.
type outputFlag struct {
	Output string `short:"o" enum:"text,json" default:"text" help:"Write the result as text or json (default ${default})."`
}

func (f outputFlag) json() bool { return f.Output == "json" }

// printJSON writes v, for programs.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// each returns the JSON of each item of a list.
func each[T any](items []T, describe func(T) json.RawMessage) []json.RawMessage {
	list := make([]json.RawMessage, len(items))
	for i, item := range items {
		list[i] = describe(item)
	}
	return list
}

// withField adds a field to the JSON of an object.
func withField(object json.RawMessage, name string, value bool) json.RawMessage {
	return fmt.Appendf(bytes.TrimSuffix(object, []byte("}")), ",%q:%t}", name, value)
}

// outputStream is standard output. Its Write returns each error as an outputError.
type outputStream struct{ w io.Writer }

func (o outputStream) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		err = outputError{err}
	}
	return n, err
}

// printer writes text for people. It keeps the first error, so that a full disk is reported once, at the end.
type printer struct {
	painter
	w     io.Writer
	err   error
	drawn bool // draw has been called
}

// newPrinter returns a printer that writes to w, in colours if w is a terminal.
func newPrinter(w io.Writer) *printer { return &printer{painter: painterFor(w), w: w} }

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// table writes rows of tab-separated cells in aligned columns. A heading is the
// first row.
func (p *printer) table(rows func(*printer)) {
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	inner := &printer{w: t}
	rows(inner)
	if p.err == nil {
		p.err = inner.err
	}
	if err := t.Flush(); p.err == nil {
		p.err = err
	}
}

// note writes to standard error. It ignores errors, since there is nowhere else to report them.
func note(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}

// counted returns n with the singular or plural, such as "2 records".
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
