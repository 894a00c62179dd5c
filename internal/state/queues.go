package state

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// Bounds on queues in any log, so that damaged numbers can't take all memory. Brokers
// set lower ones.
const (
	QueuesMax         = 1 << 16
	QueueNameBytesMax = 255
	ReasonBytesMax    = 1024
	AddressBytesMax   = 1024
	// QueueMSMax bounds the times in a queue's config, so that whoever makes another unit of
	// them needs not think of overflow. It is 34 years.
	QueueMSMax = 1 << 40
)

// Queue is a view of a topic's records as work to be done.
type Queue struct {
	// ID is never used again.
	ID      uint64
	Topic   uint64
	Name    string
	Created int64 // fold's time in microseconds
	Config  format.QueueConfig
	// Push is where the records are pushed to, nil if they are not. It is not changed.
	Push *format.QueuePush

	// Epoch counts owners. Owned tells whether the last of them still is; then Address is
	// where it is, Session by what it proves to be that one (zero if the log does not tell),
	// and Seen when the log last heard of it.
	Epoch   uint64
	Owned   bool
	Address string
	Session format.SessionKey
	Seen    int64

	partitions []queuePartition // to the last one that isn't untouched
}

// queuePartition is how far the work is in one partition.
type queuePartition struct {
	done done
	// attempts are of records that are not done and were handed out more than once, or
	// put back, or parked.
	attempts map[int64]Attempt
	parked   sorted[int64] // offsets of those in attempts that are
	reasons  int64         // size in bytes of those in attempts
	most     int           // that attempts held: see shrunkMap
	// window is where what the owner may hand out for the first time ends.
	window int64
	// doubt is where those end that an owner which was lost may have handed out once.
	doubt int64
}

// Attempt is the last delivery of a record.
type Attempt struct {
	// Number counts the record's deliveries from 1, and never begins anew: a token holds
	// it, and whoever had the record before it was redriven still has one. 0: there was none.
	Number    uint32
	Redriven  uint32 // the number when it was last redriven, 0 if it never was
	NotBefore int64  // when it may be handed out again, fold's time in microseconds
	Parked    bool
	Reason    string // of why it was put back
}

// Tries returns how many of the attempts that the queue allows are used up: those since
// the record was redriven.
func (a Attempt) Tries() uint32 { return a.Number - a.Redriven }

// unlisted returns what is known of a record which is not done, and of which no attempts
// are told; sure is false if the owner may have handed it out for the first time since.
func unlisted(offset, window, doubt int64) (a Attempt, sure bool) {
	if offset < doubt {
		return Attempt{Number: 1}, true
	}
	return Attempt{}, offset >= window
}

// isLast tells whether that delivery is the last of a record of which a and sure are known.
func isLast(a Attempt, sure bool, number uint32) bool {
	return !a.Parked && number > 0 && (a.Number == number || !sure && number == 1)
}

// counts tells whether that delivery may still be answered: it is the last, and the record
// was not redriven since. The fold is content with the last, since logs have such answers.
func counts(a Attempt, sure bool, number uint32) bool {
	return isLast(a, sure, number) && number > a.Redriven
}

// isNext tells whether a delivery of that number may follow the last.
func isNext(a Attempt, sure bool, number uint32) bool {
	return !a.Parked && number > 0 && (number-1 == a.Number || !sure && number == 2)
}

// attempt returns the last delivery of a record that is not done, as far as the log
// knows; sure is false if the owner may have handed it out for the first time since.
func (p *queuePartition) attempt(offset int64) (a Attempt, sure bool) {
	if a, ok := p.attempts[offset]; ok {
		return a, true
	}
	return unlisted(offset, p.window, p.doubt)
}

// untouched tells whether the work has not begun.
func (p *queuePartition) untouched() bool {
	return p.done.floor == 0 && len(p.done.above) == 0 && len(p.attempts) == 0 && p.window == 0 && p.doubt == 0
}

type queueName = consumerName

// queues are those of all topics. Ids are never used again.
type queues struct {
	next    uint64
	byID    map[uint64]*Queue
	byName  map[queueName]*Queue
	byTopic map[uint64][]*Queue              // by name
	most    struct{ ids, names, topics int } // that the maps held: see shrunkMap
}

func newQueues() queues {
	return queues{next: 1, byID: map[uint64]*Queue{}, byName: map[queueName]*Queue{}, byTopic: map[uint64][]*Queue{}}
}

// QueueByID returns the queue with that id, nil if there is none.
func (s *State) QueueByID(id uint64) *Queue { return s.queues.byID[id] }

// Queue returns a topic's queue of that name, nil if there is none.
func (s *State) Queue(topic uint64, name string) *Queue {
	return s.queues.byName[queueName{topic, name}]
}

// DeadLetteredTo returns the queues whose dead-letter topic has that name, the oldest first.
// Its cost is that of all queues.
func (s *State) DeadLetteredTo(name string) (found []*Queue) {
	for _, q := range s.queues.byID {
		if q.Config.DeadLetterTopic == name {
			found = append(found, q)
		}
	}
	slices.SortFunc(found, func(a, b *Queue) int { return cmp.Compare(a.ID, b.ID) })
	return found
}

// Queues returns a topic's queues by name.
func (s *State) Queues(topic uint64) []*Queue { return slices.Clone(s.queues.byTopic[topic]) }

// QueuesAfter returns the queues of a topic whose names follow that one, by name, at most the
// given number. Its cost is that of those alone.
func (s *State) QueuesAfter(topic uint64, name string, most int) []*Queue {
	qs := s.queues.byTopic[topic]
	at, found := slices.BinarySearchFunc(qs, &Queue{Name: name}, queuesByName)
	if found {
		at++
	}
	return slices.Clone(qs[at:min(at+most, len(qs))])
}

func queuesByName(a, b *Queue) int { return strings.Compare(a.Name, b.Name) }

// QueueCount returns the number of queues of all topics.
func (s *State) QueueCount() int { return len(s.queues.byID) }

// OldestQueues returns queues of all topics, by id, at most the given number: those with
// the smallest ids.
func (s *State) OldestQueues(most int) []*Queue {
	return smallest(maps.Values(s.queues.byID), most, func(a, b *Queue) int { return cmp.Compare(a.ID, b.ID) })
}

const (
	queueMemory          = int64(unsafe.Sizeof(Queue{})) + 3*64 // and its places in three maps
	queuePartitionMemory = int64(unsafe.Sizeof(queuePartition{}))
	attemptMemory        = 2 * (int64(unsafe.Sizeof(Attempt{})) + 8) // a map's slots are half used at worst
)

// memory is what a queue takes without its partitions.
func (q *Queue) memory() int64 {
	return queueMemory + int64(len(q.Name)+len(q.Address)+len(q.Config.DeadLetterTopic)) + pushMemory(q.Push)
}

func (p *queuePartition) memory() int64 {
	return queuePartitionMemory + int64(len(p.done.above))*spanMemory + int64(len(p.attempts))*attemptMemory + int64(p.parked.count)*sortedMemory + p.reasons
}

func (s *State) putQueue(q *Queue) {
	s.queues.byID[q.ID], s.queues.byName[queueName{q.Topic, q.Name}] = q, q
	of := s.queues.byTopic[q.Topic]
	at, _ := slices.BinarySearchFunc(of, q, queuesByName)
	s.queues.byTopic[q.Topic] = slices.Insert(of, at, q)
	s.queues.next = max(s.queues.next, q.ID+1)
	s.memory += q.memory()
	for i := range q.partitions {
		s.memory += q.partitions[i].memory()
	}
}

func (s *State) dropQueue(q *Queue) {
	s.memory -= q.memory()
	for i := range q.partitions {
		s.memory -= q.partitions[i].memory()
	}
	delete(s.queues.byID, q.ID)
	delete(s.queues.byName, queueName{q.Topic, q.Name})
	rest := slices.DeleteFunc(s.queues.byTopic[q.Topic], func(x *Queue) bool { return x == q })
	if s.queues.byTopic[q.Topic] = shrunkList(rest); len(rest) == 0 {
		delete(s.queues.byTopic, q.Topic)
	}
	m := &s.queues.most
	s.queues.byID, s.queues.byName, s.queues.byTopic = shrunkMap(s.queues.byID, &m.ids), shrunkMap(s.queues.byName, &m.names), shrunkMap(s.queues.byTopic, &m.topics)
}

// dropQueues forgets the queues of a topic.
func (s *State) dropQueues(topic uint64) {
	for _, q := range slices.Clone(s.queues.byTopic[topic]) {
		s.dropQueue(q)
	}
}
