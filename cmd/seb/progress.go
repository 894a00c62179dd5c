package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	progressAfter = 2 * time.Second
	progressEvery = 500 * time.Millisecond
)

// progress shows how far a long transfer is, on a terminal only.
type progress struct {
	w       io.Writer // nil: show nothing
	unit    string    // what is counted, such as records
	total   int64     // bytes; 0 if unknown
	counted bool      // total is a number of units, not of bytes
	start   time.Time
	updated time.Time
}

// newProgress returns a progress that writes to w if w is a terminal, and shows nothing otherwise.
func newProgress(w io.Writer, total int64) *progress {
	now := time.Now()
	p := &progress{unit: "records", total: total, start: now, updated: now}
	if isTerminal(w) {
		p.w = w
	}
	return p
}

// update shows how many units are done so far, and how many bytes they have.
func (p *progress) update(now time.Time, units, bytes int64) {
	if p.w == nil || now.Sub(p.start) < progressAfter || now.Sub(p.updated) < progressEvery {
		return
	}
	p.updated = now
	took := now.Sub(p.start)
	line := fmt.Sprintf("%d %s", units, p.unit)
	if bytes > 0 {
		line += fmt.Sprintf(", %s, %s/s", size(bytes), size(float64(bytes)/took.Seconds()))
	} else {
		line += fmt.Sprintf(", %.0f/s", float64(units)/took.Seconds())
	}
	done := bytes
	if p.counted {
		done = units
	}
	if p.total > done && done > 0 {
		left := time.Duration(float64(took) * float64(p.total-done) / float64(done))
		line = bar(done, p.total) + " " + line + fmt.Sprintf(", %d%%, %v left", 100*done/p.total, left.Round(time.Second))
	}
	note(p.w, "%s%s", own(lineStart)+own(eraseToEnd), line)
}

// barCells is how wide a bar is.
const barCells = 20

// bar shows how much of total is done.
func bar(done, total int64) string {
	full := int(float64(barCells) * float64(done) / float64(total))
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", barCells-full) + "]"
}

// clear erases the line of progress, if there is one.
func (p *progress) clear() {
	if p.w != nil && p.updated != p.start {
		note(p.w, "%s", own(lineStart)+own(eraseToEnd))
	}
}
