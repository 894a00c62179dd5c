package main

import (
	"context"
	"fmt"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
)

type topicTrimCmd struct {
	serverFlag
	outputFlag
	confirmFlag
	Topic     string `arg:"" type:"topic" help:"Name of the topic."`
	Partition int32  `required:"" placeholder:"N" help:"Partition whose records to delete."`
	Before    int64  `required:"" placeholder:"OFFSET" help:"First offset to keep; records before it are gone for good."`
}

// Help shows examples.
func (topicTrimCmd) Help() string {
	return `Moves the start of a partition; on a terminal, seb asks first. Offsets stay what they are: the next record gets
the same offset as if nothing had been deleted. The start never moves back.

Examples:

    seb topic trim orders --partition 0 --before 41
    seb topic show orders

No reader sees the deleted records again. Brokers free their space a day later at the earliest.`
}

// Run moves the start, and prints the partition's new bounds.
func (c *topicTrimCmd) Run(ctx context.Context, std streams) error {
	if c.Partition < 0 || c.Before < 0 {
		return usage(fmt.Errorf("--partition and --before must be at least 0, but are %d and %d", c.Partition, c.Before))
	}
	broker, err := c.client()
	if err != nil {
		return err
	}
	question := fmt.Sprintf("Delete all records of topic %s before offset %d of partition %d%s?", c.Topic, c.Before, c.Partition, c.at())
	if err := c.confirm(ctx, std, question); err != nil {
		return fmt.Errorf("trim topic %s: %w", c.Topic, err)
	}
	p, err := broker.DeleteRecords(ctx, c.Topic, c.Partition, seb.Offset(c.Before))
	if err != nil {
		return fmt.Errorf("trim topic %s: %w", c.Topic, unsureTopic(err))
	}
	if c.json() {
		return printJSON(std.out, httpapi.PartitionJSON(p))
	}
	_, err = fmt.Fprintf(std.out, "%s partition %d starts at %d, ends at %d\n", c.Topic, p.Partition, p.Start, p.End)
	return err
}
