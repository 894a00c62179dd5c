package seb

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/option"
	"github.com/simple-event-broker/seb/internal/state"
)

// Offsets are the next offsets to read, by partition.
type Offsets map[int32]Offset

// After returns the offsets past the given records. A reader commits them when all of the records are
// done.
func After(records ...Record) Offsets {
	o := Offsets{}
	for _, r := range records {
		o[r.Partition] = max(o[r.Partition], r.Offset+1)
	}
	return o
}

// CommitOption is an option of [Consumer.Commit].
type CommitOption func(*option.Commit)

// IfVersion makes the commit fail with CodePositionConflict unless the consumer's
// [ConsumerInfo.Version] is still v. So if two readers of one consumer have read the same version,
// only the first commit succeeds. If v is "", there is no condition.
func IfVersion(v string) CommitOption { return func(o *option.Commit) { o.Version = v } }

// Commit sets the consumer's positions in all the given partitions, or in none. It returns the
// consumer's new version once the store has the change. The change joins the log's next commit,
// together with other requests. So while records are appended, a change of positions costs no
// store request of its own.
//
// An offset may be lower than the consumer's position, but not higher than the end of the
// partition. If the error's [Outcome] is [Unknown], the positions may have been set; the caller
// can call Commit again with the same offsets.
func (c *Consumer) Commit(ctx context.Context, offsets Offsets, opts ...CommitOption) (version string, err error) {
	defer writes(&err)
	ps, err := change.Positions(offsets)
	if err := cmp.Or(c.check(), err, c.b.engine.Usable()); err != nil {
		return "", err
	}
	x := &change.MoveConsumer{ConsumerName: c.names(), IfVersion: option.OfCommit(opts).Version, To: ps}
	if err := c.b.engine.Commit(ctx, &engine.Request{Change: x, Callers: callersOf(ctx)}); err != nil {
		return "", err
	}
	return x.Version, nil
}

// Follower returns a follower of a partition, or of AllPartitions, that begins at the
// consumer's positions. The follower first reads a partition chosen at random. If the consumer does
// not exist, Follower creates it at the start of every partition; if the creation fails, the error
// has an [Outcome]. The caller commits the offsets past the records that it has processed: see
// [Consumer.Commit].
//
// If the topic has more than [FollowPartitionsMax] partitions, the follower keeps the offsets
// only of partitions that were read and not committed since; in other partitions it reads from
// the consumer's positions. Such a follower fails with CodeConsumerNotFound once the consumer is
// deleted, even if another consumer is created under the same name.
//
// Follower fails with CodeOffsetOutOfRange if records were deleted that the consumer has not
// committed. Then use [Consumer.Reset] to choose where the consumer goes on.
func (c *Consumer) Follower(ctx context.Context, partition int32) (_ *Follower, err error) {
	defer func() { err = public(err) }()
	if err := c.check(); err != nil {
		return nil, err
	}
	f, err := c.follower(ctx, partition)
	if CodeOf(err) == CodeTopicRecreated {
		f, err = c.follower(ctx, partition) // the topic was deleted, and another topic has the name now
	}
	if e, ok := publicError(err); ok && e.Code == CodeOffsetOutOfRange {
		passed := *e
		passed.Hint = fmt.Sprintf("records that the consumer has not committed were deleted: "+
			"reset the consumer to earliest, which is offset %d, or to another offset, to go on without them", e.Start)
		return nil, &passed
	}
	return f, err
}

func (c *Consumer) follower(ctx context.Context, partition int32) (*Follower, error) {
	if err := c.b.current(ctx); err != nil {
		return nil, err
	}
	if partition == AllPartitions {
		topic, count, err := c.b.findTopic(ctx, c.topic)
		if err != nil {
			return nil, err
		}
		if count > FollowPartitionsMax {
			return c.round(ctx, topic, count)
		}
	}
	m, ok := c.bookmark(partition)
	if !ok {
		if _, err := c.b.NewFollower(ctx, c.topic, partition, Latest); err != nil {
			return nil, err // don't create the consumer if the partition can't be followed
		}
		if _, _, err := c.Create(ctx); err != nil {
			return nil, err // err has the outcome of the creation
		}
		if m, ok = c.bookmark(partition); !ok {
			return nil, change.ConsumerNotFound(c.topic, c.name) // another caller has deleted the consumer meanwhile
		}
	}
	f, err := c.b.ResumeFollower(ctx, c.topic, m)
	if err == nil {
		// A reader that makes a new follower for each read must still reach all partitions. So the
		// first partition is random. With a counter, two readers that alternate would each get only
		// every second partition.
		f.turn = rand.N(len(f.next))
	}
	return f, err
}

// bookmark returns the consumer's position; ok is false if the consumer or the topic does not exist.
func (c *Consumer) bookmark(partition int32) (m Bookmark, ok bool) {
	if partition < AllPartitions {
		return m, false
	}
	err := c.view(func(t *state.Topic, found *state.Consumer) {
		m = Bookmark{Cluster: clusterTag(c.b.engine), Topic: t.ID, Partition: partition}
		if partition != AllPartitions {
			m.Offsets = []Offset{found.Position(format.Partition(partition))}
			return
		}
		for p := range t.Partitions {
			m.Offsets = append(m.Offsets, found.Position(format.Partition(p)))
		}
	})
	return m, err == nil
}

// Follow iterates over the records that the consumer has not committed, in all partitions of the
// topic, and waits for more, until ctx ends or the caller stops. The caller commits:
//
//	for record, err := range consumer.Follow(ctx) {
//		...
//		_, err = consumer.Commit(ctx, seb.After(record))
//	}
func (c *Consumer) Follow(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		f, err := c.Follower(ctx, AllPartitions)
		for err == nil {
			var records []Record
			records, err = f.Next(ctx, FetchOptions{Wait: followWait})
			for _, r := range records {
				if !yield(r, nil) {
					return
				}
			}
		}
		yield(Record{}, err)
	}
}
