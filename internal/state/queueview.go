package state

import (
	"iter"
	"maps"
	"slices"
	"sort"
)

// What an owner reads off a queue. All of it belongs to the state as it is now: use it
// under the lock that guards that.

// part returns the queue's part of a partition, an untouched one if nothing was done there.
func (q *Queue) part(partition int32) *queuePartition {
	if int(partition) < len(q.partitions) {
		return &q.partitions[partition]
	}
	return &queuePartition{}
}

// NextUndone returns the first offset from that one on whose work is not done.
func (q *Queue) NextUndone(partition int32, offset int64) int64 {
	return q.part(partition).done.next(offset)
}

// Window returns where the fresh records that the owner may hand out end.
func (q *Queue) Window(partition int32) int64 { return q.part(partition).window }

// Last returns the last delivery of a record that is not done, as far as the log knows.
// listed is false if nothing is said of that record alone.
func (q *Queue) Last(partition int32, offset int64) (a Attempt, listed bool) {
	p := q.part(partition)
	_, listed = p.attempts[offset]
	a, _ = p.attempt(offset)
	return a, listed
}

// IsLast tells whether a delivery of that number is the last of a record that is not done,
// and was made since that was redriven: only that one may be answered.
func (q *Queue) IsLast(partition int32, offset int64, number uint32) bool {
	return q.part(partition).counts(offset, number)
}

// Counts is how much work there is in one partition.
type Counts struct {
	Left   int64 // records that are not done, the parked included
	Parked int64
	Later  int64 // records that were put back, and are not to be handed out before a time
	First  int64 // the first offset that is not done
}

// Count counts the work in a partition that holds offsets from start to end-1, as it is at a
// time in microseconds since 1970.
func (q *Queue) Count(partition int32, start, end, now int64) Counts {
	p := q.part(partition)
	c := Counts{Left: end - start - p.done.count(start), First: p.done.next(start)}
	for _, a := range p.attempts {
		switch {
		case a.Parked:
			c.Parked++
		case a.NotBefore > now:
			c.Later++
		}
	}
	return c
}

// EachAttempt calls f for the records of a partition of which the log knows a delivery by
// itself, in no order.
func (q *Queue) EachAttempt(partition int32, f func(offset int64, a Attempt)) {
	for offset, a := range q.part(partition).attempts {
		f(offset, a)
	}
}

// DoneCount returns how many of a run of delayed records of the queue's topic are done.
func (q *Queue) DoneCount(d Delayed) int64 {
	done := &q.part(int32(d.Partition)).done
	return done.count(d.Offset) - done.count(d.Offset+int64(d.Count))
}

// DelayedOf iterates over the records of a topic that are not due yet by the fold's time, in
// no order.
func (s *State) DelayedOf(topic uint64) iter.Seq[Delayed] {
	return func(yield func(Delayed) bool) {
		for _, d := range s.delayed {
			if d.Topic == topic && !yield(d) {
				return
			}
		}
	}
}

// TimeAt returns the largest timestamp, in ms since 1970, of the batch that holds an offset;
// ok is false if none does.
func (s *State) TimeAt(t *Topic, partition int32, offset int64) (ms int64, ok bool) {
	p := &t.Partitions[partition]
	if offset < p.Start || offset >= p.End {
		return 0, false
	}
	bs := p.chunks[p.chunkOf(offset)].batches
	i := sort.Search(len(bs), func(i int) bool { return bs[i].base > offset }) - 1
	return bs[i].maxTime, true
}

// HasRecord tells whether the topic of a queue that exists has, or had, a record at an offset.
func (d *Draft) HasRecord(id uint64, partition uint32, offset int64) bool {
	end, ok := d.End(d.queue(id).topic, partition)
	return ok && offset < end
}

// QueueLeft returns how many records of a partition are not done in a queue that exists,
// the parked included.
func (d *Draft) QueueLeft(id uint64, partition uint32) int64 {
	q := d.queue(id)
	start := d.Start(q.topic, partition)
	end, _ := d.End(q.topic, partition)
	p := d.queuePartition(q, partition)
	all := done{floor: p.base.done.floor, above: slices.Clone(p.base.done.above)}
	all.raise(p.done.floor)
	for _, x := range p.done.above {
		all.add(x.from, x.to)
	}
	return end - start - all.count(start)
}

// QueueWindows returns, for each partition of a queue that exists, where the window of a
// new owner ends: so many records beyond what was handed out already.
func (d *Draft) QueueWindows(id, topic uint64, records int64) []int64 {
	q := d.queue(id)
	windows := make([]int64, d.topic(topic).partitions)
	for i := range windows {
		n := uint32(i)
		p := d.queuePartition(q, n)
		end, _ := d.End(topic, n)
		windows[i] = max(p.base.done.next(d.Start(topic, n)), p.doubt, min(p.window, end)) + records
	}
	return windows
}

// ParkedRecord is where one is.
type ParkedRecord struct {
	Partition uint32
	Offset    int64
}

// Parked returns up to limit records that are parked in a queue that exists, in order.
func (d *Draft) Parked(id uint64, limit int) (list []ParkedRecord) {
	q := d.queue(id)
	for n := range d.topic(q.topic).partitions {
		p, end, err := d.workedOn(id, n)
		if err != nil {
			continue
		}
		offsets := slices.Collect(maps.Keys(p.base.attempts))
		for o := range p.attempts {
			if _, both := p.base.attempts[o]; !both {
				offsets = append(offsets, o)
			}
		}
		slices.Sort(offsets)
		for _, o := range offsets {
			if a, _ := p.attempt(o); a.Parked && o < end && !p.isDone(o) && len(list) < limit {
				list = append(list, ParkedRecord{n, o})
			}
		}
	}
	return list
}
