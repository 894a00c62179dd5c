package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

const (
	topIntervalMin  = 100 * time.Millisecond
	snapshotTimeout = 10 * time.Second
	// The size to assume if the terminal does not tell its own.
	topColumns, topRows = 100, 30
)

type topCmd struct {
	serverFlag
	outputFlag
	Interval time.Duration `default:"1s" help:"How often to refresh (default ${default})."`
	Sort     string        `enum:"rate,records,stored,name" default:"rate" help:"Order of the topics: rate, records, stored or name (default ${default})."`
	Once     bool          `help:"Take two snapshots, an interval apart, show the difference, and end; the default if standard output is not a terminal."`
}

// Help shows examples.
func (topCmd) Help() string {
	return `Examples:

    seb top
    seb top --server http://broker.example:51313 --interval 5s
    seb top --sort stored --once
    seb top --output json | jq -c '[.time, .records_per_second]'

Shows what a broker, its topics, consumers and queues do, until q or Ctrl-C. The rates of a topic count the appends
through all brokers; the rates of requests, commits and the store are those of this broker alone. LAG is how many records
a consumer has not committed, MISSED how many were deleted before it committed them. LEFT is how many records of a queue
are neither done nor dead letters. The 1,000 oldest consumers and the 1,000 oldest queues are shown. BROKER shows the other
brokers of the log that this one has heard of since its start: whether it is connected to them (an older version sends and
takes commits only), and how long a message takes there and back. With --output json it writes a line per snapshot, until
Ctrl-C even if the output is a file.

A snapshot reads /readyz, /metrics, /v1/topics and /v1/peers. On a log with API keys it needs a key with the scope read,
and shows the topics of that key; the other brokers are shown for a key with the scope metrics or admin for all topics. The first snapshot costs nothing; each later one may cost the broker one GET of the store, if
its last sync is older than its --stale-max. With a snapshot a second, that is at most $0.035 a day at S3's prices.`
}

// Run takes and shows snapshots until ctx ends, or once.
func (c *topCmd) Run(ctx context.Context, std streams) error {
	if c.Interval < topIntervalMin {
		return usage(fmt.Errorf("invalid --interval %v: it must be at least %v", c.Interval, topIntervalMin))
	}
	broker, err := c.client()
	if err != nil {
		return err
	}
	before, err := takeSnapshot(ctx, broker, snapshotTimeout)
	if err != nil {
		return fmt.Errorf("read the broker's metrics: %w", err)
	}
	ticker := time.NewTicker(c.Interval)
	defer ticker.Stop()
	show, once := c.screen(std)
	if !once && !c.json() {
		var restore func()
		ctx, restore = untilQuitKey(ctx, std)
		defer restore()
	}
	for {
		select {
		case <-ctx.Done():
			return ended(ctx)
		case <-ticker.C:
		}
		now, err := takeSnapshot(ctx, broker, snapshotTimeout)
		switch {
		case ctx.Err() != nil:
			return ended(ctx)
		case err != nil && once:
			return fmt.Errorf("read the broker's metrics: %w", err)
		case err != nil:
			// The next rates count from the last snapshot that succeeded.
			reason, _ := said(err)
			err = show(&topView{Time: time.Now().UTC(), Server: c.Server, Reason: reason})
		default:
			err = show(viewOf(before, now, c.Server, c.Sort))
			before = now
		}
		if err != nil || once {
			return err
		}
	}
}

// screen returns the function that shows a view, and whether to end after one view.
func (c *topCmd) screen(std streams) (show func(*topView) error, once bool) {
	if c.json() {
		e := json.NewEncoder(std.out)
		e.SetEscapeHTML(false)
		return func(v *topView) error { return e.Encode(v) }, c.Once
	}
	p := newPrinter(std.out)
	if c.Once || !isTerminal(std.out) {
		return func(v *topView) error {
			for _, line := range v.lines(0) {
				p.printf("%s\n", p.paint(line.color, line.text))
			}
			return p.err
		}, true
	}
	return func(v *topView) error {
		columns, rows := sizeOf(std.out)
		p.draw(v.lines(rows-1), columns)
		return p.err
	}, false
}

// sizeOf returns the columns and rows of the terminal w.
func sizeOf(w io.Writer) (columns, rows int) {
	if f, ok := fileOf(w).(*os.File); ok {
		if columns, rows, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 && rows > 0 {
			return columns, rows
		}
	}
	return topColumns, topRows
}

const (
	lineStart   = "\r"
	toTopLeft   = "\x1b[H"
	eraseToEnd  = "\x1b[K"
	eraseBelow  = "\x1b[J"
	eraseScreen = "\x1b[2J"
)

// draw replaces the text on a terminal. It erases old text only where no new text stands, so that nothing
// flickers.
func (p *printer) draw(lines []topLine, columns int) {
	if !p.drawn {
		p.printf("%s", own(eraseScreen))
		p.drawn = true
	}
	p.printf("%s", own(toTopLeft))
	for _, line := range lines {
		text := []rune(line.text)
		p.printf("%s%s%s\n", p.paint(line.color, string(text[:min(len(text), columns)])), own(eraseToEnd), own(lineStart))
	}
	p.printf("%s", own(eraseBelow))
}

// errNoMetrics means that the server that answered is not a broker, or that the body is cut off or larger
// than answerBytesMax.
var errNoMetrics = errors.New("the response to GET /metrics is not what a broker sends")
