package state

import (
	"sort"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// Memory returns an upper bound on the state's memory in bytes after the commit: the memory
// now, minus what expires by the commit's time, plus what the entries taken so far add. It does
// not subtract memory that the entries free. Callers must have called [Draft.Measure] before
// the first Take.
func (d *Draft) Memory() int64 {
	if d.meter.expires < 0 {
		d.meter.expires = d.s.Expiring(d.time)
	}
	return d.s.memory - d.meter.expires + d.meter.grown
}

// Measure makes the draft count what its entries add to the state's memory, and returns the
// draft. Call Measure before the first Take.
func (d *Draft) Measure() *Draft {
	d.meter = &meter{d: d, expires: -1}
	return d
}

// Growth returns an upper bound in bytes on what entries would add to the state's memory, if
// the draft took these entries next. The entries need not be valid.
func (d *Draft) Growth(entries ...format.Entry) int64 {
	m := meter{d: d, before: d.meter}
	for _, it := range entries {
		m.add(it)
	}
	return m.grown
}

// Expiring returns how many bytes of the state's memory a commit frees, whatever its entries, if
// the log's time in the commit is at, in microseconds since 1970: the bytes of idempotency keys
// and delays that have ended by then.
func (s *State) Expiring(at int64) (bytes int64) {
	for i := range len(s.keyed.list) - s.KeyedCount(at) {
		bytes += s.keyed.list[i].memory()
	}
	return bytes + int64(s.delayed.due(at, 0))*delayedMemory
}

// KeyedMemory returns how many bytes the state needs for an append with an idempotency key and
// that number of ranges.
func KeyedMemory(ranges int) int64 {
	return keyedMemory + int64(ranges)*int64(unsafe.Sizeof(format.KeyedRange{}))
}

// DelayedMemory is how many bytes the state needs for a run of delayed records.
const DelayedMemory = delayedMemory

// meter adds up the memory that entries add to the state. The sum is never less than what the
// fold will add. The sum is larger if an entry also frees memory, or if several entries change
// the same thing.
type meter struct {
	d       *Draft
	before  *meter // the meter of earlier entries of the same commit, or nil
	grown   int64
	expires int64 // bytes that expire at the draft's time; below 0 if not yet computed

	lists map[batchKey]batchList // the last chunk of each partition that got a batch
	parts map[format.QueueID]int // the length of each queue's list of partitions after the entries so far
}

// batchList describes the last chunk of a partition: how many batches the chunk has, and for
// how many batches the chunk has memory.
type batchList struct{ count, room int }

func (m *meter) add(it format.Entry) {
	switch x := it.(type) {
	case *format.Batch:
		m.batch(batchKey{x.Topic, x.Partition})
	case *format.TopicCreated:
		m.grown += topicMemory + int64(len(x.Name)) + int64(x.Partitions)*partitionMemory
	case *format.PartitionsAdded:
		had := uint32(0)
		if t := m.d.topic(x.Topic); t != nil {
			had = t.partitions
		}
		m.grown += int64(x.Partitions-min(x.Partitions, had)) * partitionMemory
	case *format.AppendKeyed:
		m.grown += KeyedMemory(len(x.Ranges))
	case *format.SegmentAdded:
		m.grown += segmentMemory + int64(len(x.Ranges))*(partMemory+stayMemory)
	case *format.PageStored:
		m.grown += pageMemory
	case *format.CheckpointSeen:
		m.grown += seenMemory
	case *format.Held:
		if !m.d.s.collecting.holding(x.ID) {
			m.grown += holdMemory
		}
	case *format.Spent:
		m.grown += m.d.s.spentMemory(x, m.d.time)
	case *format.LevelRaised:
		// Objects that have batches take more memory from then on, or objects that have none are listed as dead.
		m.grown += int64(m.d.s.objects.count) * max(commitMemory, deadMemory-objectMemory)
	case *format.KeyCreated:
		m.grown += keyOf(x, 0).memory()
	case *format.ConsumerCreated:
		m.grown += (&Consumer{Name: x.Name}).memory()
	case *format.PositionsMoved:
		m.positions(x)
	default:
		m.queueEntry(it)
	}
}

// batch counts the memory of a batch, and of the object that holds the batch, since the batch
// may be the first one in that object. If the commit has an earlier batch of the same
// partition, the new batch may need a new chunk: in a chunk, no batch may be in an object with
// a lower index than the object of the first batch.
func (m *meter) batch(key batchKey) {
	l, more := m.list(key)
	grown := int64(0)
	if l.count == chunkBatches {
		l = batchList{}
	}
	if l.count == 0 {
		grown += chunkMemory
	}
	if l.count == l.room {
		room := roomFor(l.room + 1)
		grown += int64(room-l.room) * batchMemory
		l.room = room
	}
	if more {
		grown = max(grown, chunkMemory+batchMemory)
	}
	m.grown += grown + objectMemory
	l.count++
	if m.lists == nil {
		m.lists = map[batchKey]batchList{}
	}
	m.lists[key] = l
}

// roomFor returns the capacity of a chunk with count batches: the next power of two. The
// capacity depends on count alone, so a commit that drops batches and appends others needs no
// more memory than one that only appends.
func roomFor(count int) int {
	room := min(count, 1)
	for room < count {
		room *= 2
	}
	return room
}

// list returns the last chunk of a partition. more reports whether the entries so far have
// added a batch to the partition.
func (m *meter) list(key batchKey) (l batchList, more bool) {
	for x := m; x != nil; x = x.before {
		if l, more = x.lists[key]; more {
			return l, true
		}
	}
	t := m.d.s.topics.byID[key.topic]
	if t == nil || int(key.partition) >= len(t.Partitions) || len(t.Partitions[key.partition].chunks) == 0 {
		return batchList{}, false
	}
	chunks := t.Partitions[key.partition].chunks
	last := chunks[len(chunks)-1].batches
	return batchList{count: len(last), room: cap(last)}, false
}

func (m *meter) positions(x *format.PositionsMoved) {
	had := 0
	if c := m.d.s.consumers.byID[x.Consumer]; c != nil {
		had = len(c.positions)
	}
	if n := len(x.Positions); n > 0 {
		m.grown += int64(max(0, int(x.Positions[n-1].Partition)+1-had)) * positionMemory
	}
}

func (m *meter) queueEntry(it format.Entry) {
	switch x := it.(type) {
	case *format.QueueSet:
		if q := m.d.queue(x.ID); q != nil {
			m.grown += int64(max(0, len(x.Config.DeadLetterTopic)-len(q.config.DeadLetterTopic)))
			return
		}
		m.grown += (&Queue{Name: x.Name, Config: x.Config}).memory()
	case *format.QueueOwned:
		before := 0
		if q := m.d.s.queues.byID[x.Queue]; q != nil {
			before = len(q.Address)
		}
		m.grown += int64(max(0, len(x.Address)-before))
		m.reach(x.Queue, len(x.Windows))
	case *format.WindowMoved:
		m.reach(x.Queue, int(x.Partition)+1)
	case *format.QueuePurged:
		m.reach(x.Queue, int(x.Partition)+1)
	case *format.RecordsAttempted:
		m.reach(x.Queue, int(x.Partition)+1)
		for _, a := range x.Attempts {
			m.attempt(x.Queue, x.Partition, a.Offset, Attempt{})
		}
	case *format.RecordPutBack:
		m.reach(x.Queue, int(x.Partition)+1)
		m.attempt(x.Queue, x.Partition, x.Offset, Attempt{DeadLetter: x.DeadLetter, Reason: x.Reason})
	case *format.RecordsDone:
		m.reach(x.Queue, int(x.Partition)+1)
		m.done(x)
	case *format.RecordsDelayed:
		if x.Due > m.d.time {
			m.grown += delayedMemory
		}
	case *format.QueuePushSet:
		before := int64(0)
		if q := m.d.queue(x.Queue); q != nil {
			before = pushMemory(q.push)
		}
		m.grown += max(0, pushMemory(x.Push)-before)
	}
}

// reach counts the memory that the fold needs to give a queue's list of partitions at least
// the length count.
func (m *meter) reach(queue format.QueueID, count int) {
	had, known := 0, false
	for x := m; x != nil && !known; x = x.before {
		had, known = x.parts[queue]
	}
	if q := m.d.s.queues.byID[queue]; q != nil && !known {
		had = len(q.partitions)
	}
	if count <= had {
		return
	}
	m.grown += int64(count-had) * queuePartitionMemory
	if m.parts == nil {
		m.parts = map[format.QueueID]int{}
	}
	m.parts[queue] = count
}

// work returns a queue's work in a partition as the draft has it, or nil.
func (m *meter) work(queue format.QueueID, partition format.Partition) *draftQueuePartition {
	p, _, err := m.d.workedOn(queue, partition)
	if err != nil {
		return nil
	}
	return p
}

// attempt counts the memory that a record's new last delivery adds to the fields attempts and
// deadLetters of a queuePartition.
func (m *meter) attempt(queue format.QueueID, partition format.Partition, offset format.Offset, now Attempt) {
	var old Attempt
	listed := false
	if p := m.work(queue, partition); p != nil {
		if old, listed = p.attempts[offset]; !listed {
			old, listed = p.base.attempts[offset]
		}
	}
	if !listed {
		m.grown += attemptMemory
	}
	if now.DeadLetter && !old.DeadLetter {
		m.grown += sortedMemory
	}
	m.grown += int64(max(0, len(now.Reason)-len(old.Reason)))
}

// done counts the memory of the spans that x adds to the set of done records.
func (m *meter) done(x *format.RecordsDone) {
	p := m.work(x.Queue, x.Partition)
	var drafted done // records that earlier entries of the commit marked as done
	if p != nil {
		drafted = p.done
		if drafted.floor <= m.d.Start(m.d.queue(x.Queue).topic, x.Partition) {
			// The draft marks trimmed records as done in every queue, the fold only in some
			// queues. In the other queues, done records at the start of the partition need a
			// span of their own.
			drafted.floor = 0
		}
	}
	last := format.Offset(-1) // the end of the previous run
	for _, r := range x.Runs {
		if r.Offset != last && (p == nil || !p.base.done.touches(r.Offset, r.End()) && !drafted.touches(r.Offset, r.End())) {
			m.grown += spanMemory
		}
		last = r.End()
	}
}

// touches reports whether [from, to) overlaps or adjoins a span or the offsets below floor.
func (d *done) touches(from, to format.Offset) bool {
	if from <= d.floor {
		return true
	}
	i := sort.Search(len(d.above), func(i int) bool { return d.above[i].to >= from })
	return i < len(d.above) && d.above[i].from <= to
}
