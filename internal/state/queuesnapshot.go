package state

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
)

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendQueues(b []byte, next uint64, list []Queue) []byte {
	b = binary.AppendUvarint(b, next)
	b = binary.AppendUvarint(b, uint64(len(list)))
	for i := range list {
		q := &list[i]
		b = binary.AppendUvarint(b, uint64(q.ID))
		b = binary.AppendUvarint(b, uint64(q.Topic))
		b = appendText(b, q.Name)
		b = binary.AppendUvarint(b, uint64(q.Created))
		b = binary.AppendUvarint(b, uint64(q.Config.LeaseMS))
		b = binary.AppendUvarint(b, uint64(q.Config.BackoffMinMS))
		b = binary.AppendUvarint(b, uint64(q.Config.BackoffMaxMS))
		b = binary.AppendUvarint(b, uint64(q.Config.Attempts))
		b = append(b, bits(q.Config.Ordered, q.Config.Paused, q.Owned, q.Push != nil))
		b = appendText(b, q.Config.DeadLetterTopic)
		b = binary.AppendUvarint(b, uint64(q.Epoch))
		b = appendText(b, q.Address)
		b = binary.AppendUvarint(b, uint64(q.Seen))
		b = appendPush(b, q.Push)
		b = binary.AppendUvarint(b, uint64(len(q.partitions)))
		for j := range q.partitions {
			b = appendQueuePartition(b, &q.partitions[j])
		}
	}
	return b
}

func bits(flags ...bool) (b byte) {
	for i, f := range flags {
		if f {
			b |= 1 << i
		}
	}
	return b
}

func appendQueuePartition(b []byte, p *queuePartition) []byte {
	b = binary.AppendUvarint(b, uint64(p.done.floor))
	b = binary.AppendUvarint(b, uint64(len(p.done.above)))
	at := p.done.floor
	for _, s := range p.done.above {
		b = binary.AppendUvarint(b, uint64(s.from-at))
		b = binary.AppendUvarint(b, uint64(s.to-s.from))
		at = s.to
	}
	b = binary.AppendUvarint(b, uint64(p.dispatchLimit))
	b = binary.AppendUvarint(b, uint64(p.uncertainEnd))
	b = binary.AppendUvarint(b, uint64(len(p.attempts)))
	for _, o := range slices.Sorted(maps.Keys(p.attempts)) {
		a := p.attempts[o]
		b = binary.AppendUvarint(b, uint64(o))
		b = binary.AppendUvarint(b, uint64(a.Number))
		b = binary.AppendUvarint(b, uint64(a.Redriven))
		b = binary.AppendUvarint(b, uint64(a.NotBefore))
		b = append(b, bits(a.DeadLetter))
		b = appendText(b, a.Reason)
	}
	return b
}

func (s *State) decodeQueue(r *reader) *Queue {
	q := decodeQueueHead(r)
	n := r.count(5)
	t := s.topics.byID[q.Topic]
	if r.err == nil && (t == nil || n > len(t.Partitions)) {
		r.fail("queue %d has %d partitions, which are more than topic %d has", q.ID, n, q.Topic)
	}
	for i := 0; i < n && r.err == nil; i++ {
		q.partitions = append(q.partitions, decodeQueuePartition(r, t.Partitions[i].End, q.Owned))
	}
	if r.err == nil && n > 0 && q.partitions[n-1].untouched() {
		r.fail("the list of partitions of queue %d ends with one that was never touched", q.ID)
	}
	return q
}

// decodeQueueHead reads a queue without its partitions.
func decodeQueueHead(r *reader) *Queue {
	q := &Queue{ID: format.QueueID(r.uvarint()), Topic: format.TopicID(r.uvarint()), Name: r.text(), Created: r.int64()}
	q.Config = format.QueueConfig{LeaseMS: r.int64(), BackoffMinMS: r.int64(), BackoffMaxMS: r.int64(), Attempts: uint32(r.max(1<<32 - 1))}
	flags := r.byte()
	q.Config.Ordered, q.Config.Paused, q.Owned = flags&1 != 0, flags&2 != 0, flags&4 != 0
	q.Config.DeadLetterTopic = r.text()
	q.Epoch, q.Address, q.Seen = format.Epoch(r.uvarint()), r.text(), r.int64()
	if flags&8 != 0 {
		q.Push = decodePush(r)
	}
	switch {
	case !soundQueue(&format.QueueSet{Name: q.Name, Config: q.Config}) || flags > 15:
		r.fail("queue %d %q has the invalid flags %#x or the invalid config %+v", q.ID, q.Name, flags, q.Config)
	case len(q.Address) > AddressBytesMax || q.Owned && q.Epoch == 0 || !q.Owned && q.Address != "":
		r.fail("queue %d has an invalid owner: epoch %d, address %q", q.ID, q.Epoch, q.Address)
	}
	return q
}

func decodeQueuePartition(r *reader, end format.Offset, owned bool) (p queuePartition) {
	p.done.floor = format.Offset(r.int64())
	at := p.done.floor
	for range r.count(2) {
		gap, count := r.int64(), r.int64()
		x := span{from: at + format.Offset(gap), to: at + format.Offset(gap) + format.Offset(count)}
		if gap == 0 || count == 0 || x.from < 0 || x.to < x.from {
			r.fail("invalid run of %d done records, %d records after the previous run", count, gap)
			return p
		}
		at = x.to
		p.done.above = append(p.done.above, x)
	}
	p.dispatchLimit, p.uncertainEnd = format.Offset(r.int64()), format.Offset(r.int64())
	if at > end || p.uncertainEnd > end || p.dispatchLimit > 0 && !owned {
		r.fail("a queue can't have done records up to offset %d, an uncertain range up to offset %d and the dispatch limit %d in a partition that ends at offset %d (owned: %t)", at, p.uncertainEnd, p.dispatchLimit, end, owned)
	}
	last := format.Offset(-1)
	for range r.count(6) {
		o := format.Offset(r.int64())
		a := Attempt{Number: uint32(r.max(1<<32 - 1)), Redriven: uint32(r.max(1<<32 - 1)), NotBefore: r.int64()}
		flags := r.byte()
		a.DeadLetter, a.Reason = flags == 1, r.text()
		if flags > 1 || o <= last || o >= end || p.done.has(o) || !a.sound() {
			r.fail("attempt %d of offset %d is invalid", a.Number, o)
		}
		if r.err != nil {
			return p
		}
		last = o
		p.set(o, a)
	}
	return p
}

// sound reports whether a delivery that was decoded is possible.
func (a Attempt) sound() bool {
	return a.Number > 0 && a.Redriven <= a.Number && len(a.Reason) <= ReasonBytesMax
}

// continuesQueues does for queues what [State.Continues] does. It also returns an error if a
// record was done in old and is not done in s.
func (s *State) continuesQueues(old *State) error {
	err := s.queues.continues(&old.queues, func(was, now *Queue) bool { return was.Epoch <= now.Epoch })
	if err != nil {
		return err
	}
	for id, now := range s.queues.byID {
		was := old.queues.byID[id]
		if was == nil {
			continue
		}
		for i := range was.partitions {
			if p := now.part(format.Partition(i)); !p.done.holds(&was.partitions[i].done) {
				return fmt.Errorf("%w: queue %d has records in partition %d that were done and are no longer done", ErrDiscontinued, id, i)
			}
		}
	}
	return nil
}
