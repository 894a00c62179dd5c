package seb

import (
	"context"
	"fmt"
	"iter"
	"time"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/engine"
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
	b *Broker
	namedConsumer
}

// namedConsumer names a consumer and its topic.
type namedConsumer struct{ topic, name string }

// Consumer returns the topic's consumer of that name, whether it exists or not. The rules
// for names are those of topics.
func (b *Broker) Consumer(topic, name string) *Consumer {
	return &Consumer{b, namedConsumer{topic, name}}
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

// view is [Broker.view] of the consumer and its topic. It fails if one of them does not exist.
func (c *Consumer) view(f func(t *state.Topic, found *state.Consumer)) (err error) {
	c.b.engine.View(func(s *state.State) {
		t := s.Topic(c.topic)
		if t == nil {
			err = change.TopicNotFound(c.topic)
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
	_, err = c.b.change(ctx, deleteConsumer{c.namedConsumer})
	return err
}

// deleteConsumer is the change of [Consumer.Delete].
type deleteConsumer struct{ namedConsumer }

// Apply implements engine.Change.
func (x deleteConsumer) Apply(d *state.Draft) ([]format.Entry, error) {
	_, id, err := x.find(d)
	if err != nil {
		return nil, err
	}
	return []format.Entry{&format.ConsumerDeleted{ID: id}}, nil
}

// find returns the ids of the topic and the consumer.
func (c namedConsumer) find(d *state.Draft) (topic, id uint64, _ error) {
	topic, _, ok := d.TopicID(c.topic)
	if !ok {
		return 0, 0, change.TopicNotFound(c.topic)
	}
	id, ok = d.ConsumerID(topic, c.name)
	if !ok {
		return 0, 0, consumerNotFound(c.topic, c.name)
	}
	return topic, id, nil
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

// Create creates the consumer at the start of every partition. It does nothing if the
// consumer exists.
func (c *Consumer) Create(ctx context.Context) (_ ConsumerInfo, created bool, err error) {
	defer writes(&err)
	return c.set(ctx, createConsumer{c.setting()})
}

// setConsumer is what changes have in common that set a consumer to positions, and create it if
// it does not exist.
type setConsumer struct {
	namedConsumer
	consumersMax int
}

func (c *Consumer) setting() setConsumer {
	return setConsumer{c.namedConsumer, min(c.b.opts.Limits.Consumers, state.ConsumersMax)}
}

// topicIn returns the topic; exists tells whether it has the consumer.
func (x setConsumer) topicIn(d *state.Draft) (topic uint64, partitions uint32, exists bool, _ error) {
	topic, partitions, ok := d.TopicID(x.topic)
	if !ok {
		return 0, 0, false, change.TopicNotFound(x.topic)
	}
	_, exists = d.ConsumerID(topic, x.name)
	return topic, partitions, exists, nil
}

// to returns the entries that set the consumer to positions.
func (x setConsumer) to(d *state.Draft, topic uint64, ps []format.Position) (entries []format.Entry, _ error) {
	id, exists := d.ConsumerID(topic, x.name)
	if !exists {
		if d.ConsumerCount() >= x.consumersMax {
			return nil, limited(CodeTooManyConsumers, x.consumersMax, "there are %d consumers already", d.ConsumerCount())
		}
		id = d.NextConsumerID()
		entries = append(entries, &format.ConsumerCreated{ID: id, Topic: topic, Name: x.name})
	}
	return append(entries, &format.PositionsMoved{Consumer: id, Positions: ps}), nil
}

// createConsumer is the change of [Consumer.Create].
type createConsumer struct{ setConsumer }

// Apply implements engine.Change.
func (x createConsumer) Apply(d *state.Draft) ([]format.Entry, error) {
	topic, partitions, exists, err := x.topicIn(d)
	if err != nil || exists {
		return nil, err
	}
	return x.to(d, topic, starts(d, topic, partitions))
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
	x := resetConsumer{setConsumer: c.setting(), from: from}
	if from.kind == fromTime {
		sought, err := c.b.NewFollower(ctx, c.topic, AllPartitions, from)
		if err != nil {
			if e, ok := publicError(err); ok && e.Code == CodeTooManyPartitions {
				e.Hint = "find the offset of that time in each partition, and reset the consumer to those offsets"
			}
			return ConsumerInfo{}, false, err
		}
		x.topicID, x.next = sought.id, sought.next
	}
	return c.set(ctx, x)
}

// resetConsumer is the change of [Consumer.Reset].
type resetConsumer struct {
	setConsumer
	from    Position
	topicID uint64  // that from was sought in; 0 if it is no time
	next    []int64 // the offsets of from in that topic
}

// Apply implements engine.Change.
func (x resetConsumer) Apply(d *state.Draft) ([]format.Entry, error) {
	topic, partitions, _, err := x.topicIn(d)
	if err != nil {
		return nil, err
	}
	if x.from.kind == fromOffset && partitions > 1 {
		e := refused(CodeInvalidRequest, "can't begin at offset %d in each of %d partitions", x.from.n, partitions)
		e.Hint = "name the partitions and their offsets"
		return nil, e
	}
	ps := starts(d, topic, partitions)
	for i := range ps {
		end, _ := d.End(topic, uint32(i))
		switch {
		case x.topicID == 0:
			ps[i].Offset = x.from.between(ps[i].Offset, end)
		case x.topicID != topic:
			return nil, change.TopicDeleted(x.topic) // another topic has the name now
		case i < len(x.next): // else the partition was added since
			ps[i].Offset = max(ps[i].Offset, x.next[i])
		}
	}
	if err := x.checkPositions(d, topic, ps); err != nil {
		return nil, err
	}
	return x.to(d, topic, ps)
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
	return c.set(ctx, resetConsumerTo{c.setting(), ps})
}

// resetConsumerTo is the change of [Consumer.ResetTo].
type resetConsumerTo struct {
	setConsumer
	positions []format.Position
}

// Apply implements engine.Change.
func (x resetConsumerTo) Apply(d *state.Draft) ([]format.Entry, error) {
	topic, partitions, exists, err := x.topicIn(d)
	if err != nil {
		return nil, err
	}
	if err := x.checkPositions(d, topic, x.positions); err != nil {
		return nil, err
	}
	if exists {
		return x.to(d, topic, x.positions)
	}
	all := starts(d, topic, partitions)
	for _, p := range x.positions {
		all[p.Partition] = p
	}
	return x.to(d, topic, all)
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
	if err != nil { // deleted since, perhaps by the same commit: this call has succeeded
		return ConsumerInfo{}, false, consumerNotFound(c.topic, c.name).with(Unknown)
	}
	return info, created, nil
}

// checkPositions refuses positions outside of their partitions.
func (c namedConsumer) checkPositions(d *state.Draft, topic uint64, ps []format.Position) error {
	_, partitions, _ := d.TopicID(c.topic)
	for _, p := range ps {
		end, ok := d.End(topic, p.Partition)
		if !ok {
			return change.PartitionNotFound(c.topic, int32(p.Partition), int(partitions))
		}
		if start := d.Start(topic, p.Partition); p.Offset < start || p.Offset > end {
			return change.OutOfRange(c.topic, int32(p.Partition), p.Offset, start, end)
		}
	}
	return nil
}
