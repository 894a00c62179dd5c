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

// commitGrace is how long a commit may go on after an interrupt: what was written
// should be committed.
const commitGrace = 5 * time.Second

// positionCommitter sets the positions of the consumer of one run of consume. All partition readers of the
// run commit through it, one at a time; each request also commits the positions for which other readers
// wait. It commits only if no other program has changed the consumer's positions, so that it undoes
// neither a reset nor another program's commit.
type positionCommitter struct {
	broker      *client
	topic, name string
	turn        chan struct{}

	// Used by the reader that has the turn.
	etag    string
	unknown map[int32]int64 // offsets of the commit with an unknown outcome; nil if there is none

	mu      sync.Mutex
	waiting map[int32]int64 // next offsets to commit, by partition; guarded by mu
}

func newPositionCommitter(broker *client, topic, name string) *positionCommitter {
	return &positionCommitter{broker: broker, topic: topic, name: name, turn: make(chan struct{}, 1), waiting: map[int32]int64{}}
}

// commitError says that records which were written could not be committed.
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

// send commits offsets. A conflict may come from c's own earlier commit with an unknown outcome. If the
// consumer has the positions of that commit, send tries again.
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
