package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/httpapi"
)

// consumerResetCmd has no default position: a default could move a consumer by mistake.
type consumerResetCmd struct {
	consumerFlags
	From      string `required:"" placeholder:"POSITION" help:"New position: earliest, latest, an offset N, -N for the last N records, a time like 2026-01-31T12:00:00Z, a day like 2026-01-31 (its beginning, UTC), or 1h for an hour ago."`
	Partition *int32 `placeholder:"N" help:"Move the consumer in this partition only, to an offset, earliest, latest or -N (default: in all partitions)."`
}

// Help shows examples.
func (consumerResetCmd) Help() string {
	return `Moves the consumer, at once and without asking. A missing consumer is created, at the beginning of the
partitions that are not named. A position such as -100 is taken in each partition separately; an offset is valid
in one partition only.

Examples:

    seb consumer reset orders billing --from earliest
    seb consumer reset orders billing --from 2h
    seb consumer reset orders billing --from -100
    seb consumer reset orders billing --partition 3 --from 41

A running seb consume that reads as this consumer ends at its next commit.`
}

// Run sets the consumer's position, and prints its lag.
func (c *consumerResetCmd) Run(ctx context.Context, std streams) error {
	if c.Partition != nil && *c.Partition < 0 {
		return usage(fmt.Errorf("invalid --partition %d: it must be at least 0", *c.Partition))
	}
	position, err := parsePosition(c.From, time.Now())
	if err != nil {
		return err
	}
	broker, err := c.client()
	if err != nil {
		return err
	}
	offsets, err := c.offsets(ctx, broker, position)
	if err != nil {
		return c.failed("reset", err)
	}
	consumer := broker.Consumer(c.Topic, c.Consumer)
	var info seb.ConsumerInfo
	var created bool
	if offsets != nil {
		info, created, err = consumer.ResetTo(ctx, offsets)
	} else {
		info, created, err = consumer.Reset(ctx, position)
	}
	if err != nil {
		return c.failed("reset", err)
	}
	if c.json() {
		return printJSON(std.out, httpapi.ConsumerJSON(info))
	}
	done := "reset"
	if created {
		done = "created"
	}
	lag, _ := behind(info)
	_, err = fmt.Fprintf(std.out, "consumer %s of %s %s; lag: %d\n", c.Consumer, c.Topic, done, lag)
	return err
}

// offsets returns the offsets for position, which depend on the partitions' bounds. It returns nil if the
// broker can reset the consumer to position in all partitions.
func (c *consumerResetCmd) offsets(ctx context.Context, broker *client.Client, position seb.Position) (seb.Offsets, error) {
	last, isLast := isLast(position)
	offset, isOffset := position.Offset()
	named := !isLast && !isOffset // earliest, latest, or a time
	switch {
	case named && c.Partition == nil:
		return nil, nil
	case named && position != seb.Earliest && position != seb.Latest:
		return nil, usage(errors.New("--partition can't be combined with a time in --from: use an offset, earliest, latest or -N, or leave --partition out"))
	}
	t, err := broker.Topic(ctx, c.Topic)
	if err != nil {
		return nil, err
	}
	if isOffset && c.Partition == nil && len(t.Partitions) > 1 {
		return nil, usage(fmt.Errorf("--from %s is an offset in one partition, and the topic has %d partitions: choose one with --partition", c.From, len(t.Partitions)))
	}
	offsets := seb.Offsets{}
	if c.Partition != nil {
		offsets[*c.Partition] = offset // the broker refuses a partition that does not exist
	}
	for _, p := range t.Partitions {
		switch {
		case c.Partition != nil && p.Partition != *c.Partition:
		case position == seb.Earliest:
			offsets[p.Partition] = p.Start
		case position == seb.Latest:
			offsets[p.Partition] = p.End
		case isLast:
			offsets[p.Partition] = max(p.Start, p.End-last)
		default:
			offsets[p.Partition] = offset
		}
	}
	return offsets, nil
}

// isLast returns n if position is the last n records.
func isLast(position seb.Position) (n seb.Offset, ok bool) {
	text, ok := strings.CutPrefix(position.String(), "-")
	last, err := strconv.ParseInt(text, 10, 64)
	return seb.Offset(last), ok && err == nil
}
