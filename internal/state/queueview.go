package state

import (
	"cmp"
	"iter"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
)

// The methods below read a queue. Their results share memory with the state, so callers must
// hold the state's lock while they use the results.

// part returns the queue's work in a partition. Callers must not change the result.
func (q *Queue) part(partition format.Partition) *queuePartition {
	if int(partition) < len(q.partitions) {
		return &q.partitions[partition]
	}
	return &queuePartition{}
}

// NextUndone returns the smallest offset of a record that is not done, from the given offset
// on.
func (q *Queue) NextUndone(partition format.Partition, offset format.Offset) format.Offset {
	return q.part(partition).done.next(offset)
}

// DispatchLimit returns the offset before which the owner may hand out records for the first
// time.
func (q *Queue) DispatchLimit(partition format.Partition) format.Offset {
	return q.part(partition).dispatchLimit
}

// UncertainEnd returns the end of the uncertain range of a partition: an earlier owner may have
// handed out each of the records below that offset once.
func (q *Queue) UncertainEnd(partition format.Partition) format.Offset {
	return q.part(partition).uncertainEnd
}

// Last returns the last delivery of a record according to the log; the record must not be done.
// listed reports whether the state keeps an Attempt for the record. For a record without an
// Attempt, a.Number is 1 in the uncertain range, where an earlier owner may have handed out the
// record, and 0 elsewhere.
func (q *Queue) Last(partition format.Partition, offset format.Offset) (a Attempt, listed bool) {
	p := q.part(partition)
	_, listed = p.attempts[offset]
	a, _ = p.attempt(offset)
	return a, listed
}

// IsLast reports whether a delivery with that number is the last one of its record, and the
// record was not redriven after that delivery. The record must not be done. Workers may answer
// only such a delivery.
func (q *Queue) IsLast(partition format.Partition, offset format.Offset, number uint32) bool {
	a, sure := q.part(partition).attempt(offset)
	return counts(a, sure, number)
}

// Counts says how much work a queue has in one partition.
type Counts struct {
	Left        int64 // records that are not done, including dead letters
	DeadLetters int64
	Later       int64         // records that were put back and must not be handed out yet
	First       format.Offset // the first offset that is neither done nor a dead letter
}

// Count counts the work of the queue in a partition that has the offsets [start, end). now is
// in microseconds since 1970.
func (q *Queue) Count(partition format.Partition, start, end format.Offset, now int64) Counts {
	p := q.part(partition)
	c := Counts{Left: int64(end-start) - p.done.count(start), First: p.done.next(start), DeadLetters: int64(p.deadLetters.count)}
	for o := range p.deadLetters.from(c.First, cmp.Compare[format.Offset]) {
		if o > c.First {
			break
		}
		c.First = p.done.next(o + 1)
	}
	if p.deadLetters.count == len(p.attempts) {
		return c
	}
	for _, a := range p.attempts {
		if !a.DeadLetter && a.NotBefore > now {
			c.Later++
		}
	}
	return c
}

// DeadLetterCount returns the number of dead letters of the queue.
func (q *Queue) DeadLetterCount() (n int64) {
	for i := range q.partitions {
		n += int64(q.partitions[i].deadLetters.count)
	}
	return n
}

// DeadLetters iterates over the dead letters of the queue, sorted by partition and offset,
// beginning at the given partition and offset.
func (q *Queue) DeadLetters(partition format.Partition, offset format.Offset) iter.Seq2[DeadLetter, Attempt] {
	return func(yield func(DeadLetter, Attempt) bool) {
		for i := int(partition); i < len(q.partitions); i++ {
			p := &q.partitions[i]
			for o := range p.deadLetters.from(offset, cmp.Compare[format.Offset]) {
				if !yield(DeadLetter{format.Partition(i), o}, p.attempts[o]) {
					return
				}
			}
			offset = 0
		}
	}
}

// EachAttempt calls f for each listed record of a partition (see [Queue.Last]), in no order.
func (q *Queue) EachAttempt(partition format.Partition, f func(offset format.Offset, a Attempt)) {
	for offset, a := range q.part(partition).attempts {
		f(offset, a)
	}
}

// DoneCount returns how many records of d are done. d is a run of delayed records in the
// queue's topic.
func (q *Queue) DoneCount(d Delayed) int64 {
	done := &q.part(d.Partition).done
	return done.count(d.Offset) - done.count(d.End())
}

// Listed returns the offsets in [from, to) of listed records (see [Queue.Last]), ascending.
func (q *Queue) Listed(partition format.Partition, from, to format.Offset) (offsets []format.Offset) {
	attempts := q.part(partition).attempts
	if int64(to-from) > int64(len(attempts)) {
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

// Uncertain returns how many of the records in [from, to) are neither done nor listed (see
// [Queue.Last]).
func (q *Queue) Uncertain(partition format.Partition, from, to format.Offset) int64 {
	if from >= to {
		return 0
	}
	d := &q.part(partition).done
	return int64(to-from) - (d.count(from) - d.count(to)) - int64(len(q.Listed(partition, from, to)))
}
