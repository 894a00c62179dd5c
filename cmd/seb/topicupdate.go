package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
)

type topicUpdateCmd struct {
	serverFlag
	outputFlag
	configFlags
	Topic      string `arg:"" type:"topic" help:"Name of the topic."`
	Partitions *int32 `placeholder:"N" help:"New number of partitions; it can't shrink (default: unchanged)."`
}

// Help shows examples.
func (topicUpdateCmd) Help() string {
	return `Examples:

    seb topic update clicks --partitions 16
    seb topic update audit --retention 7d --retention-bytes 10GiB
    seb topic update audit --retention none

What is not named stays as it is. With more partitions, new records of a key may go to a partition other than
the one with the key's earlier records. Records beyond --retention or --retention-bytes are deleted for good, soon after the
limit is set. seb topic show tells what goes next, and when.`
}

// Run changes the topic, and prints its new settings.
func (c *topicUpdateCmd) Run(ctx context.Context, std streams) error {
	u := c.update()
	if c.Partitions != nil && *c.Partitions < 1 {
		return usage(fmt.Errorf("invalid --partitions %d: it must be at least 1", *c.Partitions))
	}
	if u.Partitions = c.Partitions; u == (seb.TopicUpdate{}) {
		return usageError{hinted(errors.New("nothing to change"), "give --partitions, --retention, --retention-bytes or --retention-past-queues")}
	}
	broker, err := c.client()
	if err != nil {
		return err
	}
	t, err := broker.UpdateTopic(ctx, c.Topic, u)
	if err != nil {
		return fmt.Errorf("update topic %s: %w", c.Topic, unsureTopic(err))
	}
	if c.json() {
		return printJSON(std.out, httpapi.TopicJSON(t))
	}
	_, err = fmt.Fprintf(std.out, "%s updated; partitions: %d; %s\n", c.Topic, len(t.Partitions), retentionText(t.Config))
	return err
}
