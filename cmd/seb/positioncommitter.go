package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
)

// commitGrace is how long a commit may go on after an interrupt, so that the position after the records that
// consume wrote to its output is still committed.
const commitGrace = 5 * time.Second

// positionCommitter commits the positions of the consumer that consume --consumer names, for the readers of
// all partitions. It sends one request at a time, which commits the positions of all readers that wait. A
// request names the ETag of the last answer: if another program has moved the consumer since, the broker
// refuses the request. So seb undoes neither a reset nor another program's commit.
type positionCommitter struct {
	broker      *client
	topic, name string
	turn        chan struct{}

	// Only the reader whose value is in turn may use etag and unknown.
	etag    string
	unknown map[int32]int64 // offsets of the last commit if its outcome is unknown, else nil

	mu      sync.Mutex
	waiting map[int32]int64 // by partition: the offset that a reader waits to commit; guarded by mu
}

func newPositionCommitter(broker *client, topic, name string) *positionCommitter {
	return &positionCommitter{broker: broker, topic: topic, name: name, turn: make(chan struct{}, 1), waiting: map[int32]int64{}}
}

// commitError says that consume wrote records to its output, but could not commit the position after them.
type commitError struct{ error }

func (e commitError) Error() string { return "commit: " + e.error.Error() }
func (e commitError) Unwrap() error { return e.error }

// open creates the consumer if it does not exist, and returns its position.
func (c *positionCommitter) open(ctx context.Context) (consumerInfo, error) {
	var info consumerInfo
	_, header, err := c.broker.exchange(ctx, http.MethodPut, c.broker.url(nil, "topics", c.topic, "consumers", c.name), nil, &info)
	c.etag = header.Get("ETag")
	return info, err
}

// commit sets the consumer's position in a partition to next. It returns nil once the new position
// is in the store.
func (c *positionCommitter) commit(ctx context.Context, partition int32, next int64) error {
	interrupted := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(interrupted, func() { time.AfterFunc(commitGrace, cancel) })()
	c.mu.Lock()
	c.waiting[partition] = next
	c.mu.Unlock()
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.turn }()
	c.mu.Lock()
	offsets := maps.Clone(c.waiting)
	c.mu.Unlock()
	if _, waits := offsets[partition]; !waits {
		return nil // another reader committed this position
	}
	if err := c.send(ctx, offsets); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.waiting, func(p int32, next int64) bool { return offsets[p] == next })
	return nil
}

// send commits offsets. An earlier commit whose outcome is unknown may have changed the ETag; then the broker
// reports a conflict. In that case send reads the consumer, and tries once more if the consumer has the
// positions of the earlier commit.
func (c *positionCommitter) send(ctx context.Context, offsets map[int32]int64) error {
	err := c.post(ctx, offsets)
	var refusal *apiError
	if c.unknown == nil || !errors.As(err, &refusal) || refusal.Code != seb.CodePositionConflict {
		return err
	}
	var now consumerInfo
	_, header, getErr := c.broker.exchange(ctx, http.MethodGet, c.broker.url(nil, "topics", c.topic, "consumers", c.name), nil, &now)
	if getErr != nil {
		return getErr
	}
	for _, p := range now.Positions {
		if next, sent := c.unknown[p.Partition]; sent && next != p.Offset {
			return err
		}
	}
	c.etag = header.Get("ETag")
	return c.post(ctx, offsets)
}

func (c *positionCommitter) post(ctx context.Context, offsets map[int32]int64) error {
	body, err := json.Marshal(map[string]any{"offsets": offsets})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	u := c.broker.url(nil, "topics", c.topic, "consumers", c.name, "commit")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("If-Match", c.etag)
	res, err := c.broker.do(req)
	if err != nil {
		if _, outcome := retryable(err); outcome == seb.Unknown {
			c.unknown = offsets
		}
		return err
	}
	defer res.Body.Close()
	if c.etag = res.Header.Get("ETag"); c.etag == "" {
		return fmt.Errorf("%s: the response is not what a broker sends: it has no ETag", c.broker.base)
	}
	c.unknown = nil
	return nil
}
