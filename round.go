package seb

import (
	"context"
	"math/rand/v2"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// round has the offsets of a consumer's [Follower] if the topic has too many partitions for a
// [Bookmark]. It keeps offsets only of partitions that were read and not committed since; in
// other partitions the next offset is the consumer's position in the state.
type round struct {
	consumer string
	id       format.ConsumerID // the consumer's id, since another consumer may get the name later; 0 before inState sets it
	ahead    map[int]Offset
	checked  bool // true once every partition was checked
}

// roundStep is how many partitions are checked each time that the state is locked.
const roundStep = 1024

// round returns a follower of all partitions of a topic that has more than FollowPartitionsMax.
// If the consumer does not exist, round creates it.
func (c *Consumer) round(ctx context.Context, topic TopicID, partitions int) (*Follower, error) {
	if _, err := c.describe(); CodeOf(err) == CodeConsumerNotFound {
		if _, _, err := c.Create(ctx); err != nil {
			return nil, err // err has the outcome of the creation
		}
	}
	f := &Follower{
		b: c.b, topic: c.topic, id: topic, only: AllPartitions,
		turn: rand.N(partitions), round: &round{consumer: c.name, ahead: map[int]Offset{}},
	}
	if err := f.inRange(ctx); err != nil {
		return nil, err
	}
	f.round.checked = true
	return f, nil
}

// ready does what [Follower.ready] does. The first call checks every partition. Later calls check roundStep
// partitions at a time, and stop when one of these has records.
func (r *round) ready(f *Follower) (int, error) {
	found, count := -1, 1
	for k := 0; k < count && (!r.checked || found < 0); k += roundStep {
		at, n, err := r.step(f, k)
		if err != nil {
			return -1, err
		}
		count = n
		if found < 0 {
			found = at
		}
	}
	return found, nil
}

// step checks up to roundStep partitions, the first of which is k places after f.turn. found is the index
// of the first partition that has records, -1 if none has any. count is the number of the topic's partitions.
func (r *round) step(f *Follower, k int) (found, count int, err error) {
	f.b.engine.View(func(s *state.State) { found, count, err = r.stepIn(s, f, k) })
	return found, count, err
}

func (r *round) stepIn(s *state.State, f *Follower, k int) (found, count int, _ error) {
	t, c, err := r.inState(s, f)
	if err != nil {
		return -1, 0, err
	}
	count, found = len(t.Partitions), -1
	for end := min(k+roundStep, count); k < end; k++ {
		i := (f.turn + k) % count
		p, at := &t.Partitions[i], r.offset(c, i)
		switch {
		case at < p.Start || at > p.End:
			return -1, 0, change.OutOfRange(f.topic, format.Partition(i), at, p.Start, p.End)
		case found < 0 && at < p.End:
			found = i
		}
	}
	return found, count, nil
}

// inState returns the topic and the consumer in the state. It fails unless the consumer is the
// one that the first call of inState found.
func (r *round) inState(s *state.State, f *Follower) (*state.Topic, *state.Consumer, error) {
	t := s.TopicByID(f.id)
	if t == nil {
		return nil, nil, change.TopicDeleted(f.topic)
	}
	c := s.Consumer(f.id, r.consumer)
	if c == nil || r.id != 0 && r.id != c.ID {
		return nil, nil, change.ConsumerNotFound(f.topic, r.consumer)
	}
	r.id = c.ID
	return t, c, nil
}

// offset returns the next offset to read in partition i.
func (r *round) offset(c *state.Consumer, i int) Offset {
	at := c.Position(format.Partition(i))
	if ahead, ok := r.ahead[i]; ok && ahead > at {
		return ahead
	}
	delete(r.ahead, i)
	return at
}

// next returns the next offset to read in partition i. If the consumer was deleted, it returns 0, and
// the next call of ready fails.
func (r *round) next(f *Follower, i int) (offset Offset) {
	f.b.engine.View(func(s *state.State) {
		if _, c, err := r.inState(s, f); err == nil {
			offset = r.offset(c, i)
		}
	})
	return offset
}
