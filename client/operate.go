package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb"
)

// Ready returns nil if the broker can serve requests, else why it can't.
func (c *Client) Ready(ctx context.Context) error {
	res, err := c.send(ctx, &request{method: http.MethodGet, path: []string{"readyz"}, outside: true})
	if err != nil {
		return err
	}
	var j struct {
		Status string `json:"status"`
	}
	return res.decode(&j, func() error { return names("status", j.Status, "ready") })
}

// Metrics returns the broker's metrics, in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	res, err := c.send(ctx, &request{method: http.MethodGet, path: []string{"metrics"}, outside: true})
	if err != nil {
		return nil, err
	}
	return res.body, nil
}

// Bill returns what the broker has used of its store, and what that costs, as JSON.
func (c *Client) Bill(ctx context.Context) ([]byte, error) {
	res, err := c.send(ctx, &request{method: http.MethodGet, path: []string{"bill"}})
	if err != nil {
		return nil, err
	}
	var j struct {
		Now json.RawMessage `json:"so_far"`
	}
	err = res.decode(&j, func() error {
		if j.Now == nil {
			return errors.New("it has no so_far")
		}
		return nil
	})
	return res.body, err
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
