package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb"
)

// Ready returns nil if the broker can serve requests, else why it can't.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.get(ctx, "readyz", true)
	return err
}

// Metrics returns the broker's metrics, in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) { return c.get(ctx, "metrics", true) }

// Bill returns what the broker has used of its store, and what that costs, as JSON.
func (c *Client) Bill(ctx context.Context) ([]byte, error) { return c.get(ctx, "bill", false) }

func (c *Client) get(ctx context.Context, name string, outside bool) ([]byte, error) {
	res, err := c.send(ctx, &request{method: http.MethodGet, path: []string{name}, outside: outside})
	if err != nil {
		return nil, err
	}
	return res.body, nil
}

// SignedURL returns a URL with which everyone can read the records of a topic until a time, or until the
// client's API key is revoked. The URL begins at a position of a partition, or of AllPartitions. SignedURL
// sends no request.
func (c *Client) SignedURL(topic string, partition int32, from seb.Position, until time.Time) (string, error) {
	token, err := seb.SignRead(c.opts.APIKey, topic, until)
	if err != nil {
		return "", err
	}
	q := partitionQuery(partition)
	if belowZero(from) {
		return "", invalid(fmt.Sprintf("a signed URL can't begin at offset %s", from), "use Last for the last records")
	}
	if positionQuery(q, from) {
		return "", invalid("a signed URL can't begin at AtOrAfter", "use At, Earliest, Latest, Last or AtTime")
	}
	q.Set("token", token)
	return urlOf(c.servers[0], &request{path: []string{"topics", topic, "records"}, query: q}), nil
}
