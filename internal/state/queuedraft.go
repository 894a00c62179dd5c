package state

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
)

// draftQueue is a queue with the changes of the commit so far.
type draftQueue struct {
	topic   format.TopicID
	name    string
	config  format.QueueConfig
	push    *format.QueuePush
	epoch   format.Epoch
	owned   bool
	base    *Queue // nil if the commit creates the queue
	touched map[format.Partition]*draftQueuePartition
}

// draftQueuePartition is a queue's work in a partition, as a commit changes it. base is that work before
// the commit. done, doneBy and attempts have only what the commit has changed so far; dispatchLimit and
// uncertainEnd are the values after these changes.
type draftQueuePartition struct {
	base          *queuePartition
	done          done                     // records that this commit marks as done
	doneBy        map[format.Offset]uint32 // by offset of a record in done: the number of the acknowledged delivery
	attempts      map[format.Offset]Attempt
	dispatchLimit format.Offset
	uncertainEnd  format.Offset
}

func (p *draftQueuePartition) isDone(offset format.Offset) bool {
	return p.base.done.has(offset) || p.done.has(offset)
}

// attempt does what [queuePartition.attempt] does, after the changes of the commit so far.
func (p *draftQueuePartition) attempt(offset format.Offset) (a Attempt, sure bool) {
	if a, ok := p.attempts[offset]; ok {
		return a, true
	}
	if a, ok := p.base.attempts[offset]; ok {
		return a, true
	}
	return unlisted(offset, p.dispatchLimit, p.uncertainEnd)
}

func (p *draftQueuePartition) set(offset format.Offset, a Attempt) {
	if p.attempts == nil {
		p.attempts = map[format.Offset]Attempt{}
	}
	p.attempts[offset] = a
}

func (p *draftQueuePartition) didBy(offset format.Offset, number uint32) {
	if p.doneBy == nil {
		p.doneBy = map[format.Offset]uint32{}
	}
	p.doneBy[offset] = number
}

// NextQueueID returns the id that the next queue must have.
func (d *Draft) NextQueueID() format.QueueID { return d.queues.next }

// QueueCount returns the number of queues after the commit, including those of topics that the
// commit deletes.
func (d *Draft) QueueCount() int { return d.queues.count }

// QueueID returns the id of a topic's queue of that name; ok reports whether it exists.
func (d *Draft) QueueID(topic format.TopicID, name string) (id format.QueueID, ok bool) {
	id, ok = d.queues.idOf(scopedName{topic, name})
	return id, ok && d.topic(topic) != nil
}

// QueueConfig returns the config of an existing queue.
func (d *Draft) QueueConfig(id format.QueueID) format.QueueConfig { return d.queue(id).config }

// QueueEpoch returns the epoch of an existing queue, and whether the queue has an owner.
func (d *Draft) QueueEpoch(id format.QueueID) (epoch format.Epoch, owned bool) {
	q := d.queue(id)
	return q.epoch, q.owned
}

// QueueExists reports whether there is a queue with that id.
func (d *Draft) QueueExists(id format.QueueID) bool { return d.queue(id) != nil }

// QueueDispatchLimit returns the dispatch limit of an existing queue in a partition.
func (d *Draft) QueueDispatchLimit(id format.QueueID, partition format.Partition) format.Offset {
	return d.queuePartition(d.queue(id), partition).dispatchLimit
}

// RecordState returns true for isDone if a record is done, was trimmed, or does not exist. For
// other records, a is the record's last delivery according to the log, and sure is false if the owner
// may have made the record's first delivery without an entry in the log.
func (d *Draft) RecordState(id format.QueueID, partition format.Partition, offset format.Offset) (isDone bool, a Attempt, sure bool) {
	p, end, err := d.workedOn(id, partition)
	if err != nil || offset >= end || p.isDone(offset) {
		return true, Attempt{}, true
	}
	a, sure = p.attempt(offset)
	return false, a, sure
}

// IsLast reports whether a delivery is the last one of its record, and the record is neither
// done nor redriven since that delivery. Workers may answer only such a delivery.
func (d *Draft) IsLast(id format.QueueID, partition format.Partition, offset format.Offset, number uint32) bool {
	isDone, a, sure := d.RecordState(id, partition, offset)
	return !isDone && counts(a, sure, number)
}

// DoneBy reports whether this commit marks a record as done because a worker acknowledged that
// delivery.
func (d *Draft) DoneBy(id format.QueueID, partition format.Partition, offset format.Offset, number uint32) bool {
	p, _, err := d.workedOn(id, partition)
	return err == nil && number > 0 && p.doneBy[offset] == number
}

// HasRecord reports whether the topic of an existing queue has a record at an offset, or had
// one that was trimmed.
func (d *Draft) HasRecord(id format.QueueID, partition format.Partition, offset format.Offset) bool {
	end, ok := d.End(d.queue(id).topic, partition)
	return ok && offset < end
}

// QueueLeft returns how many records of a partition are not done in an existing queue, including
// dead letters.
func (d *Draft) QueueLeft(id format.QueueID, partition format.Partition) int64 {
	q := d.queue(id)
	start := d.Start(q.topic, partition)
	end, _ := d.End(q.topic, partition)
	p := d.queuePartition(q, partition)
	all := done{floor: p.base.done.floor, above: slices.Clone(p.base.done.above)}
	all.raise(p.done.floor)
	for _, x := range p.done.above {
		all.add(x.from, x.to)
	}
	return int64(end-start) - all.count(start)
}

// QueueDispatchLimits returns the dispatch limits that a new owner of an existing queue gets, by partition. In each
// partition it finds the offset from which on no record can have been handed out, and passes the number of existing
// records from there on to ahead. The limit is that offset plus the result of ahead.
func (d *Draft) QueueDispatchLimits(id format.QueueID, topic format.TopicID, ahead func(existing int64) int64) []format.Offset {
	q := d.queue(id)
	limits := make([]format.Offset, d.topic(topic).partitions)
	for i := range limits {
		n := format.Partition(i)
		p := d.queuePartition(q, n)
		end, _ := d.End(topic, n)
		limits[i] = max(p.base.done.next(d.Start(topic, n)), p.uncertainEnd, min(p.dispatchLimit, end))
		limits[i] += format.Offset(ahead(int64(end - limits[i])))
	}
	return limits
}

// DeadLetter is the position of a dead letter in its topic.
type DeadLetter struct {
	Partition format.Partition
	Offset    format.Offset
}

// DeadLetters returns up to limit dead letters of an existing queue, sorted by partition and
// offset.
func (d *Draft) DeadLetters(id format.QueueID, limit int) (list []DeadLetter) {
	q := d.queue(id)
	for n := range format.Partition(d.topic(q.topic).partitions) {
		p, _, err := d.workedOn(id, n)
		if err != nil {
			continue
		}
		for _, o := range p.deadLetterOffsets(limit - len(list)) {
			list = append(list, DeadLetter{n, o})
		}
	}
	return list
}

// deadLetterOffsets returns the offsets of up to limit dead letters, ascending.
func (p *draftQueuePartition) deadLetterOffsets(limit int) (offsets []format.Offset) {
	for o, a := range p.attempts { // dead letters that the commit under construction adds
		if a.DeadLetter && !p.base.attempts[o].DeadLetter && !p.isDone(o) {
			offsets = append(offsets, o)
		}
	}
	before := 0
	for o := range p.base.deadLetters.from(0, cmp.Compare[format.Offset]) {
		if before == limit {
			break
		}
		if a, _ := p.attempt(o); a.DeadLetter && !p.isDone(o) {
			offsets = append(offsets, o)
			before++
		}
	}
	slices.Sort(offsets)
	return offsets[:min(limit, len(offsets))]
}

// queue returns a queue with the changes of the commit so far; nil if the queue doesn't exist.
func (d *Draft) queue(id format.QueueID) *draftQueue {
	q := d.queues.find(id, func(old *Queue) *draftQueue {
		q := &draftQueue{topic: old.Topic, name: old.Name, config: old.Config, push: old.Push, epoch: old.Epoch, owned: old.Owned, base: old}
		d.queues.put(id, q)
		return q
	})
	if q == nil || d.topic(q.topic) == nil {
		return nil
	}
	return q
}

// queuePartition returns a queue's work in a partition with the changes of the commit so far.
func (d *Draft) queuePartition(q *draftQueue, partition format.Partition) *draftQueuePartition {
	p := q.touched[partition]
	if p == nil {
		p = &draftQueuePartition{base: &queuePartition{}}
		if q.base != nil && int(partition) < len(q.base.partitions) {
			p.base = &q.base.partitions[partition]
		}
		p.dispatchLimit, p.uncertainEnd = p.base.dispatchLimit, p.base.uncertainEnd
		if q.touched == nil {
			q.touched = map[format.Partition]*draftQueuePartition{}
		}
		q.touched[partition] = p
	}
	p.done.raise(d.Start(q.topic, partition)) // trimmed records count as done
	return p
}

// workedOn returns a queue's work in a partition, and the end of the partition. It returns an
// error if the queue or the partition doesn't exist.
func (d *Draft) workedOn(id format.QueueID, partition format.Partition) (p *draftQueuePartition, end format.Offset, err error) {
	q := d.queue(id)
	if q == nil || uint32(partition) >= d.topic(q.topic).partitions {
		return nil, 0, fmt.Errorf("%w: there is no partition %d in queue %d, or no such queue", ErrNonsense, partition, id)
	}
	end, _ = d.End(q.topic, partition)
	return d.queuePartition(q, partition), end, nil
}

// ownedQueue returns a queue that has an owner with that epoch, or an error if there is no such
// queue.
func (d *Draft) ownedQueue(id format.QueueID, epoch format.Epoch) (*draftQueue, error) {
	q := d.queue(id)
	if q == nil || !q.owned || q.epoch != epoch {
		return nil, fmt.Errorf("%w: queue %d has no owner with epoch %d", ErrNonsense, id, epoch)
	}
	return q, nil
}
