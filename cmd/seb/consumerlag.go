package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
)

type consumerLagCmd struct {
	serverFlag
	outputFlag
}

// Help shows examples.
func (consumerLagCmd) Help() string {
	return `Examples:

    seb consumer lag
    seb consumer lag --output json | jq -r '.consumers[] | select(.lag > 1000) | [.topic, .name] | @tsv'

The consumers of all topics, those that are furthest behind first. LAG is how many records the consumer has not
committed, MISSED how many were deleted before it committed them. MOVED is when it was last committed or reset. The
broker gets a request for each topic. On a log with API keys, only the topics of the key are shown.`
}

// Run prints a line per consumer.
func (c *consumerLagCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	topics, err := seb.Collect(broker.Topics(ctx, seb.ListOptions{}))
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	consumers := []seb.ConsumerInfo{}
	for _, t := range topics {
		more, err := seb.Collect(broker.Consumers(ctx, t.Name, seb.ListOptions{}))
		if err != nil && seb.CodeOf(err) != seb.CodeTopicNotFound { // the topic may have been deleted meanwhile
			return fmt.Errorf("list consumers of %s: %w", t.Name, err)
		}
		consumers = append(consumers, more...)
	}
	slices.SortFunc(consumers, func(a, b seb.ConsumerInfo) int {
		x, _ := behind(a)
		y, _ := behind(b)
		return cmp.Or(cmp.Compare(y, x), strings.Compare(a.Topic, b.Topic), strings.Compare(a.Name, b.Name))
	})
	if c.json() {
		return printJSON(std.out, map[string]any{"consumers": each(consumers, httpapi.ConsumerJSON)})
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("TOPIC\tCONSUMER\tLAG\tMISSED\tMOVED\n")
		for _, c := range consumers {
			lag, missed := behind(c)
			row.printf("%s\t%s\t%d\t%d\t%s\n", c.Topic, c.Name, lag, missed, c.Moved.UTC().Format(time.RFC3339))
		}
	})
	return out.err
}
