package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

type queuePauseCmd struct{ queueFlags }

// Help shows examples.
func (queuePauseCmd) Help() string {
	return `Examples:

    seb queue pause orders mail

Workers keep the records that they have, and can still acknowledge them or put them back. Workers that ask for more
records wait.`
}

// Run pauses the queue.
func (c *queuePauseCmd) Run(ctx context.Context, std streams) error {
	whole, _, err := c.ask(ctx, "pause", http.MethodPost, nil, "pause")
	if err != nil {
		return err
	}
	return c.tell(std, "pause", whole, func(queueInfo) string { return "paused" })
}

type queueResumeCmd struct{ queueFlags }

// Help shows examples.
func (queueResumeCmd) Help() string {
	return `Examples:

    seb queue resume orders mail`
}

// Run resumes the queue.
func (c *queueResumeCmd) Run(ctx context.Context, std streams) error {
	whole, _, err := c.ask(ctx, "resume", http.MethodPost, nil, "resume")
	if err != nil {
		return err
	}
	return c.tell(std, "resume", whole, func(q queueInfo) string {
		return "resumed; " + counted(q.Ready, "record is ready", "records are ready")
	})
}

type queuePurgeCmd struct{ queueFlags }

// Help shows examples.
func (queuePurgeCmd) Help() string {
	return `Examples:

    seb queue purge orders mail

All records of the queue count as done, at once and without asking: also those that are delayed, parked, or with
workers. What these workers then answer has no effect. The records stay in the topic. Later records are handed out
as usual.`
}

// Run purges the queue, and tells how many records were purged.
func (c *queuePurgeCmd) Run(ctx context.Context, std streams) error {
	whole, _, err := c.ask(ctx, "purge", http.MethodPost, nil, "purge")
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(std.out, whole)
	}
	var answer struct {
		Purged int64 `json:"purged"`
	}
	if err := json.Unmarshal(whole, &answer); err != nil {
		return c.failed("purge", err)
	}
	_, err = fmt.Fprintf(std.out, "queue %s of %s purged; records: %d\n", c.Queue, c.Topic, answer.Purged)
	return err
}

type queueDeleteCmd struct{ queueFlags }

// Help shows examples.
func (queueDeleteCmd) Help() string {
	return `Examples:

    seb queue delete orders mail

The queue is deleted at once, without asking. The records stay in the topic. A queue created later with this name shares
nothing with the deleted one.`
}

// Run deletes the queue.
func (c *queueDeleteCmd) Run(ctx context.Context, std streams) error {
	if _, _, err := c.ask(ctx, "delete", http.MethodDelete, nil); err != nil {
		return err
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"topic": c.Topic, "name": c.Queue, "deleted": true})
	}
	_, err := fmt.Fprintf(std.out, "queue %s of %s deleted\n", c.Queue, c.Topic)
	return err
}
