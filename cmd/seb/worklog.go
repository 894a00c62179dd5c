package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// workLog is a handler for the log of a seb.Worker. It writes plain lines for people. Of requests that the worker
// sends again, it reports one for each outage of the broker.
type workLog struct{ away *outage }

// Enabled tells whether lines of a level are written: those of LevelInfo and above are.
func (workLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle writes one line, or reports an outage.
func (h workLog) Handle(_ context.Context, r slog.Record) error {
	var err error
	var where []string
	r.Attrs(func(a slog.Attr) bool {
		if e, ok := a.Value.Any().(error); ok {
			err = e
		} else {
			where = append(where, fmt.Sprintf("%s %v", a.Key, a.Value))
		}
		return true
	})
	if err != nil && strings.HasSuffix(r.Message, "; trying again") {
		h.away.begins(err)
		return nil
	}
	line := r.Message
	if len(where) > 0 {
		line = strings.Join(where, ", ") + ": " + line
	}
	if err != nil {
		message, _ := said(err)
		line += ": " + message
	}
	note(h.away.w, "seb: %s\n", oneLine(line))
	return nil
}

// WithAttrs is not used: a worker logs no attributes that all lines share.
func (h workLog) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup is not used, like WithAttrs.
func (h workLog) WithGroup(string) slog.Handler { return h }
