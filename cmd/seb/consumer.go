package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

type consumerCmd struct {
	List   consumerListCmd   `cmd:"" help:"List the consumers of a topic, and how far behind they are."`
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

// consumerInfo is a consumer as the API describes it.
type consumerInfo struct {
	Name         string         `json:"name"`
	LastActivity time.Time      `json:"last_activity"`
	Lag          int64          `json:"lag"`
	Positions    []positionInfo `json:"positions"`
}

type positionInfo struct {
	Partition   int32 `json:"partition"`
	Offset      int64 `json:"offset"`
	StartOffset int64 `json:"start_offset"`
	EndOffset   int64 `json:"end_offset"`
	Lag         int64 `json:"lag"`
	Missed      int64 `json:"missed"`
}

// missed is how many records were deleted before the consumer committed them.
func (c consumerInfo) missed() (n int64) {
	for _, p := range c.Positions {
		n += p.Missed
	}
	return n
}

// at returns the consumer's position in a partition. It returns 0 for a partition that c does not list, since
// that partition was added after the broker made the list.
func (c consumerInfo) at(partition int32) int64 {
	for _, p := range c.Positions {
		if p.Partition == partition {
			return p.Offset
		}
	}
	return 0
}

// consumerFlags name a consumer, and the broker that knows it.
type consumerFlags struct {
	serverFlag
	outputFlag
	Topic    string `arg:"" type:"topic" help:"Name of the topic."`
	Consumer string `arg:"" help:"Name of the consumer."`
}

func (f consumerFlags) url(broker *client) string {
	return broker.url(nil, "topics", f.Topic, "consumers", f.Consumer)
}

func (f consumerFlags) failed(doing string, err error) error {
	return fmt.Errorf("%s consumer %s of %s: %w", doing, f.Consumer, f.Topic, err)
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
	whole, err := broker.list(ctx, "consumers", "topics", c.Topic, "consumers")
	if err != nil {
		return fmt.Errorf("list consumers of %s: %w", c.Topic, err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"consumers": whole})
	}
	consumers, err := decodeItems[consumerInfo](whole)
	if err != nil {
		return fmt.Errorf("list consumers of %s: %w", c.Topic, err)
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("CONSUMER\tLAG\tMISSED\tMOVED\n")
		for _, c := range consumers {
			row.printf("%s\t%d\t%d\t%s\n", c.Name, c.Lag, c.missed(), c.LastActivity.UTC().Format(time.RFC3339))
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
	broker, err := c.client()
	if err != nil {
		return err
	}
	var whole json.RawMessage
	if _, err := broker.call(ctx, http.MethodGet, c.url(broker), nil, &whole); err != nil {
		return c.failed("show", err)
	}
	if c.json() {
		return printJSON(std.out, whole)
	}
	var info consumerInfo
	if err := json.Unmarshal(whole, &info); err != nil {
		return c.failed("show", err)
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("PARTITION\tNEXT\tSTART\tEND\tLAG\tMISSED\n")
		for _, p := range info.Positions {
			row.printf("%d\t%d\t%d\t%d\t%d\t%d\n", p.Partition, p.Offset, p.StartOffset, p.EndOffset, p.Lag, p.Missed)
		}
	})
	out.printf("\nmoved: %s\n", info.LastActivity.UTC().Format(time.RFC3339))
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
	broker, err := c.client()
	if err != nil {
		return err
	}
	if _, err := broker.call(ctx, http.MethodDelete, c.url(broker), nil, nil); err != nil {
		return c.failed("delete", err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"topic": c.Topic, "name": c.Consumer, "deleted": true})
	}
	_, err = fmt.Fprintf(std.out, "consumer %s of %s deleted\n", c.Consumer, c.Topic)
	return err
}
