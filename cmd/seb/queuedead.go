package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/httpapi"
)

const (
	deadPageMax = 1000   // the most records in one answer
	redriveMax  = 10_000 // the most records that one request redrives
	placesMax   = 1000   // the most records that one request names
)

type queueDeadCmd struct {
	queueFlags
	Limit int    `default:"100" placeholder:"N" help:"Show at most N (default ${default})."`
	Next  string `placeholder:"PARTITION:OFFSET" help:"Go on where the previous call ended, as its last line says (default: the first)."`
}

// Help shows examples.
func (queueDeadCmd) Help() string {
	return `Examples:

    seb queue dead orders mail
    seb queue dead orders mail --limit 20 --next 0:41
    seb queue dead orders mail --output json | jq -r '.messages[] | [.key, .reason] | @tsv'

Dead letters (parked records) by partition and offset. ATTEMPTS counts the attempts since the last redrive. REASON is
what the last worker said, or that its lease ran out. If there are more, the last line says how to go on. With
--output json records are complete, and "next" is null or the value for --next. seb queue redrive hands dead letters
out again.`
}

// placePattern is the form of --next.
var placePattern = regexp.MustCompile(`^[0-9]{1,10}:[0-9]{1,19}$`)

// Run prints a line per record.
func (c *queueDeadCmd) Run(ctx context.Context, std streams) error {
	if c.Limit < 1 {
		return usage(fmt.Errorf("invalid --limit %d: it must be at least 1", c.Limit))
	}
	if c.Next != "" && !placePattern.MatchString(c.Next) {
		return usage(fmt.Errorf("invalid --next %q: use the PARTITION:OFFSET that the previous call ended with, such as 0:41", c.Next))
	}
	queue, err := c.queue()
	if err != nil {
		return err
	}
	dead, next, err := c.read(ctx, queue)
	if err != nil {
		return c.failed("show the dead letters of", err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"messages": each(dead, httpapi.DeadJSON), "more": next != nil, "next": next})
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("PARTITION\tOFFSET\tATTEMPTS\tPARKED\tREASON\n")
		for _, d := range dead {
			row.printf("%d\t%d\t%d\t%s\t%s\n", d.Partition, d.Offset, d.Attempts, d.Parked.UTC().Format(time.RFC3339), oneLine(d.Reason))
		}
	})
	if next != nil {
		note(std.err, "there are more: go on with --next %s\n", *next)
	}
	return out.err
}

// read returns at most --limit dead letters. next is the value for --next, nil if no dead letters follow.
func (c *queueDeadCmd) read(ctx context.Context, queue client.Queue) (dead []seb.DeadMessage, next *string, _ error) {
	var from seb.Place
	if c.Next != "" {
		if _, err := fmt.Sscanf(c.Next, "%d:%d", &from.Partition, &from.Offset); err != nil {
			return nil, nil, usage(fmt.Errorf("invalid --next %q: %w", c.Next, err))
		}
	}
	for {
		page, after, more, err := queue.Dead(ctx, seb.DeadOptions{From: from, Limit: min(c.Limit-len(dead), deadPageMax)})
		if err != nil {
			return nil, nil, err
		}
		dead = append(dead, page...)
		switch {
		case !more:
			return dead, nil, nil
		case len(dead) >= c.Limit:
			return dead, new(fmt.Sprintf("%d:%d", after.Partition, after.Offset)), nil
		}
		from = after
	}
}

// oneLine makes one line of untrusted text, and replaces characters that can't be printed.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ReplaceAll(strings.TrimSpace(s), "\n", "; "))
}

type queueRedriveCmd struct {
	queueFlags
	Partition *int32  `placeholder:"N" help:"Partition of the records that --offset names (default: 0)."`
	Offset    []int64 `placeholder:"N" help:"Redrive this record only; may be repeated, or a list with commas (default: all parked records)."`
	Limit     *int64  `placeholder:"N" help:"Redrive the first N only, by partition and offset (default: all parked records)."`
}

// Help shows examples.
func (queueRedriveCmd) Help() string {
	return `Examples:

    seb queue redrive orders mail
    seb queue redrive orders mail --limit 100
    seb queue redrive orders mail --partition 3 --offset 41,57

The records are handed out again, with all the attempts that the queue allows. A record that is not parked is skipped.
Copies in a dead-letter topic stay there.`
}

// Run redrives the records, and tells how many dead letters it redrove and how many are left.
func (c *queueRedriveCmd) Run(ctx context.Context, std streams) error {
	opts, err := c.options()
	if err != nil {
		return err
	}
	queue, err := c.queue()
	if err != nil {
		return err
	}
	var redriven, remaining int64
	for {
		opts.Limit = redriveMax // how many records this request redrives at most
		if c.Limit != nil {
			opts.Limit = int(min(redriveMax, *c.Limit-redriven))
		}
		done, err := queue.Redrive(ctx, opts)
		if err != nil {
			return c.failed("redrive", err)
		}
		remaining = done.Remaining
		redriven += int64(done.Records)
		if done.Records < opts.Limit || c.Limit != nil && redriven >= *c.Limit {
			break
		}
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"redriven": redriven, "remaining": remaining})
	}
	_, err = fmt.Fprintf(std.out, "queue %s of %s redriven; records: %d; still parked: %d\n", c.Queue, c.Topic, redriven, remaining)
	return err
}

// options returns the records of --offset, or no records, which means all dead letters.
func (c *queueRedriveCmd) options() (o seb.RedriveOptions, _ error) {
	switch {
	case c.Partition != nil && len(c.Offset) == 0:
		return o, usageError{hinted(errors.New("--partition needs --offset"), "name the records with --offset, or leave --partition out to redrive all parked records")}
	case c.Limit != nil && len(c.Offset) > 0:
		return o, usage(errors.New("--limit can't be combined with --offset"))
	case c.Limit != nil && *c.Limit < 1:
		return o, usage(fmt.Errorf("invalid --limit %d: it must be at least 1", *c.Limit))
	case len(c.Offset) > placesMax:
		return o, usage(fmt.Errorf("%d offsets were given; at most %d are allowed in a call", len(c.Offset), placesMax))
	case len(c.Offset) == 0:
		return o, nil
	}
	var partition int32
	if c.Partition != nil {
		partition = *c.Partition
	}
	for _, offset := range c.Offset {
		if offset < 0 || partition < 0 {
			return o, usage(fmt.Errorf("--partition and --offset must be at least 0, but are %d and %d", partition, offset))
		}
		o.Places = append(o.Places, seb.Place{Partition: partition, Offset: seb.Offset(offset)})
	}
	return o, nil
}
