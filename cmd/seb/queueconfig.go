package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
)

// queueConfigFlags say how a queue hands out records.
type queueConfigFlags struct {
	Lease           *time.Duration `placeholder:"DURATION" help:"How long a worker has for a record unless it asks for another time, 1s to 12h (default of a new queue: 30s)."`
	MaxAttempts     *int           `placeholder:"N" help:"Attempts before a record is parked (a dead letter), 1 to 1000 (default of a new queue: 5)."`
	Backoff         string         `placeholder:"MIN..MAX" help:"How long a failed record waits, doubled at each attempt, such as 1s..1h; a single time is constant (default of a new queue: 1s..1h)."`
	DeadLetterTopic string         `placeholder:"TOPIC|none" help:"Copy dead letters to this topic, which must exist (default of a new queue: none)."`
}

// update returns the settings of the flags that were given.
func (f queueConfigFlags) update() (seb.QueueUpdate, error) {
	u := seb.QueueUpdate{Lease: f.Lease, MaxAttempts: f.MaxAttempts}
	if f.Backoff != "" {
		least, most, both := strings.Cut(f.Backoff, "..")
		if !both {
			most = least
		}
		shortest, err := httpapi.ParseDuration(least)
		longest, err2 := httpapi.ParseDuration(most)
		if err != nil || err2 != nil || strings.HasPrefix(most, ".") { // 1s...1h would mean 0.1 h
			return u, usageError{hinted(fmt.Errorf("invalid backoff %q", f.Backoff), "write the shortest and the longest wait, such as 1s..1h, or 10s for a constant wait")}
		}
		u.BackoffMin, u.BackoffMax = &shortest, &longest
	}
	switch f.DeadLetterTopic {
	case "":
	case "none":
		u.DeadLetterTopic = new(string)
	default:
		u.DeadLetterTopic = &f.DeadLetterTopic
	}
	return u, nil
}

type queueCreateCmd struct {
	queueFlags
	queueConfigFlags
	Order string `enum:"none,key," default:"" placeholder:"none|key" help:"none hands out all ready records; key hands out one record of each key at a time, in the order of offsets (default: none)."`
	From  string `placeholder:"POSITION" help:"Where the queue begins: earliest, latest, or an offset N in a topic of one partition (default: earliest)."`
	existsFlag
}

// Help shows examples.
func (queueCreateCmd) Help() string {
	return `Examples:

    seb queue create orders mail
    seb queue create orders mail --from latest --lease 5m --max-attempts 10 --backoff 10s..30m
    seb topic create orders.dead && seb queue create orders mail --dead-letter-topic orders.dead
    seb queue create orders accounts --order key
    seb queue create orders mail --if-not-exists

A queue that exists with these settings stays as it is, wherever it began; one with other settings is refused. seb queue
update changes a queue.`
}

// Run creates the queue. It never changes a queue that exists: if that queue has these settings, or with
// --if-not-exists, Run succeeds, and otherwise Run returns an error.
func (c *queueCreateCmd) Run(ctx context.Context, std streams) error {
	u, err := c.update()
	if err != nil {
		return err
	}
	if c.Order != "" {
		u.Order = (*seb.QueueOrder)(&c.Order)
	}
	from, err := seb.ParsePosition(c.From)
	if _, isOffset := from.Offset(); err != nil || !isOffset && from != seb.Earliest && from != seb.Latest {
		return usageError{hinted(fmt.Errorf("invalid --from %q", c.From), "use earliest, latest or an offset such as 41")}
	}
	queue, err := c.queue()
	if err != nil {
		return err
	}
	q, err := queue.Create(ctx, u, from)
	created := err == nil
	if seb.CodeOf(err) == seb.CodeQueueExists {
		q, err = queue.Describe(ctx)
		if err == nil && !c.IfNotExists && !isConfiguredBy(u, q.Config) {
			err = codedError{hinted(fmt.Errorf("it exists with other settings: %s", configText(q.Config)),
				"change it with `seb queue update`, or use it as it is with --if-not-exists"), exitRefused}
		}
	}
	if err != nil {
		return c.failed("create", err)
	}
	if c.json() {
		return printJSON(std.out, withField(httpapi.QueueJSON(q), "created", created))
	}
	state := "exists; "
	if created {
		state = "created; "
	}
	return c.tell(std, q, state+configText(q.Config))
}

// isConfiguredBy tells whether a new queue with the settings u has the config c. Whether the queue is paused does
// not count.
func isConfiguredBy(u seb.QueueUpdate, c seb.QueueConfig) bool {
	return c == seb.QueueConfig{
		Lease:           valueOr(u.Lease, seb.QueueLeaseDefault),
		MaxAttempts:     valueOr(u.MaxAttempts, seb.QueueMaxAttemptsDefault),
		BackoffMin:      valueOr(u.BackoffMin, seb.QueueBackoffMinDefault),
		BackoffMax:      valueOr(u.BackoffMax, seb.QueueBackoffMaxDefault),
		DeadLetterTopic: valueOr(u.DeadLetterTopic, ""),
		Order:           valueOr(u.Order, seb.OrderNone),
		Paused:          c.Paused,
	}
}

// valueOr returns *p, or otherwise if p is nil.
func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

type queueUpdateCmd struct {
	queueFlags
	queueConfigFlags
}

// Help shows examples.
func (queueUpdateCmd) Help() string {
	return `Examples:

    seb queue update orders mail --lease 10m
    seb queue update orders mail --dead-letter-topic none

What is not named stays as it is. Records that are with workers keep their lease. If you lower
--max-attempts, a record that has already failed as often is parked at its next failure.`
}

// Run changes an existing queue.
func (c *queueUpdateCmd) Run(ctx context.Context, std streams) error {
	u, err := c.update()
	if err != nil {
		return err
	}
	if u == (seb.QueueUpdate{}) {
		return usageError{hinted(errors.New("nothing to change"), "give --lease, --max-attempts, --backoff or --dead-letter-topic")}
	}
	queue, err := c.queue()
	if err != nil {
		return err
	}
	q, err := queue.Update(ctx, u)
	if err != nil {
		return c.failed("update", err)
	}
	return c.tell(std, q, "updated; "+configText(q.Config))
}
