package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/httpapi"
)

type consumeCmd struct {
	serverFlag
	formatFlags
	Topic     string `arg:"" type:"topic" help:"Name of the topic."`
	Partition string `default:"all" placeholder:"N" help:"Partition to read (default ${default}, one after the other; with --follow at the same time)."`
	From      string `placeholder:"POSITION" help:"Where to begin: earliest, latest, an offset N, -N for the last N records of each partition, a time like 2026-01-31T12:00:00Z, a day like 2026-01-31 (its beginning, UTC), or 1h for an hour ago (default: earliest)."`
	Consumer  string `placeholder:"NAME" help:"Begin at the position of the consumer of this name, and commit what was written, so that the next call continues after it (default: none)."`
	AckLines  bool   `env:"-" help:"Commit a record when a line comes on standard input, one for each record in the order of the output; needs --consumer."`
	Follow    bool   `short:"f" help:"Wait for records to come instead of stopping at the end."`
	Limit     int64  `placeholder:"N" help:"Stop after N records, 1 or more (default: no limit)."`
	Raw       bool   `help:"Write control characters to a terminal as they are (default: escaped, such as \\x1b)."`
	// Other commands have this flag. Here it only gives an error that names --format.
	Output *string `short:"o" env:"-" hidden:"" help:"Not here: see --format."`
}

// Help shows examples.
func (consumeCmd) Help() string {
	return `Writes records to standard output, those of a partition in order. Stops at the end of the topic as it was at the
start. With --follow it goes on until it is interrupted, even if the broker restarts or is not there yet, and also reads
partitions that are added; the topic must exist. A position such as -10 is taken in each partition separately, and records of different partitions are not
sorted by time: seb consume reads one partition after the other. Without --consumer nothing is
remembered between calls: say where to begin with --from. If the topic is deleted, seb consume ends with exit code 4,
even if a new topic has the same name by then.

On a terminal, control characters are shown escaped, such as \x1b; --raw writes them as they are. Files and pipes get
records as they are in any case.

With --consumer it begins at the consumer's position, and commits a record after the output took it: each record is
written at least once, even if seb is killed. But if a program behind a pipe is killed, it never
gets the records that the pipe took and it had not processed: use seb work to run a program for each record, or
--ack-lines. A consumer that does not exist is created, at the beginning; for its position, see seb consumer show. If
another program moves the consumer meanwhile, seb consume ends with exit code 4.

With --ack-lines, the program writes a line to the standard input of seb consume for each record that it has processed,
in their order, and only these records are committed; what the line says does not matter. After the last record, or an
interrupt, seb consume closes its output, and waits until all written records are acknowledged. If standard input ends
before that, the exit code is 1. A program that is started again may get records that it has already processed.

Examples:

    seb consume greetings
    seb consume events --from -10 --follow
    seb consume events --from 2h --key-separator '\t'
    seb consume clicks --partition 3 --from 41 --limit 1
    seb consume orders --format json | jq 'select(.key == "42") | .value'
    seb consume orders --consumer billing --follow
    mkfifo answers
    seb consume orders --consumer billing --ack-lines <answers | while read -r x; do bill "$x" && echo || exit; done >answers
    seb consume pictures --from -1 --format raw > newest.png

` + formatsHelp
}

// Run writes records until the end, the limit, an interrupt, or until its output is closed.
func (c *consumeCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	from, err := c.check(time.Now())
	if err != nil {
		return err
	}
	if c.Consumer != "" && closedAtStart(std.out) {
		return usageError{hinted(errors.New("standard output is closed, or is /dev/null opened for reading and writing: with --consumer, seb would commit records that no program gets"),
			fmt.Sprintf("send the output to a file or a program; to skip all records without reading them, use `seb consumer reset %s %s --from latest`", c.Topic, c.Consumer))}
	}
	form := c.output()
	if isTerminal(std.out) && !c.Raw {
		form = form.visible()
	}
	r := &topicReader{
		cmd: c, broker: broker, form: form, from: from, warn: std.err, lookEvery: lookEvery,
		out: bufio.NewWriterSize(fileOf(std.out), 64<<10), progress: newProgress(std.err, 0),
	}
	if c.Consumer != "" {
		r.committer = newPositionCommitter(broker.Consumer(c.Topic, c.Consumer))
	}
	read := r.readAll
	if c.AckLines {
		r.acks = newAcknowledgements(std.in, c.Follow)
		read = func(ctx context.Context) error { return r.readAcknowledged(ctx, fileOf(std.out)) }
	}
	if c.Follow || isTerminal(std.out) {
		r.progress.w = nil // the line of progress would mix with the records
	}
	err = read(ctx)
	r.progress.clear()
	switch {
	case err == nil || nobodyReads(err):
		return nil
	case errors.As(err, new(commitError)):
	case ctx.Err() != nil && c.Follow:
		return errEnded
	case ctx.Err() != nil:
		err = errInterrupted
	}
	return c.explain(fmt.Errorf("consume %s: %w", c.Topic, err), r)
}

// explain adds to err how far r has read, and how to continue.
func (c *consumeCmd) explain(err error, r *topicReader) error {
	code := seb.CodeOf(err)
	goOn := "go on with " + r.positions()
	if c.Consumer != "" {
		goOn = "the same command continues after the committed records"
	}
	written := counted(r.written, "record was written", "records were written")
	switch {
	case code == seb.CodeTopicNotFound: // the hint names no positions, since those would be in the deleted topic
		if r.tag != "" {
			err = hinted(err, written+"; the topic was deleted meanwhile")
		}
	case code == seb.CodeTopicRecreated:
		err = hinted(err, written+", all of the deleted topic; no record of the new topic was read: start again")
	case code == seb.CodePositionConflict:
		err = hinted(err, fmt.Sprintf("%s; the consumer was reset, or another reader uses its name: check with `seb consumer show %s %s`", written, c.Topic, c.Consumer))
	case code == seb.CodeOffsetOutOfRange && c.Consumer != "":
		err = hinted(err, fmt.Sprintf("%s; the next records were deleted before they were read: skip them with `seb consumer reset %s %s --from earliest`, or choose another position",
			written, c.Topic, c.Consumer))
	case errors.As(err, new(outputError)) && c.Consumer != "":
		err = hinted(err, written+" completely; more records may follow in the output, the last of them cut off; "+goOn)
	case errors.As(err, new(outputError)):
		err = hinted(err, fmt.Sprintf("%s completely; more records may follow in the output, the last of them cut off; to continue after the first %d, use %s",
			written, r.written, r.positions()))
	case r.written > 0:
		goOn = written + "; " + goOn
		if _, hint := said(err); hint != "" {
			goOn = hint + "; " + goOn
		}
		err = hinted(err, goOn)
	}
	return err
}

// check refuses invalid flags, and returns where to begin.
func (c *consumeCmd) check(now time.Time) (from seb.Position, err error) {
	if c.Output != nil {
		return from, usageError{hinted(errors.New("consume has no --output: it writes records"), "choose their form with --format, such as --format json")}
	}
	if err := c.checkFormat(); err != nil {
		return from, err
	}
	if n, err := strconv.ParseInt(c.Partition, 10, 32); c.Partition != "all" && (err != nil || n < 0) {
		return from, usage(fmt.Errorf("invalid --partition %q: it must be a number or all", c.Partition))
	}
	if c.From != "" && c.Consumer != "" {
		return from, usageError{hinted(errors.New("--from and --consumer exclude each other: both say where to begin"),
			fmt.Sprintf("leave one out; `seb consumer reset %s %s --from %s` moves the consumer", c.Topic, c.Consumer, c.From))}
	}
	if c.AckLines && c.Consumer == "" {
		return from, usage(errors.New("--ack-lines needs --consumer: it says what to commit"))
	}
	if c.From == "" {
		c.From = "earliest"
	}
	return parsePosition(c.From, now)
}

// parsePosition returns the position that --from names.
func parsePosition(from string, now time.Time) (seb.Position, error) {
	if day, err := time.Parse(time.DateOnly, from); err == nil {
		return seb.AtTime(day), nil
	}
	if ago, err := httpapi.ParseDuration(from); err == nil && ago > 0 {
		return seb.AtTime(now.Add(-ago)), nil
	}
	position, err := seb.ParsePosition(from)
	if err != nil || from == "" {
		return position, usageError{hinted(fmt.Errorf("invalid --from %q", from),
			"use earliest, latest, an offset such as 41, -10 for the last ten records, a time with its zone such as 2026-01-31T12:00:00Z, a day such as 2026-01-31, 1h for an hour ago, or 7d")}
	}
	return position, nil
}

// isOffset tells whether --from is an offset, which is valid in one partition only.
func (c *consumeCmd) isOffset() bool {
	n, err := strconv.ParseInt(c.From, 10, 64)
	return err == nil && n >= 0 && c.From[0] != '-'
}

// outputForm is the encoding to ask a broker for, and how each record of the answer is written.
type outputForm struct {
	encoding client.Encoding
	write    func(out *bufio.Writer, record []byte) error
}

// output returns the form that the flags choose.
func (f *formatFlags) output() outputForm {
	switch {
	case f.Format == formatJSON:
		return outputForm{client.Lines, writeLine}
	case f.Format == formatBinary:
		return outputForm{client.Lines, writeSized}
	case f.Format == formatRaw:
		return outputForm{client.Values, func(out *bufio.Writer, record []byte) error {
			_, err := out.Write(record)
			return err
		}}
	case f.separator != "":
		return outputForm{client.Lines, func(out *bufio.Writer, record []byte) error {
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
		return outputForm{client.Values, writeLine}
	}
}

// visible returns the form with control characters escaped, for a terminal: a record may contain control
// sequences, which the terminal would obey.
func (f outputForm) visible() outputForm {
	return outputForm{f.encoding, func(out *bufio.Writer, record []byte) error {
		var whole bytes.Buffer
		w := bufio.NewWriter(&whole)
		if err := errors.Join(f.write(w, record), w.Flush()); err != nil {
			return err
		}
		_, err := out.Write(appendVisible(nil, whole.Bytes(), nil))
		return err
	}}
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
