package state

import (
	"slices"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// Bounds on queues. A log that exceeds them is damaged. Without bounds, a damaged number could
// make a broker allocate all memory. The limits for requests are lower.
const (
	QueuesMax         = 1 << 16
	QueueNameBytesMax = 255
	ReasonBytesMax    = 1024
	AddressBytesMax   = 1024
	// QueueMSMax bounds the times in a queue's config, in milliseconds: 34 years. So
	// conversions to other units don't overflow.
	QueueMSMax = 1 << 40
)

// Queue is a queue: workers get the records of a topic from it, as work to be done.
type Queue struct {
	// ID is never reused.
	ID      format.QueueID
	Topic   format.TopicID
	Name    string
	Created int64 // the log's time in microseconds
	Config  format.QueueConfig
	// Push is the target to which the records are pushed, or nil. The struct that Push points
	// to never changes.
	Push *format.QueuePush

	// Epoch counts the owners so far. Owned says whether the last owner still owns the queue.
	// If Owned is set, Address is the owner's address, Session is the public key with which the
	// owner proves its identity (zero if the log has no such key), and Seen is the time of the
	// owner's last entry in the log.
	Epoch   format.Epoch
	Owned   bool
	Address string
	Session format.SessionKey
	Seen    int64

	partitions []queuePartition // without the untouched partitions at the end (see untouched)
}

// queuePartition is a queue's work in one partition: which records are done, and what the log
// says about deliveries of the other records.
type queuePartition struct {
	done done
	// attempts has, by offset, the last delivery of each listed record. A record is listed if it
	// is not done and the log has an entry about one of its deliveries. The log has such an
	// entry if the record was handed out more than once, was put back, became a dead letter, or
	// was with a worker when the owner released the queue.
	attempts    map[format.Offset]Attempt
	deadLetters sorted[format.Offset] // offsets of the dead letters in attempts
	reasons     int64                 // total size in bytes of the reasons in attempts
	most        int                   // the largest size of attempts so far: see shrunkMap
	// The owner may hand out the records below dispatchLimit for the first time.
	dispatchLimit format.Offset
	// uncertainEnd is the end of the uncertain range: an earlier owner may have handed out each
	// record below uncertainEnd once. This is not so for the records in attempts: for them, the
	// log says what the last delivery was.
	uncertainEnd format.Offset
}

// Attempt is the last delivery of a record.
type Attempt struct {
	// Number counts the record's deliveries from 1; 0 means that there was no delivery. A
	// redrive does not reset Number, because tokens of earlier deliveries contain it.
	Number     uint32
	Redriven   uint32 // Number at the last redrive; 0 if there was no redrive
	NotBefore  int64  // the log's time in microseconds before which the next delivery must not begin; 0 if none is set
	DeadLetter bool
	Reason     string // why the record was put back
}

// Used returns the number of attempts since the last redrive. The queue's limit on attempts
// applies to this number.
func (a Attempt) Used() uint32 { return a.Number - a.Redriven }

// unlisted returns the last delivery of a record that is neither done nor in attempts. sure is
// false if the owner may have made the record's first delivery without an entry in the log.
func unlisted(offset, dispatchLimit, uncertainEnd format.Offset) (a Attempt, sure bool) {
	if offset < uncertainEnd {
		return Attempt{Number: 1}, true
	}
	return Attempt{}, offset >= dispatchLimit
}

// isLast reports whether a delivery with that number is the latest one of its record, which is not a dead
// letter. a and sure are what [queuePartition.attempt] returns for that record.
func isLast(a Attempt, sure bool, number uint32) bool {
	return !a.DeadLetter && number > 0 && (a.Number == number || !sure && number == 1)
}

// counts reports whether a worker may still answer a delivery: the delivery is the last one of
// its record, and the record was not redriven after that delivery. (The fold uses isLast
// instead, because old logs contain answers that came after a redrive, to deliveries before the
// redrive.)
func counts(a Attempt, sure bool, number uint32) bool {
	return isLast(a, sure, number) && number > a.Redriven
}

// isNext reports whether a delivery with that number may follow the record's last delivery. a
// and sure are what [queuePartition.attempt] returns for that record.
func isNext(a Attempt, sure bool, number uint32) bool {
	return !a.DeadLetter && number > 0 && (number-1 == a.Number || !sure && number == 2)
}

// attempt returns the last delivery of a record; the record must not be done. If the log has no entry about the
// record, attempt returns delivery 1 in the uncertain range, since an earlier owner may have handed the record out,
// and no delivery elsewhere. sure is false if the present owner may have made the first delivery without an entry
// in the log.
func (p *queuePartition) attempt(offset format.Offset) (a Attempt, sure bool) {
	if a, ok := p.attempts[offset]; ok {
		return a, true
	}
	return unlisted(offset, p.dispatchLimit, p.uncertainEnd)
}

// untouched reports whether the queue has no work in the partition yet: no record is done or in
// attempts, and there is no dispatch limit and no uncertain range.
func (p *queuePartition) untouched() bool {
	return p.done.floor == 0 && len(p.done.above) == 0 && len(p.attempts) == 0 && p.dispatchLimit == 0 && p.uncertainEnd == 0
}

func (q *Queue) ref() (id format.QueueID, name scopedName) { return q.ID, scopedName{q.Topic, q.Name} }

// QueueByID returns the queue with that id, or nil.
func (s *State) QueueByID(id format.QueueID) *Queue { return s.queues.byID[id] }

// Queue returns a topic's queue of that name, or nil.
func (s *State) Queue(topic format.TopicID, name string) *Queue {
	return s.queues.byName[scopedName{topic, name}]
}

// DeadLetteredTo returns the queues whose dead-letter topic has that name, sorted by id. The
// cost depends on the number of all queues.
func (s *State) DeadLetteredTo(name string) (found []*Queue) {
	for _, q := range s.queues.byID {
		if q.Config.DeadLetterTopic == name {
			found = append(found, q)
		}
	}
	slices.SortFunc(found, idOrder[format.QueueID, *Queue])
	return found
}

// Queues returns a topic's queues, sorted by name.
func (s *State) Queues(topic format.TopicID) []*Queue {
	return s.QueuesAfter(topic, "", s.QueueCount())
}

// QueuesAfter returns a topic's queues whose names sort after a name, sorted by name. It
// returns at most the given number of queues; the cost depends on this number alone.
func (s *State) QueuesAfter(topic format.TopicID, name string, most int) []*Queue {
	return s.queues.after(&Queue{Topic: topic, Name: name}, most)
}

// QueueCount returns the number of queues of all topics.
func (s *State) QueueCount() int { return len(s.queues.byID) }

// OldestQueues returns the queues with the smallest ids, sorted by id. It returns at most the
// given number of queues.
func (s *State) OldestQueues(most int) []*Queue { return s.queues.oldest(most) }

const (
	queueMemory          = int64(unsafe.Sizeof(Queue{})) + 3*64 // the index takes at most 3*64 bytes for a queue
	queuePartitionMemory = int64(unsafe.Sizeof(queuePartition{}))
	attemptMemory        = 2 * (int64(unsafe.Sizeof(Attempt{})) + 8) // at worst, half of a map's slots are unused
)

// memory returns the memory in bytes of a queue without its partitions.
func (q *Queue) memory() int64 {
	return queueMemory + int64(len(q.Name)+len(q.Address)+len(q.Config.DeadLetterTopic)) + pushMemory(q.Push)
}

func (p *queuePartition) memory() int64 {
	return queuePartitionMemory + int64(len(p.done.above))*spanMemory + int64(len(p.attempts))*attemptMemory + int64(p.deadLetters.count)*sortedMemory + p.reasons
}

func (s *State) putQueue(q *Queue) {
	s.queues.put(q)
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
	s.queues.drop(q)
}

// dropQueues forgets the queues of a topic.
func (s *State) dropQueues(topic format.TopicID) {
	for _, q := range s.Queues(topic) {
		s.dropQueue(q)
	}
}
