package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

// tokenArgs are the tokens of received records.
type tokenArgs struct {
	Tokens []string `arg:"" name:"token" help:"Tokens of records, as seb queue receive shows them."`
}

// answer reports what became of the tokens. doing and done are forms of one verb: acknowledge, acknowledged.
func (a tokenArgs) answer(f queueFlags, std streams, doing, done string, err error) error {
	var some *seb.TokensError
	switch {
	case err != nil && (!errors.As(err, &some) || len(a.Tokens) == 1):
		return f.failed(doing+" records of", err)
	case err != nil:
		return f.failed(doing+" records of", a.refused(std, some))
	case f.json():
		return printJSON(std.out, map[string]any{"topic": f.Topic, "name": f.Queue, strings.ReplaceAll(done, " ", "_"): len(a.Tokens)})
	}
	_, err = fmt.Fprintf(std.out, "queue %s of %s: %s %s\n", f.Queue, f.Topic, counted(int64(len(a.Tokens)), "record", "records"), done)
	return err
}

// refused names each token that was refused, and returns an error for all of them.
func (a tokenArgs) refused(std streams, some *seb.TokensError) error {
	n, code := 0, exitRefused
	for i, err := range some.Errors {
		if err == nil {
			continue
		}
		if n++; seb.OutcomeOf(err) == seb.Unknown {
			code = exitUnknown
		}
		message, _ := said(err)
		note(std.err, "seb: token %s: %s\n", a.Tokens[i], oneLine(message))
	}
	return codedError{fmt.Errorf("%d of %d tokens were refused", n, len(a.Tokens)), code}
}

type queueAckCmd struct {
	queueFlags
	tokenArgs
}

// Help shows examples.
func (queueAckCmd) Help() string {
	return `Examples:

    seb queue ack orders mail 0123abcd.1/0:41.1

The records are done: nobody gets them again. A token is refused if another worker may have the record by now. The end of
the lease alone is no reason to refuse it.`
}

// Run acknowledges the records.
func (c *queueAckCmd) Run(ctx context.Context, std streams) error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	return c.answer(c.queueFlags, std, "acknowledge", "acknowledged", queue.Ack(ctx, c.Tokens...))
}

// queueNackCmd reads its own flags from no variable: a variable that is meant for one record could change another.
type queueNackCmd struct {
	queueFlags
	tokenArgs
	Delay  *time.Duration `env:"-" placeholder:"DURATION" help:"How long the records wait before they are handed out again, 0s to 366d (default: the queue's backoff)."`
	Reason string         `env:"-" placeholder:"TEXT" help:"Why the work failed, at most 1 KiB; shown by seb queue dead (default: none)."`
}

// Help shows examples.
func (queueNackCmd) Help() string {
	return `Examples:

    seb queue nack orders mail 0123abcd.1/0:41.1
    seb queue nack orders mail 0123abcd.1/0:41.1 --delay 0s --reason 'only looked at it'

The records are put back, and handed out again. A record whose last attempt this was is parked (a dead letter): see
seb queue dead.`
}

// Run puts the records back.
func (c *queueNackCmd) Run(ctx context.Context, std streams) error {
	if c.Delay != nil && *c.Delay < 0 {
		return usage(fmt.Errorf("invalid --delay %v: it must not be negative", *c.Delay))
	}
	queue, err := c.queue()
	if err != nil {
		return err
	}
	return c.answer(c.queueFlags, std, "put back", "put back", queue.Nack(ctx, seb.NackOptions{Delay: c.Delay, Reason: c.Reason}, c.Tokens...))
}
