package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// Bounds on consumers in any log, so that damaged numbers can't take all memory.
// Brokers set lower ones.
const (
	ConsumersMax         = 1 << 20
	ConsumerNameBytesMax = 255
)

// Consumer is a named reading position in a topic.
type Consumer struct {
	// ID is never reused.
	ID      uint64
	Topic   uint64
	Name    string
	Created int64 // fold's time in microseconds
	Moved   int64 // when its positions were last set, fold's time in microseconds
	// Version counts how often the positions were set.
	Version uint64
	// positions are the next offsets to read, by partition; 0 for partitions beyond the list.
	positions []int64
}

// Position returns the next offset to read in a partition.
func (c *Consumer) Position(partition int32) int64 {
	if int(partition) >= len(c.positions) {
		return 0 // a partition that was added later: all of its records are new
	}
	return c.positions[partition]
}

type consumerName struct {
	topic uint64
	name  string
}

// consumers are the consumers of all topics. Ids are never reused.
type consumers struct {
	next   uint64
	byID   map[uint64]*Consumer
	byName map[consumerName]*Consumer
	sorted sorted[*Consumer]        // by topic and name
	most   struct{ ids, names int } // that the maps held: see shrunkMap
}

func newConsumers() consumers {
	return consumers{next: 1, byID: map[uint64]*Consumer{}, byName: map[consumerName]*Consumer{}}
}

// Consumer returns a topic's consumer of that name, or nil.
func (s *State) Consumer(topic uint64, name string) *Consumer {
	return s.consumers.byName[consumerName{topic, name}]
}

// ConsumerByID returns the consumer with that id, or nil.
func (s *State) ConsumerByID(id uint64) *Consumer { return s.consumers.byID[id] }

// Consumers returns a topic's consumers by name.
func (s *State) Consumers(topic uint64) []*Consumer {
	return s.ConsumersAfter(topic, "", len(s.consumers.byID))
}

// ConsumersAfter returns the consumers of a topic whose names follow a name, in order, at
// most the given number. Its cost depends on that number alone.
func (s *State) ConsumersAfter(topic uint64, name string, most int) (cs []*Consumer) {
	for c := range s.consumers.sorted.from(&Consumer{Topic: topic, Name: name}, consumersByName) {
		if c.Topic != topic || len(cs) == most {
			break
		}
		if c.Name != name {
			cs = append(cs, c)
		}
	}
	return cs
}

func consumersByName(a, b *Consumer) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), strings.Compare(a.Name, b.Name))
}

// ConsumerCount returns the number of consumers of all topics.
func (s *State) ConsumerCount() int { return len(s.consumers.byID) }

// OldestConsumers returns the consumers with the smallest ids, in order, at most the given
// number.
func (s *State) OldestConsumers(most int) []*Consumer {
	return smallest(maps.Values(s.consumers.byID), most, func(a, b *Consumer) int { return cmp.Compare(a.ID, b.ID) })
}

const (
	consumerMemory = int64(unsafe.Sizeof(Consumer{})) + 2*64 + sortedMemory // and its places in two maps and a list
	positionMemory = int64(unsafe.Sizeof(int64(0)))
)

func (c *Consumer) memory() int64 {
	return consumerMemory + int64(len(c.Name)) + int64(len(c.positions))*positionMemory
}

func (s *State) putConsumer(c *Consumer) {
	s.consumers.byID[c.ID], s.consumers.byName[consumerName{c.Topic, c.Name}] = c, c
	s.consumers.sorted.add(c, consumersByName)
	s.consumers.next = max(s.consumers.next, c.ID+1)
	s.memory += c.memory()
}

func (s *State) dropConsumer(c *Consumer) {
	s.memory -= c.memory()
	delete(s.consumers.byID, c.ID)
	delete(s.consumers.byName, consumerName{c.Topic, c.Name})
	s.consumers.sorted.remove(c, consumersByName)
	s.consumers.byID, s.consumers.byName = shrunkMap(s.consumers.byID, &s.consumers.most.ids), shrunkMap(s.consumers.byName, &s.consumers.most.names)
}

// dropConsumers forgets the consumers of a topic.
func (s *State) dropConsumers(topic uint64) {
	for _, c := range s.Consumers(topic) {
		s.dropConsumer(c)
	}
}

func (s *State) movePositions(x *format.PositionsMoved) {
	c := s.consumers.byID[x.Consumer]
	s.memory -= c.memory()
	// Views share what was there, so the list is never changed in place.
	most := max(len(c.positions), int(x.Positions[len(x.Positions)-1].Partition)+1)
	c.positions = append(make([]int64, 0, most), c.positions...)[:most]
	for _, p := range x.Positions {
		c.positions[p.Partition] = p.Offset
	}
	for len(c.positions) > 0 && c.positions[len(c.positions)-1] == 0 {
		c.positions = c.positions[:len(c.positions)-1] // equal states have equal bytes
	}
	c.Moved = s.time
	c.Version++
	s.memory += c.memory()
}

// draftConsumers are the changes of a commit under construction to the consumers.
type draftConsumers struct {
	next    uint64
	count   int
	byID    map[uint64]*draftConsumer
	created map[consumerName]uint64 // ids
}

type draftConsumer struct {
	topic     uint64
	name      string
	version   uint64
	deleted   bool
	positions map[uint32]int64 // those that the commit moves
}

// NextConsumerID returns the id that the next consumer must have.
func (d *Draft) NextConsumerID() uint64 { return d.consumers.next }

// ConsumerCount returns the number of consumers after the commit, those of topics that
// the commit deletes included.
func (d *Draft) ConsumerCount() int { return d.consumers.count }

// ConsumerID returns the id of a topic's consumer of that name; ok reports whether
// it exists.
func (d *Draft) ConsumerID(topic uint64, name string) (id uint64, ok bool) {
	id, ok = d.consumers.created[consumerName{topic, name}]
	if !ok {
		if c := d.s.Consumer(topic, name); c != nil {
			id, ok = c.ID, true
		}
	}
	return id, ok && d.consumer(id) != nil
}

// ConsumerVersion returns how often the positions of a consumer that exists were set.
func (d *Draft) ConsumerVersion(id uint64) uint64 { return d.consumer(id).version }

// ConsumerPosition returns the next offset that an existing consumer reads.
func (d *Draft) ConsumerPosition(id uint64, partition uint32) int64 {
	if offset, ok := d.consumer(id).positions[partition]; ok {
		return offset
	}
	if c := d.s.consumers.byID[id]; c != nil {
		return c.Position(int32(partition))
	}
	return 0
}

// consumer returns a consumer as the commit leaves it so far, nil if it doesn't exist.
func (d *Draft) consumer(id uint64) *draftConsumer {
	c := d.consumers.byID[id]
	if c == nil {
		if old := d.s.consumers.byID[id]; old != nil {
			c = &draftConsumer{topic: old.Topic, name: old.Name, version: old.Version}
		}
	}
	if c == nil || c.deleted || d.topic(c.topic) == nil {
		return nil
	}
	return c
}

func (d *Draft) putConsumer(id uint64, c *draftConsumer) {
	if d.consumers.byID == nil {
		d.consumers.byID, d.consumers.created = map[uint64]*draftConsumer{}, map[consumerName]uint64{}
	}
	d.consumers.byID[id] = c
}

func (d *Draft) takeConsumer(x *format.ConsumerCreated) error {
	if x.ID != d.consumers.next {
		return fmt.Errorf("%w: a consumer with id %d instead of %d", ErrNonsense, x.ID, d.consumers.next)
	}
	if _, taken := d.ConsumerID(x.Topic, x.Name); taken || d.consumers.count >= ConsumersMax || d.topic(x.Topic) == nil || !soundConsumerName(x.Name) {
		return fmt.Errorf("%w: consumer %q of topic %d can't be created", ErrNonsense, x.Name, x.Topic)
	}
	d.putConsumer(x.ID, &draftConsumer{topic: x.Topic, name: x.Name})
	d.consumers.created[consumerName{x.Topic, x.Name}] = x.ID
	d.consumers.next++
	d.consumers.count++
	return nil
}

func soundConsumerName(name string) bool { return name != "" && len(name) <= ConsumerNameBytesMax }

func (d *Draft) takePositions(x *format.PositionsMoved) error {
	c := d.consumer(x.Consumer)
	if c == nil || len(x.Positions) == 0 {
		return fmt.Errorf("%w: no consumer %d to move", ErrNonsense, x.Consumer)
	}
	for _, p := range x.Positions {
		if end, ok := d.End(c.topic, p.Partition); !ok || p.Offset < 0 || p.Offset > end {
			return fmt.Errorf("%w: consumer %d can't be at %d in partition %d", ErrNonsense, x.Consumer, p.Offset, p.Partition)
		}
	}
	moved := *c
	moved.version++
	moved.positions = maps.Clone(c.positions)
	if moved.positions == nil {
		moved.positions = map[uint32]int64{}
	}
	for _, p := range x.Positions {
		moved.positions[p.Partition] = p.Offset
	}
	d.putConsumer(x.Consumer, &moved)
	return nil
}

func (d *Draft) takeConsumerDeletion(x *format.ConsumerDeleted) error {
	c := d.consumer(x.ID)
	if c == nil {
		return fmt.Errorf("%w: no consumer %d to delete", ErrNonsense, x.ID)
	}
	gone := *c
	gone.deleted = true
	d.putConsumer(x.ID, &gone)
	d.consumers.count--
	return nil
}

// continuesConsumers is [State.Continues] for consumers: the next id does not fall, no deleted
// consumer comes back, and names and topics don't change. Positions may move to anywhere.
func (s *State) continuesConsumers(old *State) error {
	if s.consumers.next < old.consumers.next {
		return fmt.Errorf("%w: the next consumer was %d and is now %d", ErrDiscontinued, old.consumers.next, s.consumers.next)
	}
	for id, now := range s.consumers.byID {
		was := old.consumers.byID[id]
		if id < old.consumers.next && (was == nil || was.Name != now.Name || was.Topic != now.Topic || was.Version > now.Version) {
			return fmt.Errorf("%w: consumer %d is another than it was", ErrDiscontinued, id)
		}
	}
	return nil
}

// view returns copies of the consumers, by id.
func (c *consumers) view() []Consumer {
	list := make([]Consumer, 0, len(c.byID))
	for _, x := range c.byID {
		list = append(list, *x)
	}
	slices.SortFunc(list, func(a, b Consumer) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func appendConsumers(b []byte, next uint64, list []Consumer) []byte {
	b = binary.AppendUvarint(b, next)
	b = binary.AppendUvarint(b, uint64(len(list)))
	for i := range list {
		c := &list[i]
		b = binary.AppendUvarint(b, c.ID)
		b = binary.AppendUvarint(b, c.Topic)
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

func (s *State) decodeConsumers(r *reader) {
	s.consumers.next = r.uvarint()
	n := r.count(8)
	if s.consumers.next == 0 || n > ConsumersMax {
		r.fail("%d consumers, the next is %d", n, s.consumers.next)
	}
	var last uint64
	for range n {
		c := &Consumer{ID: r.uvarint(), Topic: r.uvarint()}
		c.Name = string(r.bytes(r.count(1)))
		c.Created, c.Moved, c.Version = r.int64(), r.int64(), r.uvarint()
		for range r.count(1) {
			c.positions = append(c.positions, r.int64())
		}
		if r.err == nil && (c.ID <= last || c.ID >= s.consumers.next || !soundConsumerName(c.Name) || !s.soundPositions(c)) {
			r.fail("consumer %d %q", c.ID, c.Name)
		}
		if r.err != nil {
			return
		}
		last = c.ID
		s.putConsumer(c)
	}
}

// soundPositions reports whether a decoded consumer is possible: the only one of its name,
// with positions inside its topic.
func (s *State) soundPositions(c *Consumer) bool {
	t := s.topics[c.Topic]
	n := len(c.positions)
	if t == nil || s.Consumer(c.Topic, c.Name) != nil || n > len(t.Partitions) || n > 0 && c.positions[n-1] == 0 {
		return false
	}
	for i, p := range c.positions {
		if p > t.Partitions[i].End {
			return false
		}
	}
	return true
}
