package main

import (
	"context"
	"fmt"

	"github.com/simple-event-broker/seb"
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
	queue, err := c.queue()
	if err != nil {
		return err
	}
	q, err := queue.Update(ctx, seb.QueueUpdate{Paused: new(true)})
	if err != nil {
		return c.failed("pause", err)
	}
	return c.tell(std, q, "paused")
}

type queueResumeCmd struct{ queueFlags }

// Help shows examples.
func (queueResumeCmd) Help() string {
	return `Examples:

    seb queue resume orders mail`
}

// Run resumes the queue.
func (c *queueResumeCmd) Run(ctx context.Context, std streams) error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	q, err := queue.Update(ctx, seb.QueueUpdate{Paused: new(false)})
	if err != nil {
		return c.failed("resume", err)
	}
	return c.tell(std, q, "resumed; "+counted(q.Ready, "record is ready", "records are ready"))
}

type queuePurgeCmd struct {
	queueFlags
	confirmFlag
}

// Help shows examples.
func (queuePurgeCmd) Help() string {
	return `Examples:

    seb queue purge orders mail

All records of the queue count as done, also those that are delayed, parked, or with workers. On a terminal, seb asks
first. What these workers then answer has no effect. The records stay in the topic. Later records are handed out
as usual.`
}

// Run purges the queue, and tells how many records were purged.
func (c *queuePurgeCmd) Run(ctx context.Context, std streams) error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	if err := c.confirm(ctx, std, fmt.Sprintf("Mark all records of queue %s of %s%s as done?", c.Queue, c.Topic, c.at())); err != nil {
		return c.failed("purge", err)
	}
	purged, err := queue.Purge(ctx)
	if err != nil {
		return c.failed("purge", err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"purged": purged})
	}
	_, err = fmt.Fprintf(std.out, "queue %s of %s purged; records: %d\n", c.Queue, c.Topic, purged)
	return err
}

type queueDeleteCmd struct {
	queueFlags
	confirmFlag
}

// Help shows examples.
func (queueDeleteCmd) Help() string {
	return `Examples:

    seb queue delete orders mail

On a terminal, seb asks first. The records stay in the topic. A queue created later with this name shares
nothing with the deleted one.`
}

// Run deletes the queue.
func (c *queueDeleteCmd) Run(ctx context.Context, std streams) error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	question := fmt.Sprintf("Delete queue %s of %s%s, and forget which of its records are done?", c.Queue, c.Topic, c.at())
	if err := c.confirm(ctx, std, question); err != nil {
		return c.failed("delete", err)
	}
	if err := queue.Delete(ctx); err != nil {
		return c.failed("delete", err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"topic": c.Topic, "name": c.Queue, "deleted": true})
	}
	_, err = fmt.Fprintf(std.out, "queue %s of %s deleted\n", c.Queue, c.Topic)
	return err
}
