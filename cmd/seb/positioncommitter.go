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

// positionCommitter moves the consumer of a run of consume. All its readers commit through
// it: the reader whose turn it is also commits what the others wait for. It commits only if
// nobody else has moved the consumer, so that it undoes neither a reset nor another reader.
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

// open creates the consumer if there is none, and returns where it is.
func (k *positionCommitter) open(ctx context.Context) (consumerInfo, error) {
	var c consumerInfo
	_, header, err := k.broker.exchange(ctx, http.MethodPut, k.broker.url(nil, "topics", k.topic, "consumers", k.name), nil, &c)
	k.etag = header.Get("ETag")
	return c, err
}

// commit moves the consumer to next in a partition. It returns when the store has it.
func (k *positionCommitter) commit(ctx context.Context, partition int32, next int64) error {
	interrupted := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(interrupted, func() { time.AfterFunc(commitGrace, cancel) })()
	k.mu.Lock()
	k.waiting[partition] = next
	k.mu.Unlock()
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-k.turn }()
	k.mu.Lock()
	offsets := maps.Clone(k.waiting)
	k.mu.Unlock()
	if _, waits := offsets[partition]; !waits {
		return nil // another reader committed it
	}
	if err := k.send(ctx, offsets); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.waiting, func(p int32, next int64) bool { return offsets[p] == next })
	return nil
}

// send commits offsets. After a commit with an unknown outcome, a conflict may be with that
// one.
func (k *positionCommitter) send(ctx context.Context, offsets map[int32]int64) error {
	err := k.post(ctx, offsets)
	var refusal *apiError
	if k.unknown == nil || !errors.As(err, &refusal) || refusal.Code != seb.CodePositionConflict {
		return err
	}
	var now consumerInfo
	_, header, lookErr := k.broker.exchange(ctx, http.MethodGet, k.broker.url(nil, "topics", k.topic, "consumers", k.name), nil, &now)
	if lookErr != nil {
		return lookErr
	}
	for _, p := range now.Positions {
		if next, sent := k.unknown[p.Partition]; sent && next != p.Offset {
			return err
		}
	}
	k.etag = header.Get("ETag")
	return k.post(ctx, offsets)
}

func (k *positionCommitter) post(ctx context.Context, offsets map[int32]int64) error {
	body, err := json.Marshal(map[string]any{"offsets": offsets})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	u := k.broker.url(nil, "topics", k.topic, "consumers", k.name, "commit")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("If-Match", k.etag)
	res, err := k.broker.do(req)
	if err != nil {
		if _, outcome := retryable(err); outcome == seb.Unknown {
			k.unknown = offsets
		}
		return err
	}
	defer res.Body.Close()
	if k.etag = res.Header.Get("ETag"); k.etag == "" {
		return fmt.Errorf("%s: the answer is not what a broker sends: it has no ETag", k.broker.base)
	}
	k.unknown = nil
	return nil
}
