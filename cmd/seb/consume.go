package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/simple-event-broker/seb"
)

type consumeCmd struct {
	serverFlag
	formatFlags
	Topic     string `arg:"" type:"topic" help:"Name of the topic."`
	Partition string `default:"all" placeholder:"N" help:"Partition to read (default ${default}, one after the other; with --follow at the same time)."`
	From      string `default:"earliest" placeholder:"POSITION" help:"Where to begin: earliest, latest, an offset N, -N for the last N records, a time like 2026-01-31T12:00:00Z, a day like 2026-01-31 (its beginning, UTC), or 1h for an hour ago (default ${default})."`
	Follow    bool   `short:"f" help:"Wait for records to come instead of stopping at the end."`
	Limit     int64  `placeholder:"N" help:"Stop after N records (default: no limit)."`
	// What other commands write their result with, and this one has none of.
	Output *string `short:"o" env:"-" hidden:"" help:"Not here: see --format."`
}

// Help shows examples.
func (consumeCmd) Help() string {
	return `Writes records to standard output, those of a partition in order. Stops at the end of the topic as it was at the
start. With --follow it goes on until it is interrupted, also across restarts of the broker, and reads partitions
that are added, too. A position counts in each partition for itself. Nothing is remembered between calls: say where
to begin with --from. If the topic is deleted, it ends with exit code 4, also when another topic has its name by
then.

Examples:

    seb consume greetings
    seb consume events --from -10 --follow
    seb consume events --from 2h --key-separator '\t'
    seb consume clicks --partition 3 --from 41 --limit 1
    seb consume orders --format json | jq 'select(.key == "42") | .value'
    seb consume pictures --from -1 --format raw > newest.png

` + formatsHelp
}

// Run writes records until the end, the limit, an interrupt, or until nobody
// reads its output any more.
func (c *consumeCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	from, err := c.check(time.Now())
	if err != nil {
		return err
	}
	r := &consumer{
		cmd: c, broker: broker, form: c.output(), from: from, warn: std.err, lookEvery: lookEvery,
		out: bufio.NewWriterSize(std.out, 64<<10), progress: newProgress(std.err, 0),
	}
	if c.Follow || isTerminal(std.out) {
		r.progress.w = nil // it would stand between the records
	}
	err = r.copyAll(ctx)
	r.progress.clear()
	switch {
	case err == nil || nobodyReads(err):
		return nil
	case ctx.Err() != nil && c.Follow:
		return errEnded
	case ctx.Err() != nil:
		err = errInterrupted
	}
	err = fmt.Errorf("consume %s: %w", c.Topic, err)
	var refusal *apiError
	switch {
	case errors.As(err, &refusal) && refusal.Code == seb.CodeTopicNotFound: // positions are of the topic that is gone
		if r.topicID != "" {
			err = hinted(err, fmt.Sprintf("%d records were written; the topic was deleted meanwhile", r.written))
		}
	case refusal != nil && refusal.Code == seb.CodeTopicRecreated:
		err = hinted(err, fmt.Sprintf("%d records were written, all of the topic that was deleted; nothing of the new one was read: begin anew", r.written))
	case errors.As(err, new(outputError)):
		err = hinted(err, fmt.Sprintf("%d records were written, then perhaps some more, and a part of one; what follows the %[1]d begins at %s",
			r.written, r.positions()))
	case r.written > 0:
		goOn := fmt.Sprintf("%d records were written; go on with %s", r.written, r.positions())
		if h, ok := errors.AsType[hintError](err); ok {
			goOn = h.hint + "; " + goOn
		}
		err = hinted(err, goOn)
	}
	return err
}

// check refuses flags that make no sense, and returns where to begin.
func (c *consumeCmd) check(now time.Time) (from url.Values, err error) {
	if c.Output != nil {
		return nil, usageError{hinted(errors.New("consume has no --output: what it writes is records"), "choose their form with --format, such as --format json")}
	}
	if err := c.checkFormat(); err != nil {
		return nil, err
	}
	if c.Limit < 0 {
		return nil, usage(errors.New("--limit must be at least 0"))
	}
	if n, err := strconv.ParseInt(c.Partition, 10, 32); c.Partition != "all" && (err != nil || n < 0) {
		return nil, usage(fmt.Errorf("--partition %q is neither a number nor all", c.Partition))
	}
	at, err := time.Parse(time.RFC3339Nano, c.From)
	if day, dayErr := time.Parse(time.DateOnly, c.From); dayErr == nil {
		at, err = day, nil
	}
	if ago, agoErr := time.ParseDuration(c.From); agoErr == nil && ago > 0 {
		at, err = now.Add(-ago), nil
	}
	if err != nil {
		if _, err := seb.ParsePosition(c.From); err == nil {
			return url.Values{"offset": {c.From}}, nil
		}
		return nil, usageError{hinted(fmt.Errorf("--from: %q is no position", c.From),
			"use earliest, latest, an offset such as 41, -10 for the last ten records, a time with its zone such as 2026-01-31T12:00:00Z, a day such as 2026-01-31, or 1h for an hour ago")}
	}
	return url.Values{"time": {at.UTC().Format(time.RFC3339Nano)}}, nil
}

// isOffset tells whether --from is an offset, which is of one partition only.
func (c *consumeCmd) isOffset() bool {
	n, err := strconv.ParseInt(c.From, 10, 64)
	return err == nil && n >= 0 && c.From[0] != '-'
}

// outputForm is what to ask a broker for, and how each record of the answer is written.
type outputForm struct {
	accept string
	write  func(out *bufio.Writer, record []byte) error
}

// output returns the form that the flags choose.
func (f *formatFlags) output() outputForm {
	switch {
	case f.Format == formatJSON:
		return outputForm{ndjsonType, writeLine}
	case f.Format == formatBinary:
		return outputForm{ndjsonType, writeSized}
	case f.Format == formatRaw:
		return outputForm{batchType, func(out *bufio.Writer, record []byte) error {
			_, err := out.Write(record)
			return err
		}}
	case f.separator != "":
		return outputForm{ndjsonType, func(out *bufio.Writer, record []byte) error {
			key, value, err := parseKeyed(record)
			if err != nil {
				return err
			}
			if key != nil {
				value = append(append(key, f.separator...), value...)
			}
			return writeLine(out, value)
		}}
	default:
		return outputForm{batchType, writeLine}
	}
}

func writeLine(out *bufio.Writer, record []byte) error {
	if _, err := out.Write(record); err != nil {
		return err
	}
	return out.WriteByte('\n')
}

func writeSized(out *bufio.Writer, record []byte) error {
	key, value, err := parseKeyed(record)
	if err != nil {
		return err
	}
	_, err = out.Write(appendSized(appendSized(nil, key), value))
	return err
}
