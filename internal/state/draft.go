package state

import (
	"fmt"

	"github.com/simple-event-broker/seb/internal/commitlog"
)

// Draft checks the items of one commit, each against the state plus those
// before it, without changing the state. A writer builds its commit with it,
// and Apply checks every commit with it, so that both agree on what is sound.
type Draft struct {
	s         *State
	nextTopic uint64
	topics    int
	dataFloor commitlog.Seq
	created   map[string]*draftTopic // by name, nil value = deleted in this commit
	byID      map[uint64]*draftTopic
	ends      map[batchKey]int64
}

type draftTopic struct {
	id         uint64
	name       string
	partitions uint32
	deleted    bool
}

type batchKey struct {
	topic     uint64
	partition uint32
}

// Draft returns an empty draft of the commit that would follow.
func (s *State) Draft() *Draft {
	return &Draft{s: s, nextTopic: s.nextTopic, topics: len(s.topics), dataFloor: s.dataFloor}
}

// NextTopicID returns the id that the next topic created must have.
func (d *Draft) NextTopicID() uint64 { return d.nextTopic }

// TopicCount returns the number of topics there would be.
func (d *Draft) TopicCount() int { return d.topics }

// TopicID returns the id and the number of partitions of the topic of that
// name; ok tells whether there is one.
func (d *Draft) TopicID(name string) (id uint64, partitions uint32, ok bool) {
	if t, found := d.created[name]; found {
		if t == nil {
			return 0, 0, false
		}
		return t.id, t.partitions, true
	}
	if t := d.s.names[name]; t != nil {
		return t.ID, d.topic(t.ID).partitions, true
	}
	return 0, 0, false
}

// topic returns what is known of a topic here, nil if it doesn't exist.
func (d *Draft) topic(id uint64) *draftTopic {
	if t, ok := d.byID[id]; ok {
		if t.deleted {
			return nil
		}
		return t
	}
	if t := d.s.topics[id]; t != nil {
		return &draftTopic{id: id, name: t.Name, partitions: uint32(len(t.Partitions))}
	}
	return nil
}

func (d *Draft) put(t *draftTopic) {
	if d.byID == nil {
		d.byID, d.created = map[uint64]*draftTopic{}, map[string]*draftTopic{}
	}
	d.byID[t.id] = t
	d.created[t.name] = t
	if t.deleted {
		d.created[t.name] = nil
	}
}

// End returns the next offset of a partition; ok tells whether it exists.
func (d *Draft) End(topic uint64, partition uint32) (end int64, ok bool) {
	t := d.topic(topic)
	if t == nil || partition >= t.partitions {
		return 0, false
	}
	if end, ok := d.ends[batchKey{topic, partition}]; ok {
		return end, true
	}
	if st := d.s.topics[topic]; st != nil && int(partition) < len(st.Partitions) {
		return st.Partitions[partition].End, true
	}
	return 0, true
}

// CheckData refuses a data object that a sweep may have taken, or whose upload
// would have begun after this commit.
func (d *Draft) CheckData(r commitlog.DataRef) error {
	if r.Seq > d.s.seq {
		return fmt.Errorf("%w: %s is from after slot %d", ErrNonsense, r.Key(), d.s.seq)
	}
	if r.Seq < d.dataFloor {
		return fmt.Errorf("%w: %s is below the floor %d", ErrNonsense, r.Key(), d.dataFloor)
	}
	return nil
}

// Take checks an item and counts it as a part of the commit.
func (d *Draft) Take(it commitlog.Item) error {
	switch x := it.(type) {
	case *commitlog.Batch:
		end, ok := d.End(x.Topic, x.Partition)
		if !ok {
			return fmt.Errorf("%w: no partition %d in a topic %d", ErrNonsense, x.Partition, x.Topic)
		}
		if x.Base != end {
			return fmt.Errorf("%w: a batch at offset %d of topic %d, partition %d, whose next is %d", ErrNonsense, x.Base, x.Topic, x.Partition, end)
		}
		if d.ends == nil {
			d.ends = map[batchKey]int64{}
		}
		d.ends[batchKey{x.Topic, x.Partition}] = x.Base + int64(x.Count)
	case *commitlog.TopicCreated:
		if x.ID != d.nextTopic {
			return fmt.Errorf("%w: a topic with id %d instead of %d", ErrNonsense, x.ID, d.nextTopic)
		}
		if _, _, ok := d.TopicID(x.Name); ok || x.Name == "" || x.Partitions == 0 || x.Partitions > PartitionsMax {
			return fmt.Errorf("%w: topic %q with %d partitions can't be created", ErrNonsense, x.Name, x.Partitions)
		}
		d.nextTopic++
		d.topics++
		d.put(&draftTopic{id: x.ID, name: x.Name, partitions: x.Partitions})
	case *commitlog.TopicDeleted:
		t := d.topic(x.ID)
		if t == nil {
			return fmt.Errorf("%w: no topic %d to delete", ErrNonsense, x.ID)
		}
		d.topics--
		d.put(&draftTopic{id: t.id, name: t.name, partitions: t.partitions, deleted: true})
	case *commitlog.PartitionsAdded:
		t := d.topic(x.Topic)
		if t == nil || x.Partitions <= t.partitions || x.Partitions > PartitionsMax {
			return fmt.Errorf("%w: topic %d can't have %d partitions", ErrNonsense, x.Topic, x.Partitions)
		}
		d.put(&draftTopic{id: t.id, name: t.name, partitions: x.Partitions})
	case *commitlog.DataFloor:
		if x.Seq < d.dataFloor {
			return fmt.Errorf("%w: the data floor falls from %d to %d", ErrNonsense, d.dataFloor, x.Seq)
		}
		d.dataFloor = x.Seq
	case *commitlog.UnknownItem:
	default:
		return fmt.Errorf("%w: an item of type %T", ErrNonsense, it)
	}
	return nil
}

// PartitionsMax bounds the partitions of a topic in any log, so that one
// damaged number can't take all memory. Brokers set a lower limit.
const PartitionsMax = 1 << 20
