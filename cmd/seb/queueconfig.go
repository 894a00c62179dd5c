package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// queueConfigFlags say how a queue hands out records. They are not read from the environment: a variable that
// is meant for new queues could change an existing one.
type queueConfigFlags struct {
	Lease           *time.Duration `env:"-" placeholder:"DURATION" help:"How long a worker has for a record unless it asks for another time, 1s to 12h (default: unchanged; 30s for a new queue)."`
	MaxAttempts     *int           `env:"-" placeholder:"N" help:"Attempts before a record is parked (a dead letter), 1 to 1000 (default: unchanged; 5 for a new queue)."`
	Backoff         string         `env:"-" placeholder:"MIN..MAX" help:"How long a failed record waits, doubled at each attempt, such as 1s..1h; a single time is constant (default: unchanged; 1s..1h for a new queue)."`
	DeadLetterTopic string         `env:"-" placeholder:"TOPIC|none" help:"Copy dead letters to this topic, which must exist (default: unchanged; none for a new queue)."`
}

// fields returns the settings of the flags that were given, as the API takes them.
func (f queueConfigFlags) fields() map[string]any {
	config := map[string]any{}
	if f.Lease != nil {
		config["lease"] = f.Lease.String()
	}
	if f.MaxAttempts != nil {
		config["max_attempts"] = *f.MaxAttempts
	}
	if f.Backoff != "" {
		config["backoff"] = f.Backoff
	}
	switch f.DeadLetterTopic {
	case "":
	case "none":
		config["dead_letter_topic"] = nil
	default:
		config["dead_letter_topic"] = f.DeadLetterTopic
	}
	return config
}

type queueCreateCmd struct {
	queueFlags
	queueConfigFlags
	Order string `env:"-" enum:"none,key," default:"" placeholder:"none|key" help:"none hands out all ready records; key hands out one record of each key at a time, in the order of offsets (default: none)."`
	From  string `env:"-" placeholder:"POSITION" help:"Where the queue begins: earliest, latest, or an offset N in a topic of one partition (default: earliest)."`
}

// Help shows examples.
func (queueCreateCmd) Help() string {
	return `Examples:

    seb queue create orders mail
    seb queue create orders mail --from latest --lease 5m --max-attempts 10 --backoff 10s..30m
    seb topic create orders.dead && seb queue create orders mail --dead-letter-topic orders.dead
    seb queue create orders accounts --order key

If the queue exists, the settings that you name change, the others stay, and no record is lost. The order can't change.`
}

// Run creates the queue. If the queue exists, Run changes the settings for which flags were given.
func (c *queueCreateCmd) Run(ctx context.Context, std streams) error {
	body := c.fields()
	if c.Order != "" {
		body["order"] = c.Order
	}
	switch n, err := strconv.ParseInt(c.From, 10, 64); {
	case c.From == "":
	case err == nil && n >= 0 && c.From[0] != '-':
		body["from"] = map[string]int64{"offset": n}
	case c.From == "earliest" || c.From == "latest":
		body["from"] = c.From
	default:
		return usageError{hinted(fmt.Errorf("invalid --from %q", c.From), "use earliest, latest or an offset such as 41")}
	}
	whole, status, err := c.ask(ctx, "create", http.MethodPut, body)
	if err != nil {
		return err
	}
	return c.tell(std, "create", whole, func(q queueInfo) string {
		if status == http.StatusCreated {
			return "created; " + q.Config.String()
		}
		return "exists; " + q.Config.String()
	})
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
	body := c.fields()
	if len(body) == 0 {
		return usageError{hinted(errors.New("nothing to change"), "give --lease, --max-attempts, --backoff or --dead-letter-topic")}
	}
	// The PUT below would create a missing queue, so a GET first makes sure that the queue exists.
	if _, _, err := c.ask(ctx, "update", http.MethodGet, nil); err != nil {
		return err
	}
	whole, _, err := c.ask(ctx, "update", http.MethodPut, body)
	if err != nil {
		return err
	}
	return c.tell(std, "update", whole, func(q queueInfo) string { return "updated; " + q.Config.String() })
}
