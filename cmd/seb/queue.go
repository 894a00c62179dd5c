package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/httpapi"
)

type queueCmd struct {
	Create  queueCreateCmd  `cmd:"" help:"Create a queue on a topic."`
	Update  queueUpdateCmd  `cmd:"" help:"Change how a queue hands out records."`
	List    queueListCmd    `cmd:"" help:"List the queues of a topic, with their counts."`
	Show    queueShowCmd    `cmd:"" help:"Show the counts of a queue, and its config."`
	Receive queueReceiveCmd `cmd:"" help:"Receive records by hand."`
	Ack     queueAckCmd     `cmd:"" help:"Acknowledge received records: they are done."`
	Nack    queueNackCmd    `cmd:"" help:"Put received records back: the work failed."`
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
record is handed out at least once. seb work TOPIC QUEUE --exec CMD is a worker for a shell; receive, ack and nack do a
worker's work by hand.

Purge and delete ask first on a terminal, unless you add --yes.`
}

// ownerSelf is how a broker that owns the queue names itself if it advertises no address.
const ownerSelf = "self"

// configText says how a queue hands out records.
func configText(c seb.QueueConfig) string {
	s := fmt.Sprintf("lease: %v; attempts: %d; backoff: %v..%v; order: %s; dead-letter topic: %s",
		c.Lease, c.MaxAttempts, c.BackoffMin, c.BackoffMax, c.Order, cmp.Or(c.DeadLetterTopic, "none"))
	if c.Paused {
		s += "; paused"
	}
	return s
}

// pushOf returns how a queue is pushed, nil if it is not, or if the API key may not ask for that.
func pushOf(ctx context.Context, queue client.Queue) (*seb.PushInfo, error) {
	p, err := queue.Push(ctx)
	if code := seb.CodeOf(err); code == seb.CodePushNotFound || code == seb.CodeForbidden {
		return nil, nil //nolint:nilnil // not pushed, as far as this caller may know
	}
	return &p, err
}

// pushesOf is pushOf for several queues of a topic. A queue that was deleted meanwhile counts as not pushed.
func pushesOf(ctx context.Context, broker *client.Client, queues []seb.QueueInfo) ([]*seb.PushInfo, error) {
	pushes := make([]*seb.PushInfo, len(queues))
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(pushRequestsMax)
	for i, q := range queues {
		all.Go(func() (err error) {
			pushes[i], err = pushOf(ctx, broker.Queue(q.Topic, q.Name))
			if seb.CodeOf(err) == seb.CodeQueueNotFound {
				return nil
			}
			return err
		})
	}
	return pushes, all.Wait()
}

// pushRequestsMax is how many requests about pushes are under way at a time.
const pushRequestsMax = 8

// stateText says in a table whether and how a queue hands out records.
func stateText(q seb.QueueInfo, p *seb.PushInfo) string {
	switch {
	case q.Config.Paused:
		return "paused"
	case p == nil:
		return "open"
	case p.Stopped != "":
		return "push stopped"
	case p.Blocked != "":
		return "push blocked"
	case p.Failing != "":
		return "push failing"
	}
	return "pushed"
}

// withPush describes a queue as the HTTP API does, with its push in the field push, null if it is not pushed.
func withPush(q seb.QueueInfo, p *seb.PushInfo) json.RawMessage {
	push := json.RawMessage("null")
	if p != nil {
		push = httpapi.PushJSON(*p, "")
	}
	whole := bytes.TrimSuffix(bytes.TrimSpace(httpapi.QueueJSON(q)), []byte("}"))
	return slices.Concat(whole, []byte(`,"push":`), bytes.TrimSpace(push), []byte("}"))
}

// exact returns v as text, or - if the broker that answered doesn't know it.
func exact(q seb.QueueInfo, format string, v any) string {
	if !q.Exact {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

// ageText returns the age of the oldest waiting record, rounded for people.
func ageText(q seb.QueueInfo) string {
	if q.Oldest.IsZero() {
		return "-"
	}
	d := max(0, time.Since(q.Oldest))
	if d > time.Minute {
		return d.Truncate(time.Second).String()
	}
	return d.Truncate(100 * time.Millisecond).String()
}

// queueFlags name a queue, and the broker that knows it.
type queueFlags struct {
	serverFlag
	outputFlag
	Topic string `arg:"" type:"topic" help:"Name of the topic."`
	Queue string `arg:"" help:"Name of the queue."`
}

// queue returns the queue that the flags name.
func (f queueFlags) queue() (client.Queue, error) {
	broker, err := f.client()
	if err != nil {
		return nil, err
	}
	return broker.Queue(f.Topic, f.Queue), nil
}

// failed adds what the command was doing, a verb such as "show", and the queue to err.
func (f queueFlags) failed(doing string, err error) error {
	return fmt.Errorf("%s queue %s of %s: %w", doing, f.Queue, f.Topic, unsure(err, "`seb queue show`"))
}

// tell prints the result: the queue as JSON, otherwise a line of text, which ends with end.
func (f queueFlags) tell(std streams, q seb.QueueInfo, end string) error {
	if f.json() {
		return printJSON(std.out, httpapi.QueueJSON(q))
	}
	_, err := fmt.Fprintf(std.out, "queue %s of %s %s\n", f.Queue, f.Topic, end)
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
records. DEAD is parked (a dead letter). OLDEST is the age of the oldest record that is neither done nor parked. Whether a
queue is pushed is shown to API keys with the scope admin.`

// Help shows examples.
func (queueListCmd) Help() string {
	return `Examples:

    seb queue list orders
    seb queue list orders --output json | jq -r '.queues[] | select(.dead > 0) | .name'

` + queueColumnsHelp + ` STATE is
open, paused, pushed, or why a push delivers nothing: push stopped, push blocked, or push failing.`
}

// Run prints a line per queue.
func (c *queueListCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	queues, err := seb.Collect(broker.Queues(ctx, c.Topic, seb.ListOptions{}))
	if err != nil {
		return fmt.Errorf("list queues of %s: %w", c.Topic, err)
	}
	pushes, err := pushesOf(ctx, broker, queues)
	if err != nil {
		return fmt.Errorf("list queues of %s: %w", c.Topic, err)
	}
	if c.json() {
		described := make([]json.RawMessage, len(queues))
		for i, q := range queues {
			described[i] = withPush(q, pushes[i])
		}
		return printJSON(std.out, map[string]any{"queues": described})
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("QUEUE\tREADY\tLEASED\tHELD\tDELAYED\tDEAD\tOLDEST\tORDER\tSTATE\n")
		for i, q := range queues {
			row.printf("%s\t%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", q.Name, q.Ready, exact(q, "%d", q.Leased), exact(q, "%d", q.Held), q.Delayed, q.Dead, ageText(q), q.Config.Order, stateText(q, pushes[i]))
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
	queue, err := c.queue()
	if err != nil {
		return err
	}
	q, err := queue.Describe(ctx)
	if err != nil {
		return c.failed("show", err)
	}
	p, err := pushOf(ctx, queue)
	if err != nil {
		return c.failed("show the push of", err)
	}
	if c.json() {
		return printJSON(std.out, withPush(q, p))
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("READY\tLEASED\tHELD\tDELAYED\tDEAD\tOLDEST\tRECEIVED\tDONE\n")
		row.printf("%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", q.Ready, exact(q, "%d", q.Leased), exact(q, "%d", q.Held), q.Delayed, q.Dead, ageText(q),
			exact(q, "%.1f/s", q.Received), exact(q, "%.1f/s", q.Acknowledged))
	})
	out.printf("\n%s\n", strings.ReplaceAll(configText(q.Config), "; ", "\n"))
	if p != nil {
		out.printf("pushed to: %s\n", p.URL)
		for _, trouble := range pushTroubles(*p) {
			out.printf("push %s\n", trouble)
		}
	}
	owner := cmp.Or(q.Owner, "none, or a broker without an advertised address (seb serve --advertise)")
	if owner == ownerSelf {
		owner = "this broker, which advertises no address"
	}
	out.printf("owner: %s\n", owner)
	if !q.Exact {
		out.printf("leased and held records count as ready: the owner knows them once a worker has asked for records\n")
	}
	if !q.HeldUntil.IsZero() {
		out.printf("held until: %s\n", q.HeldUntil.UTC().Format(timestampLayout))
	}
	return out.err
}
