package sim

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

// consumer is a consumer from its creation to its end, with its position history.
type consumer struct {
	name    string
	history []positions
	deleted bool // by a request to delete it; false if it was deleted with its topic
}

// positions are a consumer's positions between two of its moves (changes of positions). They come from the
// log, or from a broker's answer to an operation on the consumer.
type positions struct {
	consumer string       // the consumer's name; "" if they come from the answer to a commit of positions
	version  string       // "" if the answer has no version
	at       []seb.Offset // by partition; nil if they come from the answer to a commit of positions
	bounds   []bounds     // start and end of each partition of the topic, just after the move or in the answer

	moved seb.Offsets // the positions that the last move set; nil unless they come from the log
}

// move adds the positions after a move to the consumer's history, with the bounds of the topic's partitions.
func (c *consumer) move(x *format.PositionsMoved, in *incarnation) {
	s := positions{consumer: c.name, version: fmt.Sprintf("%d.%d", x.Consumer, len(c.history)+1), moved: seb.Offsets{}}
	s.at = make([]seb.Offset, len(in.partitions))
	if n := len(c.history); n > 0 {
		copy(s.at, c.history[n-1].at)
	}
	for _, p := range x.Positions {
		s.at[p.Partition], s.moved[int32(p.Partition)] = p.Offset, p.Offset
	}
	for i := range in.partitions {
		p := &in.partitions[i]
		s.bounds = append(s.bounds, bounds{p.start(), seb.Offset(len(p.ids))})
	}
	c.history = append(c.history, s)
}

// String describes positions in a story of the run.
func (s *positions) String() string {
	if s == nil {
		return "nowhere"
	}
	return fmt.Sprintf("%s %s%v of %v", s.consumer, s.version, s.at, s.bounds)
}

// position returns the consumer's position in a partition: the next offset to read. It is 0 in a
// partition that the topic got after the move to these positions.
func (s *positions) position(partition int) seb.Offset {
	if partition < len(s.at) {
		return s.at[partition]
	}
	return 0
}

// is reports whether the positions in an answer agree with s. An answer may leave out the version or the
// offsets.
func (s *positions) is(told positions) bool {
	if told.version != "" && told.version != s.version || told.at != nil && len(told.at) < len(s.at) {
		return false
	}
	for p, at := range told.at {
		if at != s.position(p) {
			return false
		}
	}
	return true
}

// target returns the positions that an operation sets, given the bounds of the topic's
// partitions and whether the operation creates the consumer.
func (o *op) target(bs []bounds, creates bool) seb.Offsets {
	to := seb.Offsets{}
	for p, b := range bs {
		if creates || o.to != "offsets" {
			to[int32(p)] = b.start
		}
		if o.to == "latest" {
			to[int32(p)] = b.end
		}
	}
	if o.to == "offsets" {
		maps.Copy(to, o.offsets)
	}
	return to
}

// topicOf returns the topic of a consumer.
func (all truth) topicOf(consumer format.ConsumerID) *incarnation {
	for _, in := range all {
		if in.consumers[consumer] != nil {
			return in
		}
	}
	return nil
}

// consumersAgain returns how many consumers have the name of an earlier consumer of the topic.
func (all truth) consumersAgain() (n int) {
	names := map[consumerRef]bool{}
	for _, in := range all {
		for _, c := range in.consumers {
			names[consumerRef{in.name, c.name}] = true
			n++
		}
	}
	return n - len(names)
}

// positionHistory returns the positions of all consumers that had a name, in the order of the log. The first
// entry is nil: the positions before the first such consumer was created. Each deletion of a consumer adds
// another nil.
func (all truth) positionHistory(s consumerRef) []*positions {
	history := []*positions{nil}
	for _, topic := range slices.Sorted(maps.Keys(all)) {
		in := all[topic]
		for _, id := range slices.Sorted(maps.Keys(in.consumers)) {
			c := in.consumers[id]
			if in.name != s.topic || c.name != s.consumer {
				continue
			}
			for i := range c.history {
				history = append(history, &c.history[i])
			}
			if c.deleted || in.deleted {
				history = append(history, nil)
			}
		}
	}
	return history
}

// compareConsumers expects a recovered broker to know the consumers of a topic as the commits left
// them.
func (s *simulation) compareConsumers(b *seb.Broker, topic string, in *incarnation) {
	var left []positions
	for _, c := range in.consumers {
		if !c.deleted {
			left = append(left, c.history[len(c.history)-1])
		}
	}
	slices.SortFunc(left, func(a, b positions) int { return cmp.Compare(a.consumer, b.consumer) })
	var known []positions
	for info, err := range b.Consumers(context.Background(), topic, seb.ListOptions{}) {
		if err != nil {
			s.history.violate("LossIsLoud", "a recovery at the end of the run can't list the consumers of %s: %v", topic, err)
			return
		}
		known = append(known, positionsOf(info))
	}
	if !slices.EqualFunc(left, known, func(l, k positions) bool { return l.consumer == k.consumer && l.is(k) }) {
		s.history.violate("AckDurable", "a recovery at the end of the run has for %s the consumers %v, want %v", topic, known, left)
	}
}
