package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// consumerResetCmd has no default position, and takes nothing from the environment: a default or a forgotten
// variable could reset a consumer by mistake.
type consumerResetCmd struct {
	consumerFlags
	From      string `env:"-" required:"" placeholder:"POSITION" help:"New position: earliest, latest, an offset N, -N for the last N records, a time like 2026-01-31T12:00:00Z, a day like 2026-01-31 (its beginning, UTC), or 1h for an hour ago."`
	Partition *int32 `env:"-" placeholder:"N" help:"Move the consumer in this partition only, to an offset, earliest, latest or -N (default: in all partitions)."`
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
	from, err := c.place(ctx, broker, position)
	if err != nil {
		return c.failed("reset", err)
	}
	var whole json.RawMessage
	status, err := broker.call(ctx, http.MethodPut, c.url(broker), map[string]any{"from": from}, &whole)
	if err != nil {
		return c.failed("reset", err)
	}
	if c.json() {
		return printJSON(std.out, whole)
	}
	var info consumerInfo
	if err := json.Unmarshal(whole, &info); err != nil {
		return c.failed("reset", err)
	}
	done := "reset"
	if status == http.StatusCreated {
		done = "created"
	}
	_, err = fmt.Fprintf(std.out, "consumer %s of %s %s; lag: %d\n", c.Consumer, c.Topic, done, info.Lag)
	return err
}

// place turns position, the query parameters for --from, into what the API accepts as a consumer's position:
// a time, the word earliest or latest, or an offset per partition. It asks the broker for the topic's
// partitions and their bounds, except if position is a time, or a word without --partition.
func (c *consumerResetCmd) place(ctx context.Context, broker *client, position url.Values) (any, error) {
	word := position.Get("offset")
	n, err := strconv.ParseInt(word, 10, 64)
	named := err != nil // earliest, latest, or a time
	switch {
	case position.Has("time") && c.Partition != nil:
		return nil, usage(errors.New("--partition can't be combined with a time in --from: use an offset, earliest, latest or -N, or leave --partition out"))
	case position.Has("time"):
		return map[string]any{"time": position.Get("time")}, nil
	case named && c.Partition == nil:
		return word, nil
	}
	var t topicInfo
	if _, err := broker.call(ctx, http.MethodGet, broker.url(nil, "topics", c.Topic), nil, &t); err != nil {
		return nil, err
	}
	if !named && word[0] != '-' && c.Partition == nil && len(t.Partitions) > 1 {
		return nil, usage(fmt.Errorf("--from %s is an offset in one partition, and the topic has %d partitions: choose one with --partition", c.From, len(t.Partitions)))
	}
	offsets := map[int32]int64{}
	if c.Partition != nil {
		offsets[*c.Partition] = max(n, 0) // the broker refuses a partition that does not exist
	}
	for _, p := range t.Partitions {
		switch {
		case c.Partition != nil && p.Partition != *c.Partition:
		case word == "earliest":
			offsets[p.Partition] = p.StartOffset
		case word == "latest":
			offsets[p.Partition] = p.EndOffset
		case word[0] == '-':
			offsets[p.Partition] = max(p.StartOffset, p.EndOffset+n)
		default:
			offsets[p.Partition] = n
		}
	}
	return map[string]any{"offsets": offsets}, nil
}
