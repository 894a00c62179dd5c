package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/alecthomas/kong"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/httpapi"
)

type topicCmd struct {
	Create topicCreateCmd `cmd:"" help:"Create a topic."`
	List   topicListCmd   `cmd:"" help:"List all topics."`
	Show   topicShowCmd   `cmd:"" help:"Show a topic's partitions and config."`
	Update topicUpdateCmd `cmd:"" help:"Add partitions to a topic, or change its config."`
	Trim   topicTrimCmd   `cmd:"" help:"Delete a partition's records before an offset."`
	Delete topicDeleteCmd `cmd:"" help:"Delete a topic and all its records."`
}

// Help tells what topics are.
func (topicCmd) Help() string {
	return `A topic has one or more partitions. The records of a partition keep their order and get the offsets 0, 1, 2 and so
on, which never change; between partitions there is no order. The number of partitions can grow, not shrink: one
is enough to begin with, more let several readers share the work.

Delete and trim ask first on a terminal, unless you add --yes.`
}

type topicCreateCmd struct {
	serverFlag
	outputFlag
	configFlags
	Topic      string `arg:"" type:"topic" help:"Name of the topic."`
	Partitions int32  `default:"1" placeholder:"N" help:"Number of partitions, each with its own order and offsets (default ${default})."`
	existsFlag
}

// existsFlag is for commands that create something under a name.
type existsFlag struct {
	IfNotExists bool `help:"If it exists, leave it as it is, whatever its settings, and succeed."`
}

// Help shows examples.
func (topicCreateCmd) Help() string {
	return `Examples:

    seb topic create orders
    seb topic create clicks --partitions 8
    seb topic create audit --retention 365d
    seb topic create orders --if-not-exists

A topic that exists with these settings stays as it is; one with other settings is refused. An append to a missing topic creates it, with one partition.
With --retention or --retention-bytes, records beyond that limit are deleted; the age counts from the commit of a record, not from its timestamp.`
}

// Run creates the topic, or tells that it exists already.
func (c *topicCreateCmd) Run(ctx context.Context, std streams) error {
	if c.Partitions < 1 {
		return usage(fmt.Errorf("invalid --partitions %d: it must be at least 1", c.Partitions))
	}
	broker, err := c.client()
	if err != nil {
		return err
	}
	t, created, err := broker.CreateTopic(ctx, c.Topic, seb.TopicOptions{Partitions: c.Partitions, Config: c.topicConfig()})
	if c.IfNotExists && seb.CodeOf(err) == seb.CodeTopicExists {
		t, err = broker.Topic(ctx, c.Topic)
	}
	if err != nil {
		return fmt.Errorf("create topic %s: %w", c.Topic, unsureTopic(err))
	}
	if c.json() {
		return printJSON(std.out, withField(httpapi.TopicJSON(t), "created", created))
	}
	state := "exists"
	if created {
		state = "created"
	}
	_, err = fmt.Fprintf(std.out, "%s %s\n", c.Topic, state)
	return err
}

type topicListCmd struct {
	serverFlag
	outputFlag
}

// Help shows examples.
func (topicListCmd) Help() string {
	return `Examples:

    seb topic list
    seb topic list --server http://broker.example:51313
    seb topic list --output json | jq -r '.topics[].name'`
}

// Run prints a line per topic.
func (c *topicListCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	topics, err := seb.Collect(broker.Topics(ctx, seb.ListOptions{}))
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"topics": each(topics, httpapi.TopicJSON)})
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("TOPIC\tPARTITIONS\tRECORDS\tSTORED\n")
		for _, t := range topics {
			var records, stored int64
			for _, p := range t.Partitions {
				records += int64(p.End - p.Start)
				stored += p.Bytes
			}
			row.printf("%s\t%d\t%d\t%s\n", t.Name, len(t.Partitions), records, size(stored))
		}
	})
	return out.err
}

type topicShowCmd struct {
	serverFlag
	outputFlag
	Topic string `arg:"" type:"topic" help:"Name of the topic."`
}

// Help shows examples.
func (topicShowCmd) Help() string {
	return `Examples:

    seb topic show orders
    seb topic show orders --output json | jq '.partitions[].end_offset'

START is the first offset that the partition holds, END the offset that the partition's next record will get.`
}

// Run prints a line per partition, and the config.
func (c *topicShowCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	t, err := broker.Topic(ctx, c.Topic)
	if err != nil {
		return fmt.Errorf("show topic %s: %w", c.Topic, err)
	}
	if c.json() {
		return printJSON(std.out, httpapi.TopicJSON(t))
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("PARTITION\tSTART\tEND\tSTORED\tLAST RECORD\n")
		for _, p := range t.Partitions {
			last := "-"
			if !p.LastTimestamp.IsZero() {
				last = p.LastTimestamp.UTC().Format(time.RFC3339)
			}
			row.printf("%d\t%d\t%d\t%s\t%s\n", p.Partition, p.Start, p.End, size(p.Bytes), last)
		}
	})
	out.printf("%s\n%s", retentionText(t.Config), retentionProgress(t.Retention))
	return out.err
}

type topicDeleteCmd struct {
	serverFlag
	outputFlag
	confirmFlag
	Topic string `arg:"" type:"topic" help:"Name of the topic."`
}

// Help shows examples.
func (topicDeleteCmd) Help() string {
	return `Examples:

    seb topic delete orders
    seb topic delete orders --yes

On a terminal, seb says what the topic has, and asks, before it deletes the topic. It warns if a queue has the topic as its dead-letter topic. To
delete the older records only, use seb topic trim. A topic created later under the same name shares nothing with the deleted one.`
}

// Run deletes the topic.
func (c *topicDeleteCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	if err := c.confirmThat(ctx, std, func() (string, error) { return c.question(ctx, broker) }); err != nil {
		return fmt.Errorf("delete topic %s: %w", c.Topic, err)
	}
	if err := broker.DeleteTopic(ctx, c.Topic); err != nil {
		return fmt.Errorf("delete topic %s: %w", c.Topic, unsureTopic(err))
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"name": c.Topic, "deleted": true})
	}
	_, err = fmt.Fprintf(std.out, "%s deleted\n", c.Topic)
	return err
}

// question asks whether to delete the topic, and says what goes with it.
func (c *topicDeleteCmd) question(ctx context.Context, broker *client.Client) (string, error) {
	t, err := broker.Topic(ctx, c.Topic)
	if err != nil {
		return "", err
	}
	var records int64
	for _, p := range t.Partitions {
		records += int64(p.End - p.Start)
	}
	queues, err := countedUpTo(listedMax, broker.Queues(ctx, c.Topic, seb.ListOptions{}), "queue", "queues")
	if err != nil {
		return "", err
	}
	consumers, err := countedUpTo(listedMax, broker.Consumers(ctx, c.Topic, seb.ListOptions{}), "consumer", "consumers")
	return fmt.Sprintf("Delete topic %s%s? It has %s with %s, %s and %s.", c.Topic, c.at(), counted(int64(len(t.Partitions)), "partition", "partitions"),
		counted(records, "record", "records"), queues, consumers), err
}

// listedMax bounds the requests of a question.
const listedMax = 100

// countedUpTo counts the items of a list, but not more than most.
func countedUpTo[T any](most int64, list iter.Seq2[T, error], one, many string) (string, error) {
	var n int64
	for _, err := range list {
		switch {
		case err != nil:
			return "", err
		case n == most:
			return fmt.Sprintf("more than %d %s", most, many), nil
		}
		n++
	}
	return counted(n, one, many), nil
}

// unsureTopic is unsure for a request that changes a topic.
func unsureTopic(err error) error { return unsure(err, "`seb topic list` or `seb topic show`") }

// topicName reads the name of a topic from the command line. It refuses an empty name, with which
// the path of the request would have another meaning.
func topicName(ctx *kong.DecodeContext, target reflect.Value) error {
	var name string
	if err := ctx.Scan.PopValueInto("topic", &name); err != nil {
		return err
	}
	var e *seb.Error
	if errors.As(seb.CheckTopicName(name), &e) {
		return hinted(fmt.Errorf("%s: %s", e.Code, e.Detail), e.Hint)
	}
	target.SetString(name)
	return nil
}
