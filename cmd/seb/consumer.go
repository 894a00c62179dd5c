package main

import (
	"context"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/httpapi"
)

type consumerCmd struct {
	List   consumerListCmd   `cmd:"" help:"List the consumers of a topic, and how far behind they are."`
	Lag    consumerLagCmd    `cmd:"" help:"List the consumers of all topics, and how far behind they are."`
	Show   consumerShowCmd   `cmd:"" help:"Show where a consumer is."`
	Reset  consumerResetCmd  `cmd:"" help:"Move a consumer to another position, or create it there."`
	Delete consumerDeleteCmd `cmd:"" help:"Delete a consumer."`
}

// Help tells what consumers are.
func (consumerCmd) Help() string {
	return `A consumer is a named position in a topic, stored in the log: the next offset to read in each partition. It never
expires, and only a commit or a reset moves it. seb consume TOPIC --consumer NAME reads from the consumer's position,
and commits the position after the records that it has written to its output. If the consumer does not exist, seb
consume creates it at the beginning of the topic. Several readers of one consumer read the same records. If several
seb consume read as one consumer, the first that commits goes on, and the others end.`
}

// behind returns how many records the consumer has not committed, and how many were deleted before it
// committed them.
func behind(info seb.ConsumerInfo) (lag, missed int64) {
	for _, p := range info.Positions {
		lag += p.Lag()
		missed += p.Missed()
	}
	return lag, missed
}

// consumerFlags name a consumer, and the broker that knows it.
type consumerFlags struct {
	serverFlag
	outputFlag
	Topic    string `arg:"" type:"topic" help:"Name of the topic."`
	Consumer string `arg:"" help:"Name of the consumer."`
}

// consumer returns the consumer that the flags name.
func (f consumerFlags) consumer() (client.Consumer, error) {
	broker, err := f.client()
	if err != nil {
		return nil, err
	}
	return broker.Consumer(f.Topic, f.Consumer), nil
}

func (f consumerFlags) failed(doing string, err error) error {
	return fmt.Errorf("%s consumer %s of %s: %w", doing, f.Consumer, f.Topic, unsure(err, "`seb consumer show`"))
}

type consumerListCmd struct {
	serverFlag
	outputFlag
	Topic string `arg:"" type:"topic" help:"Name of the topic."`
}

// Help shows examples.
func (consumerListCmd) Help() string {
	return `Examples:

    seb consumer list orders
    seb consumer list orders --output json | jq -r '.consumers[] | select(.lag > 1000) | .name'

LAG is how many records the consumer has not committed, MISSED how many were deleted before it committed them. MOVED is
when it was last committed or reset.`
}

// Run prints a line per consumer.
func (c *consumerListCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	consumers, err := seb.Collect(broker.Consumers(ctx, c.Topic, seb.ListOptions{}))
	if err != nil {
		return fmt.Errorf("list consumers of %s: %w", c.Topic, err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"consumers": each(consumers, httpapi.ConsumerJSON)})
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("CONSUMER\tLAG\tMISSED\tMOVED\n")
		for _, c := range consumers {
			lag, missed := behind(c)
			row.printf("%s\t%d\t%d\t%s\n", c.Name, lag, missed, c.Moved.UTC().Format(time.RFC3339))
		}
	})
	return out.err
}

type consumerShowCmd struct{ consumerFlags }

// Help shows examples.
func (consumerShowCmd) Help() string {
	return `Examples:

    seb consumer show orders billing
    seb consumer show orders billing --output json | jq .lag

NEXT is the offset that the consumer reads next. START is the first offset that the partition holds, END the offset
that the partition's next record will get.`
}

// Run prints a line per partition.
func (c *consumerShowCmd) Run(ctx context.Context, std streams) error {
	consumer, err := c.consumer()
	if err != nil {
		return err
	}
	info, err := consumer.Describe(ctx)
	if err != nil {
		return c.failed("show", err)
	}
	if c.json() {
		return printJSON(std.out, httpapi.ConsumerJSON(info))
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("PARTITION\tNEXT\tSTART\tEND\tLAG\tMISSED\n")
		for _, p := range info.Positions {
			row.printf("%d\t%d\t%d\t%d\t%d\t%d\n", p.Partition, p.Next, p.Start, p.End, p.Lag(), p.Missed())
		}
	})
	out.printf("\nmoved: %s\n", info.Moved.UTC().Format(time.RFC3339))
	return out.err
}

type consumerDeleteCmd struct{ consumerFlags }

// Help shows examples.
func (consumerDeleteCmd) Help() string {
	return `Examples:

    seb consumer delete orders billing

The records stay. A consumer created later with this name shares nothing with the deleted one.`
}

// Run deletes the consumer.
func (c *consumerDeleteCmd) Run(ctx context.Context, std streams) error {
	consumer, err := c.consumer()
	if err != nil {
		return err
	}
	if err := consumer.Delete(ctx); err != nil {
		return c.failed("delete", err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"topic": c.Topic, "name": c.Consumer, "deleted": true})
	}
	_, err = fmt.Fprintf(std.out, "consumer %s of %s deleted\n", c.Consumer, c.Topic)
	return err
}
