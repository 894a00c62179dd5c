package seb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// Consumer is a named position in each partition of a topic. It is stored in the log, so
// every broker knows it and it survives crashes. It never expires, and only
// [Consumer.Commit], [Consumer.Reset] and [Consumer.ResetTo] move it. Several readers
// under one name read the same records.
//
// A reader that uses [Consumer.Follow], and commits the offset past a record only when the
// work on it is done, sees each record at least once, whichever process is killed.
//
// A Consumer holds no resources. All methods are safe for concurrent use.
type Consumer struct {
	b           *Broker
	topic, name string
}

// Consumer returns the topic's consumer of that name, whether it exists or not. The rules
// for names are those of topics.
func (b *Broker) Consumer(topic, name string) *Consumer {
	return &Consumer{b: b, topic: topic, name: name}
}

// ConsumerInfo is a consumer as it is at one moment.
type ConsumerInfo struct {
	Topic, Name string
	Created     time.Time
	// Moved is when a commit or a reset last set its positions.
	Moved time.Time
	// Version changes with every commit and reset. See [IfVersion].
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

// Lag is how many records the consumer has still to read.
func (p ConsumerPosition) Lag() int64 { return int64(p.End - max(p.Next, p.Start)) }

// Missed is how many records were deleted before the consumer committed them. While it is not
// 0, reading fails with CodeOffsetOutOfRange: the caller decides whether to go on at the
// start, not the broker.
func (p ConsumerPosition) Missed() int64 { return int64(max(0, p.Start-p.Next)) }

// Consumers iterates over the consumers of a topic by name, each as it is when the iteration
// reaches it. Its memory is reserved from Options.Memory while the caller handles it. An error
// ends the iteration, and comes without a consumer.
func (b *Broker) Consumers(ctx context.Context, topic string, o ListOptions) iter.Seq2[ConsumerInfo, error] {
	return reading(func(yield func(ConsumerInfo, error) bool) {
		id, err := b.topicNow(ctx, topic)
		if err != nil {
			yield(ConsumerInfo{}, err)
			return
		}
		b.consumersOf(id).list(ctx, b, o.After, o.may, o.Reserve)(yield)
	})
}

func (b *Broker) consumersOf(topic uint64) listing[string, ConsumerInfo] {
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

// Describe returns the consumer's positions. [Consumer.Create], [Consumer.Reset],
// [Consumer.ResetTo] and the first [Consumer.Follow] create a consumer.
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
	if CodeOf(err) == CodeConsumerNotFound { // another broker may have created it
		if err := c.b.syncNow(ctx, false); err != nil {
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

// view is [Broker.view] of the consumer and its topic. It fails if one of them does not exist.
func (c *Consumer) view(f func(t *state.Topic, found *state.Consumer)) (err error) {
	c.b.view(func(s *state.State) {
		t := s.Topic(c.topic)
		if t == nil {
			err = topicNotFound(c.topic)
		} else if found := s.Consumer(t.ID, c.name); found == nil {
			err = consumerNotFound(c.topic, c.name)
		} else {
			f(t, found)
		}
	})
	return err
}

func describeConsumer(t *state.Topic, c *state.Consumer) ConsumerInfo {
	info := ConsumerInfo{
		Topic: t.Name, Name: c.Name, Version: versionOf(c.ID, c.Version),
		Created: time.UnixMicro(c.Created).UTC(), Moved: time.UnixMicro(c.Moved).UTC(),
		Positions: make([]ConsumerPosition, len(t.Partitions)),
	}
	for i := range t.Partitions {
		info.Positions[i] = positionOf(t, c, i)
	}
	return info
}

// positionOf returns a consumer's position in the partition of that index.
func positionOf(t *state.Topic, c *state.Consumer, i int) ConsumerPosition {
	p := &t.Partitions[i]
	return ConsumerPosition{Partition: int32(i), Next: Offset(c.Position(int32(i))), Start: Offset(p.Start), End: Offset(p.End)}
}

// versionOf returns a consumer's version. It has the id, so that it differs from every
// version of an earlier consumer of that name.
func versionOf(id, count uint64) string { return fmt.Sprintf("%d.%d", id, count) }

// Delete deletes the consumer. One that is created later under its name begins at the start.
func (c *Consumer) Delete(ctx context.Context) (err error) {
	defer writes(&err)
	if err := c.check(); err != nil {
		return err
	}
	return c.b.change(ctx, func(d *state.Draft) ([]format.Entry, *Error) {
		topic, _, ok := d.TopicID(c.topic)
		if !ok {
			return nil, topicNotFound(c.topic)
		}
		id, ok := d.ConsumerID(topic, c.name)
		if !ok {
			return nil, consumerNotFound(c.topic, c.name)
		}
		return []format.Entry{&format.ConsumerDeleted{ID: id}}, nil
	})
}

func (c *Consumer) check() error {
	if err := checkTopicName(c.topic); err != nil {
		return err
	}
	if checkTopicName(c.name) != nil {
		e := refused(CodeInvalidRequest, "invalid consumer name %q", c.name)
		e.Hint = namesHint
		return e
	}
	return nil
}

// Create creates the consumer at the start of every partition. It does nothing if the
// consumer exists.
func (c *Consumer) Create(ctx context.Context) (_ ConsumerInfo, created bool, err error) {
	defer writes(&err)
	return c.set(ctx, func(d *state.Draft, topic uint64, partitions uint32) ([]format.Position, *Error) {
		if _, exists := d.ConsumerID(topic, c.name); exists {
			return nil, nil
		}
		return starts(d, topic, partitions), nil
	})
}

// created returns the entry that creates the consumer.
func (c *Consumer) created(d *state.Draft, topic uint64) (id uint64, _ []format.Entry, _ *Error) {
	if most := min(c.b.opts.Limits.Consumers, state.ConsumersMax); d.ConsumerCount() >= most {
		return 0, nil, limited(CodeTooManyConsumers, most, "there are %d consumers already", d.ConsumerCount())
	}
	id = d.NextConsumerID()
	return id, []format.Entry{&format.ConsumerCreated{ID: id, Topic: topic, Name: c.name}}, nil
}

// starts returns the start of every partition.
func starts(d *state.Draft, topic uint64, partitions uint32) []format.Position {
	ps := make([]format.Position, partitions)
	for p := range partitions {
		ps[p] = format.Position{Partition: p, Offset: d.Start(topic, p)}
	}
	return ps
}

// Reset sets the consumer to a position in every partition, and creates it if it does not
// exist. [At] is only for topics of one partition; see [Consumer.ResetTo].
func (c *Consumer) Reset(ctx context.Context, from Position) (_ ConsumerInfo, created bool, err error) {
	defer writes(&err)
	if err := c.check(); err != nil {
		return ConsumerInfo{}, false, err
	}
	var sought *Follower
	if from.kind == fromTime {
		var err error
		if sought, err = c.b.NewFollower(ctx, c.topic, AllPartitions, from); err != nil {
			if e := (*Error)(nil); errors.As(err, &e) && e.Code == CodeTooManyPartitions {
				e.Hint = "find the offset of that time in each partition, and reset the consumer to those offsets"
			}
			return ConsumerInfo{}, false, err
		}
	}
	return c.set(ctx, func(d *state.Draft, topic uint64, partitions uint32) ([]format.Position, *Error) {
		if from.kind == fromOffset && partitions > 1 {
			e := refused(CodeInvalidRequest, "can't begin at offset %d in each of %d partitions", from.n, partitions)
			e.Hint = "name the partitions and their offsets"
			return nil, e
		}
		ps := starts(d, topic, partitions)
		for i := range ps {
			end, _ := d.End(topic, uint32(i))
			switch {
			case sought == nil:
				ps[i].Offset = from.between(ps[i].Offset, end)
			case sought.id != topic:
				return nil, topicDeleted(c.topic) // another topic has the name now
			case i < len(sought.next): // else the partition was added since
				ps[i].Offset = max(ps[i].Offset, sought.next[i])
			}
		}
		return ps, c.checkPositions(d, topic, ps)
	})
}

// ResetTo sets the consumer to the given offsets. In partitions that are not given it stays
// where it is. If the consumer does not exist, ResetTo creates it, and it begins at the start
// of those partitions.
func (c *Consumer) ResetTo(ctx context.Context, offsets Offsets) (_ ConsumerInfo, created bool, err error) {
	defer writes(&err)
	if err := c.check(); err != nil {
		return ConsumerInfo{}, false, err
	}
	ps, err := offsets.positions()
	if err != nil {
		return ConsumerInfo{}, false, err
	}
	return c.set(ctx, func(d *state.Draft, topic uint64, partitions uint32) ([]format.Position, *Error) {
		if err := c.checkPositions(d, topic, ps); err != nil {
			return nil, err
		}
		if _, exists := d.ConsumerID(topic, c.name); exists {
			return ps, nil
		}
		all := starts(d, topic, partitions)
		for _, p := range ps {
			all[p.Partition] = p
		}
		return all, nil
	})
}

// set sets the consumer to the positions that to returns, and creates it if it does not exist.
// If to returns none, it does nothing.
func (c *Consumer) set(ctx context.Context, to func(d *state.Draft, topic uint64, partitions uint32) ([]format.Position, *Error)) (_ ConsumerInfo, created bool, _ error) {
	if err := c.check(); err != nil {
		return ConsumerInfo{}, false, err
	}
	var creates bool // the commit loop's until the outcome is known
	err := c.b.change(ctx, func(d *state.Draft) (entries []format.Entry, refusal *Error) {
		creates = false
		topic, partitions, ok := d.TopicID(c.topic)
		if !ok {
			return nil, topicNotFound(c.topic)
		}
		ps, refusal := to(d, topic, partitions)
		if refusal != nil || len(ps) == 0 {
			return nil, refusal
		}
		id, exists := d.ConsumerID(topic, c.name)
		if !exists {
			if id, entries, refusal = c.created(d, topic); refusal != nil {
				return nil, refusal
			}
		}
		creates = !exists
		return append(entries, &format.PositionsMoved{Consumer: id, Positions: ps}), nil
	})
	if err != nil {
		return ConsumerInfo{}, false, err
	}
	info, err := c.describe()
	if err != nil { // deleted since, perhaps by the same commit: this call has succeeded
		return ConsumerInfo{}, false, consumerNotFound(c.topic, c.name).with(Unknown)
	}
	return info, creates, nil
}

// checkPositions refuses positions outside of their partitions.
func (c *Consumer) checkPositions(d *state.Draft, topic uint64, ps []format.Position) *Error {
	_, partitions, _ := d.TopicID(c.topic)
	for _, p := range ps {
		end, ok := d.End(topic, p.Partition)
		if !ok {
			return partitionNotFound(c.topic, int32(p.Partition), int(partitions))
		}
		if start := d.Start(topic, p.Partition); p.Offset < start || p.Offset > end {
			return outOfRange(c.topic, int32(p.Partition), p.Offset, start, end)
		}
	}
	return nil
}
