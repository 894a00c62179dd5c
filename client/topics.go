package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

// topicJSON is a topic as brokers write it.
type topicJSON struct {
	ID         string          `json:"topic_id"`
	Name       string          `json:"name"`
	Created    time.Time       `json:"created"`
	Partitions []partitionJSON `json:"partitions"`
	Config     struct {
		Retention           *duration `json:"retention"`
		RetentionBytes      int64     `json:"retention_bytes"`
		RetentionPastQueues bool      `json:"retention_past_queues"`
	} `json:"config"`
	Retention *struct {
		Oldest time.Time `json:"oldest"`
		Next   time.Time `json:"next"`
		Queue  string    `json:"held_by_queue"`
		Waits  string    `json:"waits"`
	} `json:"retention"`
}

type partitionJSON struct {
	Partition     int32      `json:"partition"`
	Start         seb.Offset `json:"start_offset"`
	End           seb.Offset `json:"end_offset"`
	Bytes         int64      `json:"bytes"`
	LastTimestamp time.Time  `json:"last_timestamp"`
}

func (j *topicJSON) topic() seb.Topic {
	t := seb.Topic{ID: idOfTag(j.ID), Name: j.Name, Created: j.Created}
	t.Config.RetentionBytes = j.Config.RetentionBytes
	if j.Config.Retention != nil {
		t.Config.Retention = time.Duration(*j.Config.Retention)
	}
	t.Config.RetentionPastQueues = j.Config.RetentionPastQueues
	if j.Retention != nil {
		t.Retention = (*seb.TopicRetention)(j.Retention)
	}
	for _, p := range j.Partitions {
		t.Partitions = append(t.Partitions, seb.Partition(p))
	}
	return t
}

// idOfTag returns the topic's id in a tag such as 1f0c6a3e.7, 0 if the tag has none.
func idOfTag(tag string) seb.TopicID {
	_, id, _ := strings.Cut(tag, ".")
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return 0
	}
	return seb.TopicID(n)
}

// duration is a duration in JSON, as Go writes it.
type duration time.Duration

// UnmarshalText parses a duration.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// config returns the fields of a topic's config that are given.
func config(retention *time.Duration, bytes *int64, past *bool) map[string]any {
	m := map[string]any{}
	if retention != nil {
		m["retention"] = retention.String()
	}
	if bytes != nil {
		m["retention_bytes"] = *bytes
	}
	if past != nil {
		m["retention_past_queues"] = *past
	}
	return m
}

// CreateTopic does what [seb.Broker.CreateTopic] does.
func (c *Client) CreateTopic(ctx context.Context, name string, opts seb.TopicOptions) (_ seb.Topic, created bool, _ error) {
	spec := map[string]any{}
	if opts.Partitions != 0 {
		spec["partitions"] = opts.Partitions
	}
	var retention *time.Duration
	var bytes *int64
	if opts.Config.Retention != 0 {
		retention = &opts.Config.Retention
	}
	if opts.Config.RetentionBytes != 0 {
		bytes = &opts.Config.RetentionBytes
	}
	var past *bool
	if opts.Config.RetentionPastQueues {
		past = &opts.Config.RetentionPastQueues
	}
	spec["config"] = config(retention, bytes, past)
	t, res, err := c.topic(ctx, name, &request{method: http.MethodPut, path: []string{"topics", name}, body: jsonBody(spec), writes: true})
	return t, err == nil && res.status == http.StatusCreated, err
}

// Topic does what [seb.Broker.Topic] does.
func (c *Client) Topic(ctx context.Context, name string) (seb.Topic, error) {
	t, _, err := c.topic(ctx, name, &request{method: http.MethodGet, path: []string{"topics", name}})
	return t, err
}

// TaggedTopic returns a topic, and its tag, which [seb.FetchOptions] take: a topic that is created later under
// the same name has another tag.
func (c *Client) TaggedTopic(ctx context.Context, name string) (t seb.Topic, tag string, err error) {
	t, res, err := c.topic(ctx, name, &request{method: http.MethodGet, path: []string{"topics", name}})
	if err != nil {
		return t, "", err
	}
	if tag = res.header.Get(topicIDHeader); tag == "" {
		return t, "", unexpected(res.server, errors.New("it has no "+topicIDHeader), false)
	}
	return t, tag, nil
}

// UpdateTopic does what [seb.Broker.UpdateTopic] does.
func (c *Client) UpdateTopic(ctx context.Context, name string, u seb.TopicUpdate) (seb.Topic, error) {
	spec := map[string]any{"config": config(u.Retention, u.RetentionBytes, u.RetentionPastQueues)}
	if u.Partitions != nil {
		spec["partitions"] = *u.Partitions
	}
	t, _, err := c.topic(ctx, name, &request{method: http.MethodPatch, path: []string{"topics", name}, body: jsonBody(spec), writes: true})
	return t, err
}

// topic sends r, and returns the topic of that name in the response.
func (c *Client) topic(ctx context.Context, name string, r *request) (seb.Topic, *response, error) {
	res, err := c.send(ctx, r)
	if err != nil {
		return seb.Topic{}, nil, err
	}
	var j topicJSON
	err = res.decode(&j, func() error {
		if len(j.Partitions) == 0 {
			return errors.New("it has no partitions")
		}
		return names("name", j.Name, name)
	})
	if err != nil {
		return seb.Topic{}, nil, err
	}
	return j.topic(), res, nil
}

// DeleteTopic does what [seb.Broker.DeleteTopic] does.
func (c *Client) DeleteTopic(ctx context.Context, name string) error {
	_, err := c.send(ctx, &request{method: http.MethodDelete, path: []string{"topics", name}, writes: true, bare: true})
	return err
}

// DeleteRecords does what [seb.Broker.DeleteRecords] does.
func (c *Client) DeleteRecords(ctx context.Context, topic string, partition int32, before seb.Offset) (seb.Partition, error) {
	res, err := c.send(ctx, &request{
		method: http.MethodDelete, path: []string{"topics", topic, "records"}, writes: true, repeatable: true,
		query: url.Values{"partition": {strconv.Itoa(int(partition))}, "before": {strconv.FormatInt(int64(before), 10)}},
	})
	if err != nil {
		return seb.Partition{}, err
	}
	j := partitionJSON{Partition: -1, Start: -1, End: -1}
	err = res.decode(&j, func() error {
		if j.Partition != partition || j.Start < before || j.End < j.Start {
			return fmt.Errorf("it says that partition %d has the offsets %d to %d; it should say that partition %d begins at offset %d or later",
				j.Partition, j.Start, j.End, partition, before)
		}
		return nil
	})
	if err != nil {
		return seb.Partition{}, err
	}
	return seb.Partition(j), nil
}

// Topics does what [seb.Broker.Topics] does. It ignores o.Reserve.
func (c *Client) Topics(ctx context.Context, o seb.ListOptions) iter.Seq2[seb.Topic, error] {
	type page struct {
		Items []topicJSON `json:"topics"`
		Next  *string     `json:"next"`
	}
	return list(ctx, c, []string{"topics"}, o.After, func(res *response) (ts []seb.Topic, next string, err error) {
		var p page
		if err := res.decode(&p, func() error { return lists("topics", p.Items) }); err != nil {
			return nil, "", err
		}
		for i := range p.Items {
			if o.May == nil || o.May(p.Items[i].Name) {
				ts = append(ts, p.Items[i].topic())
			}
		}
		return ts, text(p.Next), nil
	})
}

// list iterates over the items of a list, page by page. read returns the items of a page, and what to send as
// after for the next page, "" after the last page.
func list[T any](ctx context.Context, c *Client, path []string, after string, read func(*response) (items []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		for {
			q := url.Values{}
			if after != "" {
				q.Set("after", after)
			}
			res, err := c.send(ctx, &request{method: http.MethodGet, path: path, query: q})
			if err != nil {
				yield(zero, err)
				return
			}
			items, next, err := read(res)
			if err != nil {
				yield(zero, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			if next == after {
				yield(zero, unexpected(res.server, fmt.Errorf("the page after %q is followed by itself", after), false))
				return
			}
			after = next
		}
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
