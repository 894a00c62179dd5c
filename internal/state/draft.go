package state

import (
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
)

// Draft checks the entries of one commit. It checks each entry against the state and the
// earlier entries of the commit, without changing the state. A broker builds its commits with a
// Draft, and [State.Apply] checks every commit with a Draft. So a commit that a broker built
// passes the checks of all brokers.
type Draft struct {
	s         *State
	time      int64
	dataFloor format.Seq
	topics    indexDraft[format.TopicID, *Topic, draftTopic]
	starts    map[batchKey]format.Offset
	ends      map[batchKey]format.Offset
	keyed     map[format.Digest]bool
	keys      indexDraft[format.KeyID, *Key, Key]
	consumers indexDraft[format.ConsumerID, *Consumer, draftConsumer]
	queues    indexDraft[format.QueueID, *Queue, draftQueue]
	delayed   draftDelayed
	segment   bool   // the commit adds a segment
	raised    bool   // the commit raises the level of the log
	page      bool   // the commit names a page
	seen      bool   // the commit names a checkpoint that was seen
	collected bool   // the commit says what is deleted
	holds     int    // how many holds the commit begins or renews
	meter     *meter // nil unless Measure was called
}

type draftTopic struct {
	partitions uint32
	config     format.TopicConfig
}

type batchKey struct {
	topic     format.TopicID
	partition format.Partition
}

// Draft returns an empty draft of the next commit. The commit's time is in microseconds since
// 1970.
func (s *State) Draft(time int64) *Draft {
	return &Draft{
		s: s, time: time, dataFloor: s.dataFloor,
		topics:    indexDraft[format.TopicID, *Topic, draftTopic]{base: &s.topics, next: s.topics.next, count: len(s.topics.byID)},
		keys:      indexDraft[format.KeyID, *Key, Key]{base: &s.keys, next: s.keys.next, count: len(s.keys.byID)},
		consumers: indexDraft[format.ConsumerID, *Consumer, draftConsumer]{base: &s.consumers, next: s.consumers.next, count: len(s.consumers.byID)},
		queues:    indexDraft[format.QueueID, *Queue, draftQueue]{base: &s.queues, next: s.queues.next, count: len(s.queues.byID)},
	}
}

// Time returns the time of the commit under construction, in microseconds since 1970.
func (d *Draft) Time() int64 { return d.time }

// Level returns the level of the log after the commit.
func (d *Draft) Level() uint32 {
	if d.raised {
		return d.s.level + 1
	}
	return d.s.level
}

// Raised reports whether the commit raises the level of the log.
func (d *Draft) Raised() bool { return d.raised }

// NextTopicID returns the id that the next created topic must have.
func (d *Draft) NextTopicID() format.TopicID { return d.topics.next }

// TopicCount returns the number of topics after the commit.
func (d *Draft) TopicCount() int { return d.topics.count }

// TopicID returns the id and the number of partitions of the topic of that
// name; ok reports whether the topic exists.
func (d *Draft) TopicID(name string) (id format.TopicID, partitions uint32, ok bool) {
	if id, ok = d.topics.idOf(scopedName{name: name}); !ok {
		return 0, 0, false
	}
	return id, d.topic(id).partitions, true
}

// TopicBefore returns the topic of that name as it was in the slot before the commit, without what the earlier
// entries of the commit change; nil if there was no such topic. The caller must not change it, or keep it.
func (d *Draft) TopicBefore(name string) *Topic { return d.s.Topic(name) }

// TopicConfig returns the config of an existing topic.
func (d *Draft) TopicConfig(id format.TopicID) format.TopicConfig { return d.topic(id).config }

// topic returns a topic with the changes of the commit so far; nil if the topic doesn't exist.
func (d *Draft) topic(id format.TopicID) *draftTopic {
	return d.topics.find(id, func(t *Topic) *draftTopic {
		return &draftTopic{partitions: uint32(len(t.Partitions)), config: t.Config}
	})
}

// End returns the next offset of a partition; ok reports whether the partition exists.
func (d *Draft) End(topic format.TopicID, partition format.Partition) (end format.Offset, ok bool) {
	t := d.topic(topic)
	if t == nil || uint32(partition) >= t.partitions {
		return 0, false
	}
	if end, ok := d.ends[batchKey{topic, partition}]; ok {
		return end, true
	}
	return d.s.end(topic, partition), true
}

// Start returns the first offset of an existing partition.
func (d *Draft) Start(topic format.TopicID, partition format.Partition) format.Offset {
	if start, ok := d.starts[batchKey{topic, partition}]; ok {
		return start
	}
	if st := d.s.topics.byID[topic]; st != nil && int(partition) < len(st.Partitions) {
		return st.Partitions[partition].Start
	}
	return 0
}

// CheckData checks the reference of the commit to a data object. It refuses an object whose seq
// is below the data floor, since that object may have been deleted. It also refuses an object
// whose seq says that the upload began after this commit.
func (d *Draft) CheckData(r format.DataRef) error {
	if r.Seq > d.s.seq {
		return fmt.Errorf("%w: the upload of %s began after slot %d, which is the last slot before this commit", ErrNonsense, r.Key(), d.s.seq)
	}
	if r.Seq < d.dataFloor {
		return fmt.Errorf("%w: %s is below slot %d, the data floor: data objects below that slot can be deleted", ErrNonsense, r.Key(), d.dataFloor)
	}
	return nil
}

// Take checks an entry and adds the entry to the commit. All errors of Take wrap [ErrNonsense].
func (d *Draft) Take(it format.Entry) error {
	if d.meter != nil {
		d.meter.add(it)
	}
	switch x := it.(type) {
	case *format.Batch:
		return d.takeBatch(x)
	case *format.TopicCreated:
		if x.Name == "" || x.Partitions == 0 || x.Partitions > PartitionsMax {
			return fmt.Errorf("%w: topic %q with %d partitions can't be created", ErrNonsense, x.Name, x.Partitions)
		}
		return d.topics.create(x.ID, scopedName{name: x.Name}, &draftTopic{partitions: x.Partitions})
	case *format.TopicDeleted:
		if d.topic(x.ID) == nil {
			return fmt.Errorf("%w: topic %d can't be deleted, since it does not exist", ErrNonsense, x.ID)
		}
		d.topics.drop(x.ID)
	case *format.PartitionsAdded:
		t := d.topic(x.Topic)
		if t == nil || x.Partitions <= t.partitions || x.Partitions > PartitionsMax {
			return fmt.Errorf("%w: topic %d can't have %d partitions", ErrNonsense, x.Topic, x.Partitions)
		}
		d.topics.put(x.Topic, &draftTopic{partitions: x.Partitions, config: t.config})
	case *format.TopicConfigured:
		t := d.topic(x.Topic)
		if t == nil || x.Config.RetentionMS < 0 || x.Config.RetentionBytes < 0 {
			return fmt.Errorf("%w: topic %d can't have the config %+v", ErrNonsense, x.Topic, x.Config)
		}
		config := x.Config
		config.PastQueues = t.config.PastQueues
		d.topics.put(x.Topic, &draftTopic{partitions: t.partitions, config: config})
	case *format.DelaySet:
		return d.CheckDelay(x)
	case *format.Held:
		return d.takeHeld(x)
	case *format.QueuesPassed:
		return d.takeQueuesPassed(x)
	case *format.DataFloor:
		if x.Seq < d.dataFloor {
			return fmt.Errorf("%w: the data floor would fall from %d to %d", ErrNonsense, d.dataFloor, x.Seq)
		}
		d.dataFloor = x.Seq
	case *format.StartMoved:
		return d.takeStart(x)
	case *format.AppendKeyed:
		return d.takeKeyed(x)
	case *format.KeyCreated:
		return d.takeKey(x)
	case *format.KeyRevoked:
		return d.takeRevocation(x)
	case *format.ConsumerCreated:
		return d.takeConsumer(x)
	case *format.PositionsMoved:
		return d.takePositions(x)
	case *format.ConsumerDeleted:
		return d.takeConsumerDeletion(x)
	case *format.SessionNamed:
		return d.takeSession(x)
	case *format.SegmentAdded:
		return d.takeSegment(x)
	case *format.PageStored:
		return d.takePage(x)
	case *format.LevelRaised:
		return d.takeLevel(x)
	case *format.CheckpointSeen:
		return d.takeSeen(x)
	case *format.Collected:
		return d.takeCollected(x)
	case *format.Spent:
		return d.takeSpent(x)
	case *format.WriterMark, *format.BundleMark, *format.LevelKnown, *format.UnknownEntry:
	default:
		if ok, err := d.takeQueueEntry(it); ok {
			return err
		}
		return fmt.Errorf("%w: entries of type %T are unknown", ErrNonsense, it)
	}
	return nil
}

func (d *Draft) takeBatch(x *format.Batch) error {
	end, ok := d.End(x.Topic, x.Partition)
	if !ok {
		return fmt.Errorf("%w: there is no partition %d in topic %d, or no such topic", ErrNonsense, x.Partition, x.Topic)
	}
	if x.Base != end {
		return fmt.Errorf("%w: a batch begins at offset %d of topic %d, partition %d, where the next offset is %d", ErrNonsense, x.Base, x.Topic, x.Partition, end)
	}
	if d.ends == nil {
		d.ends = map[batchKey]format.Offset{}
	}
	d.ends[batchKey{x.Topic, x.Partition}] = x.Base + format.Offset(x.Count)
	return nil
}

func (d *Draft) takeStart(x *format.StartMoved) error {
	end, ok := d.End(x.Topic, x.Partition)
	if !ok {
		return fmt.Errorf("%w: there is no partition %d in topic %d, or no such topic", ErrNonsense, x.Partition, x.Topic)
	}
	if start := d.Start(x.Topic, x.Partition); x.Start < start || x.Start > end {
		return fmt.Errorf("%w: partition %d of topic %d, which goes from offset %d to %d, can't start at offset %d", ErrNonsense, x.Partition, x.Topic, start, end, x.Start)
	}
	if d.starts == nil {
		d.starts = map[batchKey]format.Offset{}
	}
	d.starts[batchKey{x.Topic, x.Partition}] = x.Start
	return nil
}

func (d *Draft) takeKeyed(x *format.AppendKeyed) error {
	if _, known := d.s.Keyed(x.Key, d.time); known || d.keyed[x.Key] {
		return fmt.Errorf("%w: an idempotency key is used twice", ErrNonsense)
	}
	for _, r := range x.Ranges {
		if end, ok := d.End(x.Topic, r.Partition); !ok || r.Base+format.Offset(r.Count) > end {
			return fmt.Errorf("%w: an append with an idempotency key names %d records at offset %d in partition %d of topic %d, which are not all in the partition", ErrNonsense, r.Count, r.Base, r.Partition, x.Topic)
		}
	}
	if d.keyed == nil {
		d.keyed = map[format.Digest]bool{}
	}
	d.keyed[x.Key] = true
	return nil
}

// PartitionsMax bounds the partitions of a topic. A log that exceeds this bound is damaged.
// Without a bound, a damaged number could make a broker allocate all memory. The limit for
// requests is lower.
const PartitionsMax = 1 << 20
