package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

const (
	progressAfter = 2 * time.Second
	progressEvery = 500 * time.Millisecond
)

// progress shows how far a long transfer is, on a terminal only.
type progress struct {
	w       io.Writer // nil: show nothing
	unit    string    // of what is counted
	total   int64     // bytes; 0 if unknown
	counted bool      // total is a number of units instead
	start   time.Time
	updated time.Time
}

// newProgress shows progress on w if that is a terminal.
func newProgress(w io.Writer, total int64) *progress {
	now := time.Now()
	p := &progress{unit: "records", total: total, start: now, updated: now}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.w = w
	}
	return p
}

// update tells that so many units of this many bytes in total are done at now.
func (p *progress) update(now time.Time, units, bytes int64) {
	if p.w == nil || now.Sub(p.start) < progressAfter || now.Sub(p.updated) < progressEvery {
		return
	}
	p.updated = now
	took := now.Sub(p.start)
	line := fmt.Sprintf("%d %s, %s, %s/s", units, p.unit, size(bytes), size(float64(bytes)/took.Seconds()))
	done := bytes
	if p.counted {
		done = units
	}
	if p.total > done && done > 0 {
		left := time.Duration(float64(took) * float64(p.total-done) / float64(done))
		line += fmt.Sprintf(", %d%%, %v left", 100*done/p.total, left.Round(time.Second))
	}
	note(p.w, "\r\x1b[K%s", line)
}

// clear removes the line, if there is one.
func (p *progress) clear() {
	if p.w != nil && p.updated != p.start {
		note(p.w, "\r\x1b[K")
	}
}
