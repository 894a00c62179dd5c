package change

import (
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// ConsumerName names a consumer and its topic.
type ConsumerName struct{ Topic, Consumer string }

// find returns the ids of the topic and the consumer.
func (c ConsumerName) find(d *state.Draft) (topic format.TopicID, id format.ConsumerID, _ error) {
	topic, _, ok := d.TopicID(c.Topic)
	if !ok {
		return 0, 0, TopicNotFound(c.Topic)
	}
	id, ok = d.ConsumerID(topic, c.Consumer)
	if !ok {
		return 0, 0, ConsumerNotFound(c.Topic, c.Consumer)
	}
	return topic, id, nil
}

// checkPositions refuses positions outside of their partitions.
func (c ConsumerName) checkPositions(d *state.Draft, topic format.TopicID, ps []format.Position) error {
	_, partitions, _ := d.TopicID(c.Topic)
	for _, p := range ps {
		end, ok := d.End(topic, p.Partition)
		if !ok {
			return PartitionNotFound(c.Topic, p.Partition, int(partitions))
		}
		if start := d.Start(topic, p.Partition); p.Offset < start || p.Offset > end {
			return OutOfRange(c.Topic, p.Partition, p.Offset, start, end)
		}
	}
	return nil
}

// ConsumerVersion returns the version of a consumer, for example "7.3" if the consumer has the id 7 and
// its positions were set 3 times. The version includes the id because an earlier consumer may have had
// the same name.
func ConsumerVersion(id format.ConsumerID, moves uint64) string {
	return fmt.Sprintf("%d.%d", id, moves)
}

// DeleteConsumer deletes a consumer.
type DeleteConsumer struct{ ConsumerName }

// Apply implements engine.Change.
func (x DeleteConsumer) Apply(d *state.Draft) ([]format.Entry, error) {
	_, id, err := x.find(d)
	if err != nil {
		return nil, err
	}
	return []format.Entry{&format.ConsumerDeleted{ID: id}}, nil
}

// ConsumerSetting is the common part of changes that set the positions of a consumer, and create the
// consumer if it does not exist.
type ConsumerSetting struct {
	ConsumerName
	ConsumersMax int // how many consumers the log may have
}

// topicIn returns the topic's id and number of partitions; exists tells whether the topic has the
// consumer.
func (x ConsumerSetting) topicIn(d *state.Draft) (topic format.TopicID, partitions uint32, exists bool, _ error) {
	topic, partitions, ok := d.TopicID(x.Topic)
	if !ok {
		return 0, 0, false, TopicNotFound(x.Topic)
	}
	_, exists = d.ConsumerID(topic, x.Consumer)
	return topic, partitions, exists, nil
}

// to returns the entries that set the consumer to the positions ps. If the consumer does not exist, the
// entries also create it.
func (x ConsumerSetting) to(d *state.Draft, topic format.TopicID, ps []format.Position) (entries []format.Entry, _ error) {
	id, exists := d.ConsumerID(topic, x.Consumer)
	if !exists {
		if d.ConsumerCount() >= x.ConsumersMax {
			return nil, limited(CodeTooManyConsumers, x.ConsumersMax, "there are %d consumers, which is the maximum", d.ConsumerCount())
		}
		id = d.NextConsumerID()
		entries = append(entries, &format.ConsumerCreated{ID: id, Topic: topic, Name: x.Consumer})
	}
	return append(entries, &format.PositionsMoved{Consumer: id, Positions: ps}), nil
}

// starts returns the position at the start of every partition.
func starts(d *state.Draft, topic format.TopicID, partitions uint32) []format.Position {
	ps := make([]format.Position, partitions)
	for p := range format.Partition(partitions) {
		ps[p] = format.Position{Partition: p, Offset: d.Start(topic, p)}
	}
	return ps
}

// CreateConsumer creates a consumer that begins at the start of each partition, unless it exists.
type CreateConsumer struct{ ConsumerSetting }

// Apply implements engine.Change.
func (x CreateConsumer) Apply(d *state.Draft) ([]format.Entry, error) {
	topic, partitions, exists, err := x.topicIn(d)
	if err != nil || exists {
		return nil, err
	}
	return x.to(d, topic, starts(d, topic, partitions))
}

// ResetConsumer sets a consumer to a position in every partition.
type ResetConsumer struct {
	ConsumerSetting
	From Position
	// If TopicID is not 0, the consumer is reset to a time, and Next replaces From. Next has the offsets
	// of that time, by partition. The caller found these offsets in the topic with the id TopicID.
	TopicID format.TopicID
	Next    []format.Offset
}

// Apply implements engine.Change.
func (x ResetConsumer) Apply(d *state.Draft) ([]format.Entry, error) {
	topic, partitions, _, err := x.topicIn(d)
	if err != nil {
		return nil, err
	}
	if x.From.Exact && partitions > 1 {
		return nil, refused(CodeInvalidRequest, "name the partitions and their offsets",
			"can't begin at offset %d in each of %d partitions", x.From.Offset, partitions)
	}
	ps := starts(d, topic, partitions)
	for i := range ps {
		end, _ := d.End(topic, format.Partition(i))
		switch {
		case x.TopicID == 0:
			ps[i].Offset = x.From.In(ps[i].Offset, end)
		case x.TopicID != topic:
			return nil, TopicDeleted(x.Topic) // another topic has the name now
		case i < len(x.Next): // in a partition that was added after the lookup, the consumer begins at the start
			ps[i].Offset = max(ps[i].Offset, x.Next[i])
		}
	}
	if err := x.checkPositions(d, topic, ps); err != nil {
		return nil, err
	}
	return x.to(d, topic, ps)
}

// ResetConsumerTo sets a consumer to the given positions. In all other partitions the consumer stays
// where it is; a new consumer begins at the start of these partitions.
type ResetConsumerTo struct {
	ConsumerSetting
	Positions []format.Position
}

// Apply implements engine.Change.
func (x ResetConsumerTo) Apply(d *state.Draft) ([]format.Entry, error) {
	topic, partitions, exists, err := x.topicIn(d)
	if err != nil {
		return nil, err
	}
	if err := x.checkPositions(d, topic, x.Positions); err != nil {
		return nil, err
	}
	if exists {
		return x.to(d, topic, x.Positions)
	}
	all := starts(d, topic, partitions)
	for _, p := range x.Positions {
		all[p.Partition] = p
	}
	return x.to(d, topic, all)
}

// MoveConsumer sets positions of an existing consumer.
type MoveConsumer struct {
	ConsumerName
	IfVersion string            // the version that the consumer must have; "" means any
	Expect    []format.Position // positions that the consumer must have
	To        []format.Position // new positions

	// Version is a result: the consumer's version after the commit.
	Version string
}

// Apply implements engine.Change.
func (x *MoveConsumer) Apply(d *state.Draft) ([]format.Entry, error) {
	x.Version = ""
	topic, id, err := x.find(d)
	if err != nil {
		return nil, err
	}
	_, partitions, _ := d.TopicID(x.Topic)
	moves := d.ConsumerVersion(id)
	if version := ConsumerVersion(id, moves); x.IfVersion != "" && x.IfVersion != version {
		return nil, refused(CodePositionConflict, "read the consumer's version again; perhaps another reader uses the same consumer",
			"consumer %q of topic %q has version %s, not %s: another commit or reset has moved it", x.Consumer, x.Topic, version, x.IfVersion)
	}
	for _, p := range x.Expect {
		if uint32(p.Partition) >= partitions {
			return nil, PartitionNotFound(x.Topic, p.Partition, int(partitions))
		}
		if at := d.ConsumerPosition(id, p.Partition); at != p.Offset {
			return nil, refused(CodePositionConflict, "go on from the consumer's position; perhaps another reader uses the same consumer",
				"consumer %q of topic %q is at offset %d of partition %d, not at %d: another commit or reset has moved it", x.Consumer, x.Topic, at, p.Partition, p.Offset)
		}
	}
	for _, p := range x.To {
		switch end, ok := d.End(topic, p.Partition); {
		case !ok:
			return nil, PartitionNotFound(x.Topic, p.Partition, int(partitions))
		case p.Offset > end:
			r := OutOfRange(x.Topic, p.Partition, p.Offset, d.Start(topic, p.Partition), end)
			r.Hint = "commit the offset of the next record to read, which is one after the last record that is done"
			return nil, r
		}
	}
	x.Version = ConsumerVersion(id, moves+1)
	return []format.Entry{&format.PositionsMoved{Consumer: id, Positions: x.To}}, nil
}
