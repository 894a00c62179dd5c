package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/option"
)

// consumerJSON is a consumer as brokers write it.
type consumerJSON struct {
	Topic        string    `json:"topic"`
	Name         string    `json:"name"`
	Created      time.Time `json:"created"`
	LastActivity time.Time `json:"last_activity"`
	Version      string    `json:"version"`
	Positions    []struct {
		Partition int32      `json:"partition"`
		Offset    seb.Offset `json:"offset"`
		Start     seb.Offset `json:"start_offset"`
		End       seb.Offset `json:"end_offset"`
	} `json:"positions"`
}

func (j *consumerJSON) info() seb.ConsumerInfo {
	info := seb.ConsumerInfo{Topic: j.Topic, Name: j.Name, Created: j.Created, Moved: j.LastActivity, Version: j.Version}
	for _, p := range j.Positions {
		info.Positions = append(info.Positions, seb.ConsumerPosition{Partition: p.Partition, Next: p.Offset, Start: p.Start, End: p.End})
	}
	return info
}

// remoteConsumer is a [Consumer] of a client.
type remoteConsumer struct {
	client      *Client
	topic, name string
}

// Consumer returns the topic's consumer of that name, whether it exists or not.
func (c *Client) Consumer(topic, name string) Consumer { return &remoteConsumer{c, topic, name} }

// Consumers does what [seb.Broker.Consumers] does. It ignores o.Reserve.
func (c *Client) Consumers(ctx context.Context, topic string, o seb.ListOptions) iter.Seq2[seb.ConsumerInfo, error] {
	type page struct {
		Items []consumerJSON `json:"consumers"`
		Next  *string        `json:"next"`
	}
	return list(ctx, c, []string{"topics", topic, "consumers"}, o.After, func(res *response) (cs []seb.ConsumerInfo, next string, err error) {
		var p page
		if err := res.decode(&p, func() error { return lists("consumers", p.Items) }); err != nil {
			return nil, "", err
		}
		for i := range p.Items {
			if o.May == nil || o.May(p.Items[i].Name) {
				cs = append(cs, p.Items[i].info())
			}
		}
		return cs, text(p.Next), nil
	})
}

func (c *remoteConsumer) path(more ...string) []string {
	return slices.Concat([]string{"topics", c.topic, "consumers", c.name}, more)
}

// describe sends r, and returns the consumer in the response.
func (c *remoteConsumer) describe(ctx context.Context, r *request) (seb.ConsumerInfo, int, error) {
	res, err := c.client.send(ctx, r)
	if err != nil {
		return seb.ConsumerInfo{}, 0, err
	}
	var j consumerJSON
	check := func() error { return errors.Join(names("topic", j.Topic, c.topic), names("name", j.Name, c.name)) }
	if err := res.decode(&j, check); err != nil {
		return seb.ConsumerInfo{}, 0, err
	}
	j.Version = version(res)
	return j.info(), res.status, nil
}

// version returns the consumer's version, which is in the ETag.
func version(res *response) string {
	return strings.Trim(res.header.Get("ETag"), `"`)
}

// put creates the consumer, or sets its positions.
func (c *remoteConsumer) put(ctx context.Context, spec any) (seb.ConsumerInfo, bool, error) {
	info, status, err := c.describe(ctx, &request{method: http.MethodPut, path: c.path(), body: jsonBody(spec), writes: true})
	return info, status == http.StatusCreated, err
}

// Create does what [seb.Consumer.Create] does.
func (c *remoteConsumer) Create(ctx context.Context) (info seb.ConsumerInfo, created bool, err error) {
	return c.put(ctx, struct{}{})
}

// Describe does what [seb.Consumer.Describe] does.
func (c *remoteConsumer) Describe(ctx context.Context) (seb.ConsumerInfo, error) {
	info, _, err := c.describe(ctx, &request{method: http.MethodGet, path: c.path()})
	return info, err
}

// Reset does what [seb.Consumer.Reset] does.
func (c *remoteConsumer) Reset(ctx context.Context, from seb.Position) (info seb.ConsumerInfo, created bool, err error) {
	switch s := from.String(); {
	case from == seb.Earliest, from == seb.Latest:
		return c.put(ctx, map[string]any{"from": s})
	case strings.Contains(s, "T"):
		return c.put(ctx, map[string]any{"from": map[string]string{"time": s}})
	}
	offset, ok := from.Offset()
	if !ok {
		return info, false, refusedWrite("a consumer can't be reset to %s: use Earliest, Latest, AtTime, or ResetTo", from)
	}
	t, err := c.client.Topic(ctx, c.topic)
	if err != nil {
		return info, false, notSent(err)
	}
	if len(t.Partitions) != 1 {
		return info, false, refusedWrite("topic %q has %d partitions: use ResetTo to set offsets", c.topic, len(t.Partitions))
	}
	return c.ResetTo(ctx, seb.Offsets{0: offset})
}

// ResetTo does what [seb.Consumer.ResetTo] does.
func (c *remoteConsumer) ResetTo(ctx context.Context, offsets seb.Offsets) (info seb.ConsumerInfo, created bool, err error) {
	return c.put(ctx, map[string]any{"from": map[string]any{"offsets": offsetsJSON(offsets)}})
}

// Commit does what [seb.Consumer.Commit] does.
func (c *remoteConsumer) Commit(ctx context.Context, offsets seb.Offsets, opts ...seb.CommitOption) (string, error) {
	o := option.OfCommit(opts)
	r := &request{
		method: http.MethodPost, path: c.path("commit"), header: http.Header{}, writes: true,
		repeatable: o.Version == "", // after a commit, the consumer no longer has the version
		body:       jsonBody(map[string]any{"offsets": offsetsJSON(offsets)}),
	}
	if o.Version != "" {
		r.header.Set("If-Match", strconv.Quote(o.Version))
	}
	res, err := c.client.send(ctx, r)
	if err != nil {
		return "", err
	}
	var j struct {
		Offsets seb.Offsets `json:"offsets"`
	}
	err = res.decode(&j, func() error {
		switch {
		case !maps.Equal(j.Offsets, offsets):
			return fmt.Errorf("its offsets are %v, not %v", j.Offsets, offsets)
		case version(res) == "":
			return errors.New("it has no ETag")
		}
		return nil
	})
	return version(res), err
}

// Delete does what [seb.Consumer.Delete] does.
func (c *remoteConsumer) Delete(ctx context.Context) error {
	_, err := c.client.send(ctx, &request{method: http.MethodDelete, path: c.path(), writes: true, bare: true})
	return err
}

// Follower does what [seb.Consumer.Follower] does.
func (c *remoteConsumer) Follower(ctx context.Context, partition int32) (Follower, error) {
	return c.client.newFollower(ctx, c.path("records"), partitionQuery(partition))
}

// Follow does what [seb.Consumer.Follow] does.
func (c *remoteConsumer) Follow(ctx context.Context) iter.Seq2[seb.Record, error] {
	return follow(ctx, func() (Follower, error) { return c.Follower(ctx, seb.AllPartitions) })
}
