package state

import (
	"encoding/binary"
	"fmt"
	"maps"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// Bounds on consumers. A log that exceeds them is damaged. Without bounds, a damaged number
// could make a broker allocate all memory. The limits for requests are lower.
const (
	ConsumersMax         = 1 << 20
	ConsumerNameBytesMax = 255
)

// Consumer is a named reading position in a topic.
type Consumer struct {
	// ID is never reused.
	ID      format.ConsumerID
	Topic   format.TopicID
	Name    string
	Created int64 // the log's time in microseconds
	Moved   int64 // the log's time in microseconds when the positions were last set
	// Version counts how often the positions were set.
	Version uint64
	// positions has the next offset to read, by partition. In partitions beyond the end of the
	// list, the next offset is 0.
	positions []format.Offset
}

// Position returns the next offset to read in a partition.
func (c *Consumer) Position(partition format.Partition) format.Offset {
	if int(partition) >= len(c.positions) {
		return 0 // positions leaves out zeros at the end
	}
	return c.positions[partition]
}

func (c *Consumer) ref() (id format.ConsumerID, name scopedName) {
	return c.ID, scopedName{c.Topic, c.Name}
}

// Consumer returns a topic's consumer of that name, or nil.
func (s *State) Consumer(topic format.TopicID, name string) *Consumer {
	return s.consumers.byName[scopedName{topic, name}]
}

// ConsumerByID returns the consumer with that id, or nil.
func (s *State) ConsumerByID(id format.ConsumerID) *Consumer { return s.consumers.byID[id] }

// Consumers returns a topic's consumers, sorted by name.
func (s *State) Consumers(topic format.TopicID) []*Consumer {
	return s.ConsumersAfter(topic, "", s.ConsumerCount())
}

// ConsumersAfter returns a topic's consumers whose names sort after a name, sorted by name. It
// returns at most the given number of consumers; the cost depends on this number alone.
func (s *State) ConsumersAfter(topic format.TopicID, name string, most int) []*Consumer {
	return s.consumers.after(&Consumer{Topic: topic, Name: name}, most)
}

// ConsumerCount returns the number of consumers of all topics.
func (s *State) ConsumerCount() int { return len(s.consumers.byID) }

// OldestConsumers returns the consumers with the smallest ids, sorted by id. It returns at most
// the given number of consumers.
func (s *State) OldestConsumers(most int) []*Consumer { return s.consumers.oldest(most) }

const (
	consumerMemory = int64(unsafe.Sizeof(Consumer{})) + indexMemory
	positionMemory = int64(unsafe.Sizeof(int64(0)))
)

func (c *Consumer) memory() int64 {
	return consumerMemory + int64(len(c.Name)) + int64(len(c.positions))*positionMemory
}

func (s *State) putConsumer(c *Consumer) {
	s.consumers.put(c)
	s.memory += c.memory()
}

func (s *State) dropConsumer(c *Consumer) {
	s.memory -= c.memory()
	s.consumers.drop(c)
}

// dropConsumers forgets the consumers of a topic.
func (s *State) dropConsumers(topic format.TopicID) {
	for _, c := range s.Consumers(topic) {
		s.dropConsumer(c)
	}
}

func (s *State) movePositions(x *format.PositionsMoved) {
	c := s.consumers.byID[x.Consumer]
	s.memory -= c.memory()
	// Copy the positions: a View may share the old list, so the list must not change.
	most := max(len(c.positions), int(x.Positions[len(x.Positions)-1].Partition)+1)
	c.positions = append(make([]format.Offset, 0, most), c.positions...)[:most]
	for _, p := range x.Positions {
		c.positions[p.Partition] = p.Offset
	}
	for len(c.positions) > 0 && c.positions[len(c.positions)-1] == 0 {
		c.positions = c.positions[:len(c.positions)-1] // cut zeros off the end, so that equal states encode to equal bytes
	}
	c.Moved = s.time
	c.Version++
	s.memory += c.memory()
}

// draftConsumer is a consumer with the changes of a commit under construction.
type draftConsumer struct {
	topic     format.TopicID
	version   uint64
	positions map[format.Partition]format.Offset // the positions that the commit sets
}

// NextConsumerID returns the id that the next consumer must have.
func (d *Draft) NextConsumerID() format.ConsumerID { return d.consumers.next }

// ConsumerCount returns the number of consumers after the commit, including those of topics that
// the commit deletes.
func (d *Draft) ConsumerCount() int { return d.consumers.count }

// ConsumerID returns the id of a topic's consumer of that name; ok reports whether
// it exists.
func (d *Draft) ConsumerID(topic format.TopicID, name string) (id format.ConsumerID, ok bool) {
	id, ok = d.consumers.idOf(scopedName{topic, name})
	return id, ok && d.topic(topic) != nil
}

// ConsumerVersion returns how often the positions of an existing consumer were set.
func (d *Draft) ConsumerVersion(id format.ConsumerID) uint64 { return d.consumer(id).version }

// ConsumerPosition returns the next offset that an existing consumer reads in a partition.
func (d *Draft) ConsumerPosition(id format.ConsumerID, partition format.Partition) format.Offset {
	if offset, ok := d.consumer(id).positions[partition]; ok {
		return offset
	}
	if c := d.s.consumers.byID[id]; c != nil {
		return c.Position(partition)
	}
	return 0
}

// consumer returns a consumer with the changes of the commit so far; nil if the consumer
// doesn't exist.
func (d *Draft) consumer(id format.ConsumerID) *draftConsumer {
	c := d.consumers.find(id, func(old *Consumer) *draftConsumer {
		return &draftConsumer{topic: old.Topic, version: old.Version}
	})
	if c == nil || d.topic(c.topic) == nil {
		return nil
	}
	return c
}

func (d *Draft) takeConsumer(x *format.ConsumerCreated) error {
	if d.topic(x.Topic) == nil || !soundConsumerName(x.Name) {
		return fmt.Errorf("%w: consumer %q of topic %d can't be created", ErrNonsense, x.Name, x.Topic)
	}
	return d.consumers.create(x.ID, scopedName{x.Topic, x.Name}, &draftConsumer{topic: x.Topic})
}

func soundConsumerName(name string) bool { return name != "" && len(name) <= ConsumerNameBytesMax }

func (d *Draft) takePositions(x *format.PositionsMoved) error {
	c := d.consumer(x.Consumer)
	if c == nil || len(x.Positions) == 0 {
		return fmt.Errorf("%w: consumer %d does not exist, or the entry has no positions", ErrNonsense, x.Consumer)
	}
	for _, p := range x.Positions {
		if end, ok := d.End(c.topic, p.Partition); !ok || p.Offset < 0 || p.Offset > end {
			return fmt.Errorf("%w: consumer %d can't be moved to offset %d of partition %d", ErrNonsense, x.Consumer, p.Offset, p.Partition)
		}
	}
	moved := *c
	moved.version++
	moved.positions = maps.Clone(c.positions)
	if moved.positions == nil {
		moved.positions = map[format.Partition]format.Offset{}
	}
	for _, p := range x.Positions {
		moved.positions[p.Partition] = p.Offset
	}
	d.consumers.put(x.Consumer, &moved)
	return nil
}

func (d *Draft) takeConsumerDeletion(x *format.ConsumerDeleted) error {
	if d.consumer(x.ID) == nil {
		return fmt.Errorf("%w: consumer %d can't be deleted, since it does not exist", ErrNonsense, x.ID)
	}
	d.consumers.drop(x.ID)
	return nil
}

func appendConsumers(b []byte, next uint64, list []Consumer) []byte {
	b = binary.AppendUvarint(b, next)
	b = binary.AppendUvarint(b, uint64(len(list)))
	for i := range list {
		c := &list[i]
		b = binary.AppendUvarint(b, uint64(c.ID))
		b = binary.AppendUvarint(b, uint64(c.Topic))
		b = binary.AppendUvarint(b, uint64(len(c.Name)))
		b = append(b, c.Name...)
		b = binary.AppendUvarint(b, uint64(c.Created))
		b = binary.AppendUvarint(b, uint64(c.Moved))
		b = binary.AppendUvarint(b, c.Version)
		b = binary.AppendUvarint(b, uint64(len(c.positions)))
		for _, p := range c.positions {
			b = binary.AppendUvarint(b, uint64(p))
		}
	}
	return b
}

func (s *State) decodeConsumer(r *reader) *Consumer {
	c := &Consumer{ID: format.ConsumerID(r.uvarint()), Topic: format.TopicID(r.uvarint()), Name: r.text(), Created: r.int64(), Moved: r.int64(), Version: r.uvarint()}
	for range r.count(1) {
		c.positions = append(c.positions, format.Offset(r.int64()))
	}
	if r.err == nil && (!soundConsumerName(c.Name) || !s.soundPositions(c)) {
		r.fail("consumer %d %q is invalid", c.ID, c.Name)
	}
	return c
}

// soundPositions reports whether the positions of a decoded consumer are inside its topic.
func (s *State) soundPositions(c *Consumer) bool {
	t := s.topics.byID[c.Topic]
	n := len(c.positions)
	if t == nil || n > len(t.Partitions) || n > 0 && c.positions[n-1] == 0 {
		return false
	}
	for i, p := range c.positions {
		if p > t.Partitions[i].End {
			return false
		}
	}
	return true
}
