package state

import (
	"errors"
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
)

// ErrDiscontinued says that a state does not follow from an earlier one.
var ErrDiscontinued = errors.New("the state does not follow from the state before it")

// Continues returns an error that wraps [ErrDiscontinued] unless s, which is of a later slot,
// can follow from old: no counter fell, no partition ends earlier, and the batch that was appended last to each
// partition of old is the same in s, if s still knows that batch. A broker calls Continues when
// it loads a checkpoint: it has not read the commits between the two states, so it can't
// compare their hashes. Comparing only the last batch of each partition is enough: if two logs
// differ from some slot on, the batches that were appended from that slot on differ, too.
func (s *State) Continues(old *State) error {
	if s.seq < old.seq || s.level < old.level || s.time < old.time || s.topics.next < old.topics.next || s.dataFloor < old.dataFloor {
		return fmt.Errorf("%w: the state has slot %d, time %d, next topic id %d and data floor %d; the state before it has slot %d, time %d, next topic id %d and data floor %d",
			ErrDiscontinued, s.seq, s.time, s.topics.next, s.dataFloor, old.seq, old.time, old.topics.next, old.dataFloor)
	}
	keys := s.keys.continues(&old.keys, func(was, now *Key) bool { return was.Hash == now.Hash })
	consumers := s.consumers.continues(&old.consumers, func(was, now *Consumer) bool { return was.Version <= now.Version })
	if err := errors.Join(keys, consumers, s.continuesQueues(old), s.continuesDelayed(old), s.continuesSpending(old)); err != nil {
		return err
	}
	for id, was := range old.topics.byID {
		now := s.topics.byID[id]
		if now == nil {
			continue // the topic was deleted
		}
		if now.Name != was.Name || len(now.Partitions) < len(was.Partitions) {
			return fmt.Errorf("%w: topic %d was %q with %d partitions and is now %q with %d",
				ErrDiscontinued, id, was.Name, len(was.Partitions), now.Name, len(now.Partitions))
		}
		for i := range was.Partitions {
			if err := s.continuesPartition(old, now, was, format.Partition(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *State) continuesPartition(old *State, now, was *Topic, partition format.Partition) error {
	end := was.Partitions[partition].End
	p := &now.Partitions[partition]
	if start := was.Partitions[partition].Start; p.End < end || p.Start < start {
		return fmt.Errorf("%w: partition %d of topic %q went from offset %d to %d and now goes from offset %d to %d", ErrDiscontinued, partition, was.Name, start, end, p.Start, p.End)
	}
	before, known := old.lastAppended(was, partition)
	if !known {
		return nil
	}
	var after appended
	if p.End == end {
		after, known = s.lastAppended(now, partition)
	} else {
		after, known = s.appendedAt(now, partition, end)
	}
	if known && before != after {
		return fmt.Errorf("%w: offset %d of partition %d of topic %q is not in the same batch as before", ErrDiscontinued, end-1, partition, was.Name)
	}
	return nil
}

// lastAppended returns the batch that was appended to a partition last. known is false if the state does not know it.
func (s *State) lastAppended(t *Topic, partition format.Partition) (a appended, known bool) {
	p := &t.Partitions[partition]
	if p.appended.records > 0 {
		return p.appended, true
	}
	return s.appendedAt(t, partition, p.End)
}

// appendedAt returns the batch that was appended to a partition when it got the end offset end. known is false if the batch is not in
// the state, or no longer as it was appended.
func (s *State) appendedAt(t *Topic, partition format.Partition, end format.Offset) (a appended, known bool) {
	found := s.Locate(nil, t, partition, end-1, 1, 1)
	if len(found) == 0 || found[0].Segment != nil {
		return appended{}, false
	}
	return appended{records: int64(end - found[0].Base), crc: found[0].CRC}, found[0].End() == end
}
