package state

import (
	"cmp"
	"iter"
	"slices"
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

// Doubt returns where the records of a partition end that an owner which was lost may have
// handed out once.
func (q *Queue) Doubt(partition int32) int64 { return q.part(partition).doubt }

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
	a, sure := q.part(partition).attempt(offset)
	return counts(a, sure, number)
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
	c := Counts{Left: end - start - p.done.count(start), First: p.done.next(start), Parked: int64(p.parked.count)}
	if p.parked.count == len(p.attempts) {
		return c
	}
	for _, a := range p.attempts {
		if !a.Parked && a.NotBefore > now {
			c.Later++
		}
	}
	return c
}

// ParkedCount returns how many records of the queue are parked.
func (q *Queue) ParkedCount() (n int64) {
	for i := range q.partitions {
		n += int64(q.partitions[i].parked.count)
	}
	return n
}

// Parked iterates over the records that are parked, by partition and offset, from a place on.
func (q *Queue) Parked(partition uint32, offset int64) iter.Seq2[ParkedRecord, Attempt] {
	return func(yield func(ParkedRecord, Attempt) bool) {
		for i := int(partition); i < len(q.partitions); i++ {
			p := &q.partitions[i]
			for o := range p.parked.from(offset, cmp.Compare[int64]) {
				if !yield(ParkedRecord{uint32(i), o}, p.attempts[o]) {
					return
				}
			}
			offset = 0
		}
	}
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
	return done.count(d.Offset) - done.count(d.End())
}

// Listed returns the offsets from from to to-1 that are not done and of which the log knows
// a delivery by itself, ascending.
func (q *Queue) Listed(partition int32, from, to int64) (offsets []int64) {
	attempts := q.part(partition).attempts
	if to-from > int64(len(attempts)) {
		for o := range attempts {
			if from <= o && o < to {
				offsets = append(offsets, o)
			}
		}
		slices.Sort(offsets)
		return offsets
	}
	for o := from; o < to; o++ {
		if _, listed := attempts[o]; listed {
			offsets = append(offsets, o)
		}
	}
	return offsets
}

// Uncertain returns how many of the offsets from from to to-1 are not done, and of which
// nothing is known by itself.
func (q *Queue) Uncertain(partition int32, from, to int64) int64 {
	if from >= to {
		return 0
	}
	d := &q.part(partition).done
	return to - from - (d.count(from) - d.count(to)) - int64(len(q.Listed(partition, from, to)))
}
