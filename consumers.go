package seb

import (
	"context"
	"iter"
	"time"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// Consumer is a named position in each partition of a topic. The log stores consumers, so
// every broker knows them and they survive crashes. A consumer never expires. Only
// [Consumer.Commit], [Consumer.Reset], [Consumer.ResetTo] and [Broker.Commit] change its
// positions. Readers that share a consumer read the same records.
//
// A reader that uses [Consumer.Follow], and commits the offset past a record only when the
// work on the record is done, sees each record at least once, even if processes are killed.
//
// A Consumer holds no resources. All methods are safe for concurrent use.
type Consumer struct {
	b *Broker
	namedConsumer
}

// namedConsumer names a consumer and its topic.
type namedConsumer struct{ topic, name string }

// Consumer returns the topic's consumer of that name, whether it exists or not. Names of
// consumers follow the same rules as names of topics.
func (b *Broker) Consumer(topic, name string) *Consumer {
	return &Consumer{b, namedConsumer{topic, name}}
}

// ConsumerInfo is a consumer as it is at one moment.
type ConsumerInfo struct {
	Topic, Name string
	Created     time.Time
	// Moved is when a commit or a reset last set the consumer's positions.
	Moved time.Time
	// Version changes with every commit and reset of the consumer. See [IfVersion].
	Version string
	// Positions has one entry for each partition of the topic.
	Positions []ConsumerPosition
}

// ConsumerPosition is where a consumer is in one partition.
type ConsumerPosition struct {
	Partition int32
	// Next is the offset to read next.
	Next Offset
	// Start and End bound the partition.
	Start, End Offset
}

// ConsumerPositionBytes is the memory that a [ConsumerPosition] takes.
const ConsumerPositionBytes = int64(unsafe.Sizeof(ConsumerPosition{}))

// Lag is how many records of the partition the consumer still has to read.
func (p ConsumerPosition) Lag() int64 { return int64(p.End - max(p.Next, p.Start)) }

// Missed is how many records were deleted before the consumer committed them. While Missed is not
// 0, reading fails with CodeOffsetOutOfRange: the caller, not the broker, decides whether to go
// on at the start of the partition.
func (p ConsumerPosition) Missed() int64 { return int64(max(0, p.Start-p.Next)) }

// Consumers iterates over the consumers of a topic, sorted by name. It describes a consumer when the
// iteration reaches that consumer, and reserves the memory of the description while the loop body
// runs: see [ListOptions]. An error ends the iteration, and comes with a zero ConsumerInfo.
func (b *Broker) Consumers(ctx context.Context, topic string, o ListOptions) iter.Seq2[ConsumerInfo, error] {
	return reading(func(yield func(ConsumerInfo, error) bool) {
		id, err := b.TopicID(ctx, topic)
		if err != nil {
			yield(ConsumerInfo{}, err)
			return
		}
		listConsumers(id).list(ctx, b, o.After, o.may, o.Reserve)(yield)
	})
}

// listConsumers returns the listing of a topic's consumers.
func listConsumers(topic TopicID) listing[string, ConsumerInfo] {
	return listing[string, ConsumerInfo]{
		next: func(s *state.State, after string) []string {
			return names(s.ConsumersAfter(topic, after, listStep), func(c *state.Consumer) string { return c.Name })
		},
		bytes: func(s *state.State, name string) (int64, bool) {
			if s.Consumer(topic, name) == nil {
				return 0, false
			}
			return int64(len(s.TopicByID(topic).Partitions)) * ConsumerPositionBytes, true
		},
		describe: func(s *state.State, name string) ConsumerInfo {
			return describeConsumer(s.TopicByID(topic), s.Consumer(topic, name))
		},
	}
}

// Describe returns the consumer's positions. It fails with CodeConsumerNotFound if the consumer
// does not exist; [Consumer.Create], [Consumer.Reset], [Consumer.ResetTo], [Consumer.Follower]
// and [Consumer.Follow] create it.
func (c *Consumer) Describe(ctx context.Context) (_ ConsumerInfo, err error) {
	defer reads(&err)
	if err := c.check(); err != nil {
		return ConsumerInfo{}, err
	}
	if err := c.b.current(ctx); err != nil {
		return ConsumerInfo{}, err
	}
	if _, _, err := c.b.findTopic(ctx, c.topic); err != nil {
		return ConsumerInfo{}, err
	}
	info, err := c.describe()
	if CodeOf(err) == CodeConsumerNotFound { // another broker may have created the consumer
		if err := c.b.engine.Sync(ctx); err != nil {
			return ConsumerInfo{}, err
		}
		info, err = c.describe()
	}
	return info, err
}

func (c *Consumer) describe() (info ConsumerInfo, err error) {
	err = c.view(func(t *state.Topic, found *state.Consumer) { info = describeConsumer(t, found) })
	return info, err
}

// view calls f with the consumer and its topic. It fails if the consumer or the topic does not exist.
func (c *Consumer) view(f func(t *state.Topic, found *state.Consumer)) (err error) {
	c.b.engine.View(func(s *state.State) {
		t := s.Topic(c.topic)
		if t == nil {
			err = change.TopicNotFound(c.topic)
		} else if found := s.Consumer(t.ID, c.name); found == nil {
			err = change.ConsumerNotFound(c.topic, c.name)
		} else {
			f(t, found)
		}
	})
	return err
}

func describeConsumer(t *state.Topic, c *state.Consumer) ConsumerInfo {
	info := ConsumerInfo{
		Topic: t.Name, Name: c.Name, Version: change.ConsumerVersion(c.ID, c.Version),
		Created: time.UnixMicro(c.Created).UTC(), Moved: time.UnixMicro(c.Moved).UTC(),
		Positions: make([]ConsumerPosition, len(t.Partitions)),
	}
	for i := range t.Partitions {
		info.Positions[i] = positionOf(t, c, i)
	}
	return info
}

// positionOf returns a consumer's position in partition i.
func positionOf(t *state.Topic, c *state.Consumer, i int) ConsumerPosition {
	p := &t.Partitions[i]
	return ConsumerPosition{Partition: int32(i), Next: c.Position(format.Partition(i)), Start: p.Start, End: p.End}
}

// Delete deletes the consumer. It fails with CodeConsumerNotFound if the consumer does not exist. A
// consumer that is created later under the same name does not have the old positions.
func (c *Consumer) Delete(ctx context.Context) (err error) {
	defer writes(&err)
	if err := c.check(); err != nil {
		return err
	}
	_, err = c.b.change(ctx, change.DeleteConsumer{ConsumerName: c.names()})
	return err
}

func (c namedConsumer) names() change.ConsumerName {
	return change.ConsumerName{Topic: c.topic, Consumer: c.name}
}

func (c namedConsumer) check() error {
	if err := change.CheckTopicName(c.topic); err != nil {
		return err
	}
	if change.CheckTopicName(c.name) != nil {
		e := refused(CodeInvalidRequest, "invalid consumer name %q", c.name)
		e.Hint = change.NamesHint
		return e
	}
	return nil
}

// Create creates the consumer at the start of every partition. If the consumer exists, Create
// changes nothing, and created is false.
func (c *Consumer) Create(ctx context.Context) (_ ConsumerInfo, created bool, err error) {
	defer writes(&err)
	return c.set(ctx, change.CreateConsumer{ConsumerSetting: c.setting()})
}

func (c *Consumer) setting() change.ConsumerSetting {
	return change.ConsumerSetting{ConsumerName: c.names(), ConsumersMax: c.b.opts.Limits.Consumers}
}

// Reset sets the consumer to a position in every partition, and creates the consumer if it does
// not exist. If the topic has several partitions, a position made by [At] is refused: use
// [Consumer.ResetTo] instead.
func (c *Consumer) Reset(ctx context.Context, from Position) (_ ConsumerInfo, created bool, err error) {
	defer writes(&err)
	if err := c.check(); err != nil {
		return ConsumerInfo{}, false, err
	}
	x := change.ResetConsumer{ConsumerSetting: c.setting(), From: from.stored()}
	if from.kind == fromTime {
		sought, err := c.b.NewFollower(ctx, c.topic, AllPartitions, from)
		if err != nil {
			if e, ok := publicError(err); ok && e.Code == CodeTooManyPartitions {
				e.Hint = "find the offset of that time in each partition, and reset the consumer to those offsets"
			}
			return ConsumerInfo{}, false, err
		}
		x.TopicID, x.Next = sought.id, sought.next
	}
	return c.set(ctx, x)
}

// ResetTo sets the consumer to the given offsets. In partitions without a given offset, the
// consumer keeps its position. If the consumer does not exist, ResetTo creates it; in partitions
// without a given offset, the new consumer begins at the start.
func (c *Consumer) ResetTo(ctx context.Context, offsets Offsets) (_ ConsumerInfo, created bool, err error) {
	defer writes(&err)
	if err := c.check(); err != nil {
		return ConsumerInfo{}, false, err
	}
	ps, err := change.Positions(offsets)
	if err != nil {
		return ConsumerInfo{}, false, err
	}
	return c.set(ctx, change.ResetConsumerTo{ConsumerSetting: c.setting(), Positions: ps})
}

// set commits a change that sets the consumer.
func (c *Consumer) set(ctx context.Context, x engine.Change) (_ ConsumerInfo, created bool, _ error) {
	if err := c.check(); err != nil {
		return ConsumerInfo{}, false, err
	}
	entries, err := c.b.change(ctx, x)
	if err != nil {
		return ConsumerInfo{}, false, err
	}
	_, created = entryOf[*format.ConsumerCreated](entries)
	info, err := c.describe()
	if err != nil { // the change was committed, but the consumer was deleted since, perhaps by the same commit
		return ConsumerInfo{}, false, maybeCommitted(change.ConsumerNotFound(c.topic, c.name))
	}
	return info, created, nil
}
