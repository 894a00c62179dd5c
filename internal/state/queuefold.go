package state

import (
	"cmp"
	"maps"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
)

// applyQueueEntry applies an entry about a queue. It ignores all other entries.
func (s *State) applyQueueEntry(it format.Entry) {
	switch x := it.(type) {
	case *format.QueueSet:
		s.setQueue(x)
	case *format.QueueDeleted:
		s.dropQueue(s.queues.byID[x.ID])
	case *format.QueueOwned:
		s.own(x)
	case *format.QueueReleased:
		s.release(x)
	case *format.WindowMoved:
		q := s.queues.byID[x.Queue]
		s.changeWork(q, x.Partition, func(p *queuePartition) { p.dispatchLimit = x.Window })
		q.Seen = s.time
	case *format.RecordsAttempted:
		s.attempted(x)
	case *format.RecordsDone:
		s.recordsDone(x)
	case *format.RecordPutBack:
		s.putBack(x)
	case *format.RecordsRedriven:
		s.redrive(x)
	case *format.QueuePurged:
		s.purge(s.queues.byID[x.Queue], x.Partition, x.Before)
	case *format.RecordsDelayed:
		s.delay(x)
	case *format.QueuePushSet:
		q := s.queues.byID[x.Queue]
		s.changeQueue(q, func() { q.Push = x.Push })
	}
}

// changeQueue changes a queue, but not its partitions, and updates the count of the state's
// memory.
func (s *State) changeQueue(q *Queue, change func()) {
	s.memory -= q.memory()
	change()
	s.memory += q.memory()
}

// changeWork changes a queue's work in a partition, and updates the count of the state's
// memory.
func (s *State) changeWork(q *Queue, partition format.Partition, change func(p *queuePartition)) {
	p := s.work(q, partition)
	s.memory -= p.memory()
	change(p)
	s.memory += p.memory()
	s.trimWork(q)
}

// work returns a queue's work in a partition. If the queue's list of partitions is too short,
// work makes it longer.
func (s *State) work(q *Queue, partition format.Partition) *queuePartition {
	if more := int(partition) + 1 - len(q.partitions); more > 0 {
		q.partitions = append(q.partitions, make([]queuePartition, more)...)
		s.memory += int64(more) * queuePartitionMemory
	}
	return &q.partitions[partition]
}

// trimWork removes the untouched partitions (see untouched) at the end of the queue's list, so that
// equal states take equal memory and encode to equal bytes.
func (s *State) trimWork(q *Queue) {
	for n := len(q.partitions); n > 0 && q.partitions[n-1].untouched(); n-- {
		q.partitions[n-1] = queuePartition{}
		q.partitions = q.partitions[:n-1]
		s.memory -= queuePartitionMemory
	}
}

func (s *State) setQueue(x *format.QueueSet) {
	q := s.queues.byID[x.ID]
	if q == nil {
		s.putQueue(&Queue{ID: x.ID, Topic: x.Topic, Name: x.Name, Config: x.Config, Created: s.time})
		return
	}
	s.changeQueue(q, func() { q.Config = x.Config })
}

// own gives a queue to a new owner. All records below the previous owner's dispatch limit, up
// to the end of the partition, become uncertain: the previous owner may have handed them out.
func (s *State) own(x *format.QueueOwned) {
	q := s.queues.byID[x.Queue]
	topic := s.topics.byID[q.Topic]
	s.changeQueue(q, func() {
		q.Epoch, q.Owned, q.Address, q.Seen = x.Epoch, true, x.Address, s.time
		q.Session = format.SessionKey{} // a later SessionNamed entry may set the session
	})
	for i := range q.partitions {
		p := &q.partitions[i]
		p.uncertainEnd, p.dispatchLimit = max(p.uncertainEnd, min(p.dispatchLimit, topic.Partitions[i].End)), 0
	}
	for i, window := range x.Windows {
		s.work(q, format.Partition(i)).dispatchLimit = window
	}
	s.trimWork(q)
}

func (s *State) release(x *format.QueueReleased) {
	q := s.queues.byID[x.Queue]
	s.changeQueue(q, func() { q.Owned, q.Address, q.Session = false, "", format.SessionKey{} })
	for i := range q.partitions {
		q.partitions[i].dispatchLimit = 0
	}
	s.trimWork(q)
}

// set replaces the last delivery of a record.
func (p *queuePartition) set(offset format.Offset, a Attempt) {
	if p.attempts == nil {
		p.attempts = map[format.Offset]Attempt{}
	}
	was := p.attempts[offset]
	switch {
	case a.DeadLetter && !was.DeadLetter:
		p.deadLetters.add(offset, cmp.Compare[format.Offset])
	case was.DeadLetter && !a.DeadLetter:
		p.deadLetters.remove(offset, cmp.Compare[format.Offset])
	}
	p.reasons += int64(len(a.Reason) - len(was.Reason))
	p.attempts[offset] = a
}

// forget drops the attempts of the records in [from, to).
func (p *queuePartition) forget(from, to format.Offset) {
	drop := func(offset format.Offset, a Attempt) {
		p.reasons -= int64(len(a.Reason))
		if a.DeadLetter {
			p.deadLetters.remove(offset, cmp.Compare[format.Offset])
		}
		delete(p.attempts, offset)
	}
	defer func() { p.attempts = shrunkMap(p.attempts, &p.most) }()
	p.most = max(p.most, len(p.attempts))
	if int64(to-from) > int64(len(p.attempts)) {
		for o, a := range p.attempts {
			if from <= o && o < to {
				drop(o, a)
			}
		}
		return
	}
	for o := from; o < to; o++ {
		if a, ok := p.attempts[o]; ok {
			drop(o, a)
		}
	}
}

func (s *State) attempted(x *format.RecordsAttempted) {
	q := s.queues.byID[x.Queue]
	s.changeWork(q, x.Partition, func(p *queuePartition) {
		for _, a := range x.Attempts {
			p.set(a.Offset, Attempt{Number: a.Number, Redriven: p.attempts[a.Offset].Redriven})
		}
	})
	q.Seen = s.time
}

func (s *State) recordsDone(x *format.RecordsDone) {
	s.changeWork(s.queues.byID[x.Queue], x.Partition, func(p *queuePartition) {
		for _, r := range x.Runs {
			p.done.add(r.Offset, r.End())
			p.forget(r.Offset, r.End())
		}
	})
}

func (s *State) putBack(x *format.RecordPutBack) {
	s.changeWork(s.queues.byID[x.Queue], x.Partition, func(p *queuePartition) {
		p.set(x.Offset, p.attempts[x.Offset].putBack(x))
	})
}

// putBack returns a record's last delivery as it is after the record was put back.
func (a Attempt) putBack(x *format.RecordPutBack) Attempt {
	return Attempt{Number: x.Number, Redriven: a.Redriven, NotBefore: x.NotBefore, DeadLetter: x.DeadLetter, Reason: x.Reason}
}

// redriven returns a dead letter's last delivery as it is after a redrive.
func (a Attempt) redriven() Attempt { return Attempt{Number: a.Number, Redriven: a.Number} }

func (s *State) redrive(x *format.RecordsRedriven) {
	s.changeWork(s.queues.byID[x.Queue], x.Partition, func(p *queuePartition) {
		for _, o := range x.Offsets {
			p.set(o, p.attempts[o].redriven())
		}
	})
}

// purge marks all records before an offset as done.
func (s *State) purge(q *Queue, partition format.Partition, before format.Offset) {
	s.changeWork(q, partition, func(p *queuePartition) {
		from := p.done.floor
		p.done.raise(before)
		p.forget(from, before)
	})
}

// purgeBelow marks the records below the new start of a partition as done, in all queues of the
// topic that have the partition in their list. A queue without the partition in its list begins
// at the start of the partition anyway.
func (s *State) purgeBelow(topic format.TopicID, partition format.Partition, start format.Offset) {
	for _, q := range s.Queues(topic) {
		if int(partition) < len(q.partitions) {
			s.purge(q, partition, start)
		}
	}
}

// viewQueues returns copies of the queues, sorted by id.
func (s *State) viewQueues() []Queue {
	list := copiesByID(s.queues.byID)
	for i := range list {
		list[i].partitions = slices.Clone(list[i].partitions)
		for j := range list[i].partitions {
			p := &list[i].partitions[j]
			p.done.above = slices.Clone(p.done.above)
			p.attempts, p.most = maps.Clone(p.attempts), 0
			p.deadLetters = sorted[format.Offset]{} // not needed: attempts shows which records are dead letters
		}
	}
	return list
}
