package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

// commitGrace is how long a commit may go on after an interrupt, so that the position after the records that
// consume wrote to its output is still committed.
const commitGrace = 5 * time.Second

// positionCommitter commits the positions of the consumer that consume --consumer names, for the readers of
// all partitions. It sends one request at a time, which commits the positions of all readers that wait. A
// request names the version of the consumer that the last answer told: if another program has moved the
// consumer since, the broker refuses the request. So seb undoes neither a reset nor another program's commit.
type positionCommitter struct {
	consumer client.Consumer
	turn     chan struct{}

	// Only the reader that has put a value into the channel turn may use version and unknown.
	version string
	unknown seb.Offsets // offsets of the last commit if its outcome is unknown, else nil

	mu      sync.Mutex
	waiting seb.Offsets // the offsets that readers wait to commit; guarded by mu
}

func newPositionCommitter(consumer client.Consumer) *positionCommitter {
	return &positionCommitter{consumer: consumer, turn: make(chan struct{}, 1), waiting: seb.Offsets{}}
}

// commitError says that consume wrote records to its output, but could not commit the position after them.
type commitError struct{ error }

func (e commitError) Error() string { return "commit: " + e.error.Error() }
func (e commitError) Unwrap() error { return e.error }

// open creates the consumer if it does not exist, and returns its positions.
func (c *positionCommitter) open(ctx context.Context) (seb.Offsets, error) {
	info, _, err := c.consumer.Create(ctx)
	c.version = info.Version
	return nextOf(info), err
}

// nextOf returns the consumer's positions. A partition that info does not list was added after the broker made
// the list: the position in it is 0.
func nextOf(info seb.ConsumerInfo) seb.Offsets {
	next := seb.Offsets{}
	for _, p := range info.Positions {
		next[p.Partition] = p.Next
	}
	return next
}

// commit sets positions of the consumer. It returns nil once the new positions are in the store.
func (c *positionCommitter) commit(ctx context.Context, positions seb.Offsets) error {
	interrupted := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(interrupted, func() { time.AfterFunc(commitGrace, cancel) })()
	c.mu.Lock()
	maps.Copy(c.waiting, positions)
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
	if !slices.ContainsFunc(slices.Collect(maps.Keys(positions)), func(p int32) bool { _, waits := offsets[p]; return waits }) {
		return nil // another reader committed these positions
	}
	if err := c.send(ctx, offsets); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.waiting, func(p int32, next seb.Offset) bool { return offsets[p] == next })
	return nil
}

// send commits offsets. An earlier commit whose outcome is unknown may have changed the version; then the
// broker reports a conflict. In that case send reads the consumer, and tries once more if the consumer has the
// positions of the earlier commit.
func (c *positionCommitter) send(ctx context.Context, offsets seb.Offsets) error {
	err := c.sendOnce(ctx, offsets)
	if c.unknown == nil || seb.CodeOf(err) != seb.CodePositionConflict {
		return err
	}
	now, describeErr := c.consumer.Describe(ctx)
	if describeErr != nil {
		return describeErr
	}
	for partition, next := range nextOf(now) {
		if sent, ok := c.unknown[partition]; ok && sent != next {
			return err
		}
	}
	c.version = now.Version
	return c.sendOnce(ctx, offsets)
}

func (c *positionCommitter) sendOnce(ctx context.Context, offsets seb.Offsets) error {
	version, err := c.consumer.Commit(ctx, offsets, seb.IfVersion(c.version))
	if err != nil {
		if seb.OutcomeOf(err) == seb.Unknown {
			c.unknown = offsets
		}
		return err
	}
	c.version, c.unknown = version, nil
	return nil
}
