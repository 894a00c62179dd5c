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
	total   int64     // bytes; 0 if unknown
	start   time.Time
	updated time.Time
}

// newProgress shows progress on w if that is a terminal.
func newProgress(w io.Writer, total int64) *progress {
	now := time.Now()
	p := &progress{total: total, start: now, updated: now}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.w = w
	}
	return p
}

// update tells that records of this many bytes in total are done at now.
func (p *progress) update(now time.Time, records, bytes int64) {
	if p.w == nil || now.Sub(p.start) < progressAfter || now.Sub(p.updated) < progressEvery {
		return
	}
	p.updated = now
	rate := float64(bytes) / now.Sub(p.start).Seconds()
	line := fmt.Sprintf("%d records, %s, %s/s", records, size(bytes), size(rate))
	if p.total > bytes && rate > 0 {
		left := time.Duration(float64(p.total-bytes) / rate * float64(time.Second))
		line += fmt.Sprintf(", %d%%, %v left", 100*bytes/p.total, left.Round(time.Second))
	}
	note(p.w, "\r\x1b[K%s", line)
}

// clear removes the line, if there is one.
func (p *progress) clear() {
	if p.w != nil && p.updated != p.start {
		note(p.w, "\r\x1b[K")
	}
}
