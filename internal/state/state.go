// Package state computes what the log means: which topics exist, and where the record of every
// offset is stored. The state is a pure, deterministic fold over commits: no clock, no
// randomness, no I/O, and no output that depends on the order of a map. So all brokers that
// applied the same commits have the same state, byte for byte.
//
// The fold checks all entries of a commit before it applies any of them. It refuses a commit
// that contradicts the state: a batch that leaves a gap between offsets, a topic that does not
// exist, a data object that may be deleted. To take an entry is to check the entry and to note
// its effect in the draft of the commit.
//
// A run is a range of consecutive offsets. A trimmed record is a record before the start of its
// partition. The log's time is the time of the last applied commit, in microseconds since 1970.
//
// A State is not safe for concurrent use; callers guard it with a lock (see [Live]). A [View]
// may be encoded while the state changes.
package state

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// ErrNonsense says that a commit contradicts the state. Every error of [State.Apply] wraps
// ErrNonsense.
var ErrNonsense = errors.New("commit contradicts the log before it")

// State is the result of the fold.
type State struct {
	seq       format.Seq
	time      int64 // microseconds since 1970
	dataFloor format.Seq
	topics    index[format.TopicID, *Topic]
	objects   objects
	keyed     keyed
	keys      index[format.KeyID, *Key] // an id below keys.next that has no key belonged to a revoked key
	consumers index[format.ConsumerID, *Consumer]
	queues    index[format.QueueID, *Queue]
	delayed   delayed
	sessions  sessions
	batches   int // number of batches in the tails of all partitions
	memory    int64

	level       uint32            // see Level
	raised      format.CommitTime // the commit that raised the level to format.LevelSegments
	segments    []*Segment        // by number
	partChanges uint64            // see PartChanges
	nextSegment uint64
	bottom      format.Seq
	dead        []Dead
	dying       []uint64       // objects that lost their last batch by the commit that is being applied, by index
	stayObjects map[Object]int // how many batches stay in an object
	collecting  collecting
	spending    []Spending // by month
}

// Topic is a topic and its partitions. Code outside of this package must not change a Topic.
type Topic struct {
	// ID is never reused. So a later topic of the same name shares nothing with this topic.
	ID         format.TopicID
	Name       string
	Created    int64 // the log's time in microseconds
	Config     format.TopicConfig
	Partitions []Partition
	// Dormant says that brokers don't apply the limits in Config: they were set below [format.LevelSegments], and not again since.
	Dormant bool
	delayed delayed // the runs of delayed records in this topic (see Delayed)
}

func (t *Topic) ref() (id format.TopicID, name scopedName) { return t.ID, scopedName{name: t.Name} }

// Partition is an ordered log of records.
type Partition struct {
	Start, End format.Offset // End is the offset of the next record
	Bytes      int64         // total size of the batches, as stored
	MaxTime    int64         // largest timestamp in ms of the last batch; 0 if there never was a batch
	appended   appended
	segmented  *segmented // nil if all batches are in the tail
	chunks     []chunk    // the tail: what is in no segment yet
}

// chunk holds up to chunkBatches batches. Small chunks have two advantages: when a partition
// grows, only one chunk is copied; and batch.object needs only 32 bits, because it is relative
// to chunk.object.
type chunk struct {
	object  uint64 // index of the object of the first batch; batch.object is relative to this index
	maxTime int64  // largest maxTime of the chunk's batches
	batches []batch
}

// batch says where the records of a batch are stored. The number of records follows from the
// base of the next batch. The state needs 32 bytes for each batch of the log: keep this struct
// small.
type batch struct {
	base    format.Offset
	maxTime int64
	object  uint32
	pos     uint32 // position in the object
	size    uint32
	crc     uint32
}

const chunkBatches = 256

// New returns the state before the first commit.
func New() *State {
	return &State{
		topics:    newIndex("topic", math.MaxInt, nameOrder[format.TopicID, *Topic]),
		keys:      newIndex("API key", KeysMax, idOrder[format.KeyID, *Key]),
		consumers: newIndex("consumer", ConsumersMax, nameOrder[format.ConsumerID, *Consumer]),
		queues:    newIndex("queue", QueuesMax, nameOrder[format.QueueID, *Queue]),
		level:     format.LevelSegments - 1, nextSegment: 1, stayObjects: map[Object]int{},
	}
}

// Seq returns the slot of the last applied commit.
func (s *State) Seq() format.Seq { return s.seq }

// NextTime returns the time of a commit that is made now, by the store's clock. Both are in microseconds since 1970.
func (s *State) NextTime(now int64) int64 {
	if s.level >= format.LevelSegments {
		return max(now, s.time+1)
	}
	return max(now, s.time)
}

// Time returns the log's time in microseconds since 1970.
func (s *State) Time() int64 { return s.time }

// DataFloor returns the data floor. Later commits must not refer to a data object whose seq is
// below the data floor.
func (s *State) DataFloor() format.Seq { return s.dataFloor }

// Memory returns an estimate of the state's memory in bytes.
func (s *State) Memory() int64 { return s.memory }

// LastingMemory is Memory without that of appends with an idempotency key, which the state forgets by itself
// after [KeyedFor].
func (s *State) LastingMemory() int64 { return s.memory - s.keyed.bytes }

// Batches returns the number of batches that the state knows; those in segments are not among them.
func (s *State) Batches() int { return s.batches }

// Objects returns the number of objects that the state knows, including those without batches.
func (s *State) Objects() int { return s.objects.count }

// ObjectBytes returns the total size in bytes of the objects that [State.Objects] counts.
func (s *State) ObjectBytes() int64 { return s.objects.bytes }

// Stored returns the number of objects that the state knows, segments, pages and dead objects included, and their total size. Commits that
// have died since the last compaction are not among them: see [State.Dead].
func (s *State) Stored() (objects, bytes int64) {
	objects, bytes = int64(s.objects.count+len(s.segments)+len(s.keyed.pages)+len(s.dead)), s.objects.bytes
	for _, n := range s.segments {
		bytes += int64(n.Ref.Size)
	}
	for i := range s.keyed.pages {
		bytes += int64(s.keyed.pages[i].Ref.Size)
	}
	for _, d := range s.dead {
		bytes += int64(d.Size)
	}
	return objects, bytes
}

// Topic returns the topic of that name, or nil.
func (s *State) Topic(name string) *Topic { return s.topics.byName[scopedName{name: name}] }

// TopicByID returns the topic with that id, or nil.
func (s *State) TopicByID(id format.TopicID) *Topic { return s.topics.byID[id] }

// TopicCount returns the number of topics.
func (s *State) TopicCount() int { return len(s.topics.byID) }

// Topics returns all topics, sorted by name.
func (s *State) Topics() []*Topic { return s.TopicsAfter("", s.TopicCount()) }

// TopicsAfter returns the topics whose names sort after a name, sorted by name. It returns at
// most the given number of topics; the cost depends on this number alone.
func (s *State) TopicsAfter(name string, most int) []*Topic {
	return s.topics.after(&Topic{Name: name}, most)
}

// Apply applies the next commit as a whole, or returns an error that wraps ErrNonsense and
// changes nothing.
func (s *State) Apply(c *format.Commit) error {
	if s.keyed.unread {
		panic("state: apply a commit to a state whose pages were not read")
	}
	d := s.Draft(c.Time)
	if c.Seq != s.seq+1 {
		return fmt.Errorf("%w: slot %d can't follow slot %d", ErrNonsense, c.Seq, s.seq)
	}
	if c.Time < s.NextTime(c.Time) {
		return fmt.Errorf("%w: the time of the commit is %d µs since 1970, but the time of the previous commit is %d", ErrNonsense, c.Time, s.time)
	}
	for _, r := range c.Data {
		if err := d.CheckData(r); err != nil {
			return err
		}
	}
	for i, it := range c.Entries {
		if err := d.Take(it); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	s.seq, s.time = c.Seq, c.Time
	s.expireKeyed()
	s.expireDelayed()
	s.applyEntries(c)
	return nil
}

// applyEntries applies entries that [Draft.Take] has accepted.
func (s *State) applyEntries(c *format.Commit) {
	// The commit object, if it holds batches, and the commit's data objects get the next indexes.
	inline := slices.ContainsFunc(c.Entries, func(it format.Entry) bool {
		b, ok := it.(*format.Batch)
		return ok && b.Object == 0
	})
	memory := s.objects.memory(s.level)
	var commit format.CommitTime
	if s.level >= format.LevelSegments {
		commit = format.CommitTime{Seq: c.Seq, Time: c.Time}
	}
	first := s.objects.next()
	if inline {
		s.objects.add(Object{Seq: uint64(c.Seq), Tag: c.Nonce.Tag(), Size: uint32(c.Size())}, commit)
	}
	firstData := s.objects.next()
	for _, r := range c.Data {
		s.objects.add(Object{Data: true, Seq: uint64(r.Seq), Tag: r.ID, Size: r.Size}, commit)
	}

	s.dying = s.dying[:0]
	for index := firstData; index < s.objects.next(); index++ {
		s.dying = append(s.dying, index) // the commit may have no batch of it
	}
	var raised *format.LevelRaised
	bottom := s.bottom
	for _, it := range c.Entries {
		switch x := it.(type) {
		case *format.Batch:
			index, start := first, c.PayloadStart
			if x.Object > 0 {
				index, start = firstData+uint64(x.Object-1), format.DataPayloadStart
			}
			s.addBatch(x, index, start)
		case *format.TopicCreated:
			t := &Topic{ID: x.ID, Name: x.Name, Created: c.Time, Partitions: make([]Partition, x.Partitions)}
			s.putTopic(t)
		case *format.TopicDeleted:
			s.dropConsumers(x.ID)
			s.dropQueues(x.ID)
			s.dropDelayed(x.ID)
			s.dropTopic(s.topics.byID[x.ID])
		case *format.PartitionsAdded:
			t := s.topics.byID[x.Topic]
			s.memory += int64(int(x.Partitions)-len(t.Partitions)) * partitionMemory
			t.Partitions = append(make([]Partition, 0, x.Partitions), t.Partitions...)[:x.Partitions] // a plain append could allocate more than Memory counts
		case *format.DataFloor:
			s.dataFloor = x.Seq
			if s.level >= format.LevelSegments {
				s.collecting.floored = c.Time
			}
		case *format.StartMoved:
			s.moveStart(&s.topics.byID[x.Topic].Partitions[x.Partition], x.Start)
			s.purgeBelow(x.Topic, x.Partition, x.Start)
		case *format.TopicConfigured:
			t := s.topics.byID[x.Topic]
			t.Config.RetentionMS, t.Config.RetentionBytes, t.Dormant = x.Config.RetentionMS, x.Config.RetentionBytes, false
		case *format.QueuesPassed:
			s.topics.byID[x.Topic].Config.PastQueues = x.PastQueues
		case *format.AppendKeyed:
			s.addKeyed(Keyed{Key: x.Key, Print: x.Print, Time: c.Time, Ranges: x.Ranges})
		case *format.KeyCreated:
			s.putKey(keyOf(x, c.Time))
		case *format.KeyRevoked:
			s.dropKey(s.keys.byID[x.ID])
		case *format.ConsumerCreated:
			s.putConsumer(&Consumer{ID: x.ID, Topic: x.Topic, Name: x.Name, Created: c.Time, Moved: c.Time})
		case *format.PositionsMoved:
			s.movePositions(x)
		case *format.ConsumerDeleted:
			s.dropConsumer(s.consumers.byID[x.ID])
		case *format.SessionNamed:
			s.nameSession(x)
		case *format.SegmentAdded:
			s.addSegment(x)
			if x.Slot > 0 {
				bottom = max(bottom, x.Slot+1)
			}
		case *format.PageStored:
			s.addPage(x)
		case *format.LevelRaised:
			raised = x
			s.makeDormant()
		case *format.CheckpointSeen:
			s.see(x, c.Time)
		case *format.Collected:
			s.collect(x)
		case *format.DelaySet:
			s.setDelay(x, c.Time)
		case *format.Held:
			s.hold(x, c.Time)
		case *format.Spent:
			s.spend(x, c.Time)
		default:
			s.applyQueueEntry(it)
		}
	}
	if raised != nil {
		s.raise(raised, c)
	} else if s.level >= format.LevelSegments {
		died := s.noteDead()
		s.bottom = bottom
		s.objects.cutDead()
		if died {
			s.raiseBottom()
		}
	}
	s.memory += s.objects.memory(s.level) - memory
}

const (
	partitionMemory = int64(unsafe.Sizeof(Partition{}))
	topicMemory     = int64(unsafe.Sizeof(Topic{})) + indexMemory
	sortedMemory    = 2 * 8 // for each pointer or offset in a sorted set: at worst, half of a chunk's memory is unused
	chunkMemory     = int64(unsafe.Sizeof(chunk{}))
	batchMemory     = int64(unsafe.Sizeof(batch{}))
	objectMemory    = int64(unsafe.Sizeof(object{}))
)

func (s *State) putTopic(t *Topic) {
	s.topics.put(t)
	s.memory += topicMemory + int64(len(t.Name)) + int64(len(t.Partitions))*partitionMemory
}

func (s *State) dropTopic(t *Topic) {
	for i := range t.Partitions {
		p := &t.Partitions[i]
		s.replaceParts(p, 0, len(p.parts()), nil)
		for len(p.chunks) > 0 {
			s.dropChunk(p)
		}
	}
	s.memory -= topicMemory + int64(len(t.Name)) + int64(len(t.Partitions))*partitionMemory
	s.topics.drop(t)
}

func (s *State) addBatch(x *format.Batch, index uint64, payloadStart uint32) {
	p := &s.topics.byID[x.Topic].Partitions[x.Partition]
	s.push(p, index, batch{
		base:    x.Base,
		maxTime: x.MaxTime,
		pos:     payloadStart + x.Pos,
		size:    x.Size,
		crc:     x.CRC,
	})
	p.End = x.Base + format.Offset(x.Count)
	p.MaxTime = x.MaxTime
	if s.level >= format.LevelSegments {
		p.appended = appended{records: int64(x.Count), crc: x.CRC}
	}
}

// push adds a batch to the end of a partition. The object with the given index holds the batch;
// push counts the batch in that object.
func (s *State) push(p *Partition, index uint64, b batch) {
	last := len(p.chunks) - 1
	if last < 0 || len(p.chunks[last].batches) == chunkBatches || index-p.chunks[last].object > 1<<32-1 {
		p.chunks = append(p.chunks, chunk{object: index, maxTime: b.maxTime})
		s.memory += chunkMemory
		last++
	}
	c := &p.chunks[last]
	before := cap(c.batches)
	if len(c.batches) == before {
		c.batches = append(make([]batch, 0, roomFor(before+1)), c.batches...)
	}
	b.object = uint32(index - c.object)
	c.maxTime = max(c.maxTime, b.maxTime)
	c.batches = append(c.batches, b)
	s.memory += int64(cap(c.batches)-before) * batchMemory
	s.objects.retain(index)
	s.batches++
	p.Bytes += int64(b.size)
}

// moveStart moves the start of a partition. It drops the batches whose records are all before
// the new start.
func (s *State) moveStart(p *Partition, start format.Offset) {
	p.Start = start
	s.cutParts(p)
	for len(p.chunks) > 0 && p.endOf(0, len(p.chunks[0].batches)-1) <= start {
		s.dropChunk(p)
	}
	if len(p.chunks) == 0 {
		return
	}
	n := 0
	for p.endOf(0, n) <= start {
		n++
	}
	s.dropFront(p, n)
}

// dropChunk drops the first chunk of a partition.
func (s *State) dropChunk(p *Partition) {
	c := &p.chunks[0]
	s.dropFront(p, len(c.batches))
	s.memory -= chunkMemory
	*c = chunk{} // frees the batches: without this, the array of p.chunks would keep them
	if p.chunks = p.chunks[1:]; len(p.chunks) == 0 {
		p.chunks = nil
	}
}

// releaseObject counts that the state has one batch less in an object.
func (s *State) releaseObject(index uint64) {
	if s.objects.release(index) {
		s.dying = append(s.dying, index)
	}
}

// dropFront drops the first n batches of a partition's first chunk.
func (s *State) dropFront(p *Partition, n int) {
	if n == 0 {
		return
	}
	c := &p.chunks[0]
	before := cap(c.batches)
	for _, b := range c.batches[:n] {
		s.releaseObject(c.object + uint64(b.object))
		p.Bytes -= int64(b.size)
	}
	left := c.batches[n:] // the next line copies these batches: a slice of the list would keep the whole list in memory
	c.batches = append(make([]batch, 0, roomFor(len(left))), left...)
	s.memory -= int64(before-cap(c.batches)) * batchMemory
	s.batches -= n
}
