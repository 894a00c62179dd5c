package state

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// DelayedMax bounds the runs of delayed records in a log. A log that exceeds this bound is
// damaged.
const DelayedMax = 1 << 24

// Delayed is a run of Count records, the first of which has the offset Offset. Queues hand out
// these records only when they are due; readers of the topic see them at once. No record is in
// two runs.
type Delayed struct {
	Due       int64 // the log's time in microseconds
	Topic     format.TopicID
	Offset    format.Offset
	Partition format.Partition
	Count     uint32
}

// End returns the offset after the last record.
func (d Delayed) End() format.Offset { return d.Offset + format.Offset(d.Count) }

func compareDelayed(a, b Delayed) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}

// delayed is a heap, ordered by compareDelayed: the run that is due first is in front.
type delayed []Delayed

func (d delayed) Len() int           { return len(d) }
func (d delayed) Less(i, j int) bool { return compareDelayed(d[i], d[j]) < 0 }
func (d delayed) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }

// Push implements heap.Interface.
func (d *delayed) Push(x any) { *d = append(*d, x.(Delayed)) }

// Pop implements heap.Interface.
func (d *delayed) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// due returns how many runs are due at the given time in the part of the heap whose root is at
// index i. It visits only these runs and their children.
func (d delayed) due(time int64, i int) int {
	if i >= len(d) || d[i].Due > time {
		return 0
	}
	return 1 + d.due(time, 2*i+1) + d.due(time, 2*i+2)
}

const delayedMemory = 2 * int64(unsafe.Sizeof(Delayed{})) // a run is both in the state's list and in the topic's list

// Delayed returns the runs that are not due by the log's time, sorted by compareDelayed.
func (s *State) Delayed() []Delayed { return s.delayed.sorted() }

// DelayedOf iterates over the runs of a topic that are not due by the log's time, in no order.
func (s *State) DelayedOf(topic format.TopicID) iter.Seq[Delayed] {
	return func(yield func(Delayed) bool) {
		t := s.topics.byID[topic]
		if t == nil {
			return
		}
		for _, d := range t.delayed {
			if !yield(d) {
				return
			}
		}
	}
}

func (d delayed) sorted() []Delayed { return slices.SortedFunc(slices.Values(d), compareDelayed) }

func (s *State) delay(x *format.RecordsDelayed) {
	if x.Due <= s.time {
		return // already due
	}
	d := Delayed{Due: x.Due, Topic: x.Topic, Offset: x.Offset, Partition: x.Partition, Count: x.Count}
	heap.Push(&s.delayed, d)
	heap.Push(&s.topics.byID[x.Topic].delayed, d)
	s.memory += delayedMemory
}

// expireDelayed forgets the runs that are due. A run of trimmed records stays until it is due.
func (s *State) expireDelayed() {
	for len(s.delayed) > 0 && s.delayed[0].Due <= s.time {
		t := s.topics.byID[s.delayed[0].Topic]
		heap.Pop(&s.delayed)
		heap.Pop(&t.delayed) // the same run: the run that is due first in the log is also the first one of its topic
		t.delayed = shrunkList(t.delayed)
		s.memory -= delayedMemory
	}
	s.delayed = shrunkList(s.delayed)
}

// dropDelayed forgets the runs of a topic that is deleted.
func (s *State) dropDelayed(topic format.TopicID) {
	before := len(s.delayed)
	s.delayed = slices.DeleteFunc(s.delayed, func(d Delayed) bool { return d.Topic == topic })
	s.delayed = shrunkList(s.delayed)
	heap.Init(&s.delayed)
	s.memory -= int64(before-len(s.delayed)) * delayedMemory
}

// DelayedCount returns how many runs are not due at a time.
func (s *State) DelayedCount(at int64) int { return len(s.delayed) - s.delayed.due(at, 0) }

// draftDelayed has the runs of delayed records that a commit under construction adds.
type draftDelayed struct {
	count int
	runs  map[batchKey]*done // by partition: the set of the offsets of the delayed records
	due   int                // how many runs of the state are due at the commit's time
	knows bool               // whether due is set
}

// DelayedCount returns the number of runs of delayed records after the commit.
func (d *Draft) DelayedCount() int {
	if x := &d.delayed; !x.knows {
		x.due, x.knows = d.s.delayed.due(d.time, 0), true
	}
	return len(d.s.delayed) - d.delayed.due + d.delayed.count
}

func (d *Draft) takeDelay(x *format.RecordsDelayed) error {
	key := batchKey{x.Topic, x.Partition}
	end, ok := d.End(x.Topic, x.Partition)
	runs := d.delayed.runs[key]
	if runs == nil {
		// With this floor, the check below refuses records of earlier commits: a commit can delay
		// only records that it appends.
		runs = &done{floor: d.s.end(x.Topic, x.Partition)}
	}
	if !ok || x.Count == 0 || x.Offset < 0 || int64(x.Count) > int64(end-x.Offset) || runs.overlaps(x.Offset, x.End()) || x.Due < 0 || d.DelayedCount() >= DelayedMax {
		return fmt.Errorf("%w: %d records of partition %d of topic %d, the first at offset %d, can't be delayed until %d µs since 1970: the commit does not append them, they are delayed already, or there are too many delays", ErrNonsense, x.Count, x.Partition, x.Topic, x.Offset, x.Due)
	}
	if d.delayed.runs == nil {
		d.delayed.runs = map[batchKey]*done{}
	}
	runs.add(x.Offset, x.End())
	d.delayed.runs[key] = runs
	if x.Due > d.time {
		d.delayed.count++
	}
	return nil
}

// end returns the next offset of a partition; 0 if the partition doesn't exist.
func (s *State) end(topic format.TopicID, partition format.Partition) format.Offset {
	if t := s.topics.byID[topic]; t != nil && int(partition) < len(t.Partitions) {
		return t.Partitions[partition].End
	}
	return 0
}

// appendDelayed encodes a list, which must be sorted by compareDelayed.
func appendDelayed(b []byte, list []Delayed) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	var due int64
	for _, d := range list {
		b = binary.AppendUvarint(b, uint64(d.Due-due))
		b = binary.AppendUvarint(b, uint64(d.Topic))
		b = binary.AppendUvarint(b, uint64(d.Partition))
		b = binary.AppendUvarint(b, uint64(d.Offset))
		b = binary.AppendUvarint(b, uint64(d.Count))
		due = d.Due
	}
	return b
}

func (s *State) decodeDelayed(r *reader) {
	n := r.count(5)
	if n > DelayedMax {
		r.fail("the snapshot's list of delayed records has %d entries; at most %d are allowed", n, DelayedMax)
	}
	var last Delayed
	for range n {
		x := Delayed{Due: last.Due + r.int64(), Topic: format.TopicID(r.uvarint()), Partition: format.Partition(r.max(math.MaxInt32)), Offset: format.Offset(r.int64()), Count: uint32(r.max(1<<32 - 1))}
		if r.err == nil && (x.Count == 0 || int64(x.Count) > int64(s.end(x.Topic, x.Partition)-x.Offset) || x.Due <= s.time || compareDelayed(last, x) >= 0) {
			r.fail("the snapshot's list of delayed records has an invalid entry: %d records from offset %d on in partition %d of topic %d, due at %d µs since 1970: the entry has no records, goes beyond the end of the partition, is due already, or is out of order", x.Count, x.Offset, x.Partition, x.Topic, x.Due)
		}
		if r.err != nil {
			return
		}
		s.delayed = append(s.delayed, x) // a sorted list is a valid heap
		t := s.topics.byID[x.Topic]      // not nil: without the topic, the check above fails
		t.delayed = append(t.delayed, x)
		last = x
	}
	s.memory += int64(len(s.delayed)) * delayedMemory
}

// continuesDelayed does for delayed records what [State.Continues] does. It returns an error
// unless both states have the same runs. Two kinds of runs may be in one state only: runs of
// old that are due by now or whose topic was deleted, and runs of s whose records were appended
// after old.
func (s *State) continuesDelayed(old *State) error {
	var was, now []Delayed
	for _, x := range old.Delayed() {
		if x.Due > s.time && s.topics.byID[x.Topic] != nil {
			was = append(was, x)
		}
	}
	for _, x := range s.Delayed() {
		if x.Offset < old.end(x.Topic, x.Partition) {
			now = append(now, x)
		}
	}
	if !slices.Equal(was, now) {
		return fmt.Errorf("%w: the runs of delayed records that must be in both states differ: the state has %d such runs, and the state before it has %d", ErrDiscontinued, len(now), len(was))
	}
	return nil
}
