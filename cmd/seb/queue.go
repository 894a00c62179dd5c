package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

type queueCmd struct {
	Create  queueCreateCmd  `cmd:"" help:"Create a queue on a topic."`
	Update  queueUpdateCmd  `cmd:"" help:"Change how a queue hands out records."`
	List    queueListCmd    `cmd:"" help:"List the queues of a topic, with their counts."`
	Show    queueShowCmd    `cmd:"" help:"Show the counts of a queue, and its config."`
	Pause   queuePauseCmd   `cmd:"" help:"Hand out no records until the queue is resumed."`
	Resume  queueResumeCmd  `cmd:"" help:"Hand out records again."`
	Dead    queueDeadCmd    `cmd:"" help:"Show the dead letters (parked records), and why they failed."`
	Redrive queueRedriveCmd `cmd:"" help:"Redrive dead letters (parked records): hand them out again."`
	Push    queuePushCmd    `cmd:"" help:"Push a queue's records to a URL."`
	Purge   queuePurgeCmd   `cmd:"" help:"Mark all records of a queue as done."`
	Delete  queueDeleteCmd  `cmd:"" help:"Delete a queue."`
}

// Help tells what queues are.
func (queueCmd) Help() string {
	return `A queue is a view of a topic's records as work to be done: each is handed to one worker for a time, its lease, and
handed out again unless the worker acknowledges it in time. A record that fails its last attempt is parked: it is a
dead letter until it is redriven. The records stay in the topic as they are, and a topic may have many queues. Every
record is handed out at least once. seb work TOPIC QUEUE --exec CMD is a worker for a shell.

Purge and delete act at once, without asking.`
}

// queueInfo is a queue as the API describes it.
type queueInfo struct {
	Name         string          `json:"name"`
	Config       queueConfigInfo `json:"config"`
	Ready        int64           `json:"ready"`
	Leased       *int64          `json:"leased"` // nil if the broker doesn't know
	Held         *int64          `json:"held"`   // nil if the broker doesn't know
	HeldUntil    *string         `json:"held_until"`
	Delayed      int64           `json:"delayed"`
	Dead         int64           `json:"dead"`
	OldestAge    *string         `json:"oldest_age"`
	Received     *float64        `json:"received_per_second"`
	Acknowledged *float64        `json:"acknowledged_per_second"`
	Owner        *string         `json:"owner"`
}

// ownerSelf is how a broker that owns the queue names itself if it advertises no address.
const ownerSelf = "self"

type queueConfigInfo struct {
	Lease           string  `json:"lease"`
	MaxAttempts     int     `json:"max_attempts"`
	Backoff         string  `json:"backoff"`
	DeadLetterTopic *string `json:"dead_letter_topic"`
	Order           string  `json:"order"`
	Paused          bool    `json:"paused"`
}

// String says how the queue hands out records.
func (c queueConfigInfo) String() string {
	s := fmt.Sprintf("lease: %s; attempts: %d; backoff: %s; order: %s; dead-letter topic: %s",
		c.Lease, c.MaxAttempts, c.Backoff, c.Order, textOr(c.DeadLetterTopic, "none"))
	if c.Paused {
		s += "; paused"
	}
	return s
}

// textOr returns *v as text, or the parameter nothing if v is nil.
func textOr[T any](v *T, nothing string) string {
	if v == nil {
		return nothing
	}
	return fmt.Sprint(*v)
}

// age returns the age of the oldest waiting record, rounded for people.
func (q queueInfo) age() string {
	d, err := time.ParseDuration(textOr(q.OldestAge, "-"))
	switch {
	case err != nil:
		return textOr(q.OldestAge, "-")
	case d > time.Minute:
		d = d.Truncate(time.Second)
	default:
		d = d.Truncate(100 * time.Millisecond)
	}
	return d.String()
}

// queueFlags name a queue, and the broker that knows it.
type queueFlags struct {
	serverFlag
	outputFlag
	Topic string `arg:"" type:"topic" help:"Name of the topic."`
	Queue string `arg:"" help:"Name of the queue."`
}

func (f queueFlags) path(more ...string) []string {
	return append([]string{"topics", f.Topic, "queues", f.Queue}, more...)
}

// ask sends a request about the queue, and returns the whole answer and its status. Errors begin with
// doing, a verb such as "show".
func (f queueFlags) ask(ctx context.Context, doing, method string, body any, more ...string) (json.RawMessage, int, error) {
	broker, err := f.client()
	if err != nil {
		return nil, 0, err
	}
	var whole json.RawMessage
	answer := any(&whole)
	if method == http.MethodDelete {
		answer = nil
	}
	status, err := broker.call(ctx, method, broker.url(nil, f.path(more...)...), body, answer)
	if err != nil {
		return nil, 0, f.failed(doing, err)
	}
	return whole, status, nil
}

func (f queueFlags) failed(doing string, err error) error {
	return fmt.Errorf("%s queue %s of %s: %w", doing, f.Queue, f.Topic, err)
}

// tell prints the result: as JSON the whole response, otherwise a line of text, which ends with what the
// function line returns.
func (f queueFlags) tell(std streams, doing string, whole json.RawMessage, line func(queueInfo) string) error {
	if f.json() {
		return printJSON(std.out, whole)
	}
	var q queueInfo
	if err := json.Unmarshal(whole, &q); err != nil {
		return f.failed(doing, err)
	}
	_, err := fmt.Fprintf(std.out, "queue %s of %s %s\n", f.Queue, f.Topic, line(q))
	return err
}

type queueListCmd struct {
	serverFlag
	outputFlag
	Topic string `arg:"" type:"topic" help:"Name of the topic."`
}

const queueColumnsHelp = `READY can be handed out now, DELAYED later: not due yet, or waiting for another attempt. LEASED is
with workers. HELD was handed out by a broker that was lost: it may be with workers, and waits for one lease. - means
that this broker doesn't know, and counts such records as READY: that is so after a restart, until a worker asks for
records. DEAD is parked (a dead letter). OLDEST is the age of the oldest record that is neither done nor parked.`

// Help shows examples.
func (queueListCmd) Help() string {
	return `Examples:

    seb queue list orders
    seb queue list orders --output json | jq -r '.queues[] | select(.dead > 0) | .name'

` + queueColumnsHelp
}

// Run prints a line per queue.
func (c *queueListCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	whole, err := broker.list(ctx, "queues", "topics", c.Topic, "queues")
	if err != nil {
		return fmt.Errorf("list queues of %s: %w", c.Topic, err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"queues": whole})
	}
	queues, err := decodeItems[queueInfo](whole)
	if err != nil {
		return fmt.Errorf("list queues of %s: %w", c.Topic, err)
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("QUEUE\tREADY\tLEASED\tHELD\tDELAYED\tDEAD\tOLDEST\tORDER\tSTATE\n")
		for _, q := range queues {
			state := "open"
			if q.Config.Paused {
				state = "paused"
			}
			row.printf("%s\t%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", q.Name, q.Ready, textOr(q.Leased, "-"), textOr(q.Held, "-"), q.Delayed, q.Dead, q.age(), q.Config.Order, state)
		}
	})
	return out.err
}

type queueShowCmd struct{ queueFlags }

// Help shows examples.
func (queueShowCmd) Help() string {
	return `Examples:

    seb queue show orders mail
    seb queue show orders mail --output json | jq .ready

` + queueColumnsHelp + ` RECEIVED and DONE are
records per second, in about the last minute. The owner is the broker that hands out the
records; any broker takes requests.`
}

// Run prints the counts, and the config.
func (c *queueShowCmd) Run(ctx context.Context, std streams) error {
	whole, _, err := c.ask(ctx, "show", http.MethodGet, nil)
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(std.out, whole)
	}
	var q queueInfo
	if err := json.Unmarshal(whole, &q); err != nil {
		return c.failed("show", err)
	}
	rate := func(r *float64) string {
		if r == nil {
			return "-"
		}
		return fmt.Sprintf("%.1f/s", *r)
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("READY\tLEASED\tHELD\tDELAYED\tDEAD\tOLDEST\tRECEIVED\tDONE\n")
		row.printf("%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", q.Ready, textOr(q.Leased, "-"), textOr(q.Held, "-"), q.Delayed, q.Dead, q.age(), rate(q.Received), rate(q.Acknowledged))
	})
	out.printf("\n%s\n", strings.ReplaceAll(q.Config.String(), "; ", "\n"))
	owner := textOr(q.Owner, "none, or a broker without an advertised address (seb serve --advertise)")
	if owner == ownerSelf {
		owner = "this broker, which advertises no address"
	}
	out.printf("owner: %s\n", owner)
	if q.Leased == nil {
		out.printf("leased and held records count as ready: the owner knows them once a worker has asked for records\n")
	}
	if q.HeldUntil != nil {
		out.printf("held until: %s\n", *q.HeldUntil)
	}
	return out.err
}
