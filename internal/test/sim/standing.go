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

// consumer is one from its creation to its end: each standing that it had.
type consumer struct {
	name    string
	was     []standing
	deleted bool // by itself; it also goes with its topic
}

// standing is where a consumer stands between two moves of it, as an answer tells it, or
// the log.
type standing struct {
	consumer string       // its name; "" in the answer to a commit
	version  string       // "" in an answer that tells none
	at       []seb.Offset // by partition; nil in the answer to a commit
	bounds   []bounds     // of the topic's partitions then

	moved seb.Offsets // by the move that brought it there, as the log has it
}

// move adds the move of a consumer, and what its topic is like then.
func (c *consumer) move(x *format.PositionsMoved, in *incarnation) {
	s := standing{consumer: c.name, version: fmt.Sprintf("%d.%d", x.Consumer, len(c.was)+1), moved: seb.Offsets{}}
	s.at = make([]seb.Offset, len(in.partitions))
	if n := len(c.was); n > 0 {
		copy(s.at, c.was[n-1].at)
	}
	for _, p := range x.Positions {
		s.at[p.Partition], s.moved[int32(p.Partition)] = seb.Offset(p.Offset), seb.Offset(p.Offset)
	}
	for i := range in.partitions {
		p := &in.partitions[i]
		s.bounds = append(s.bounds, bounds{p.start(), seb.Offset(len(p.ids))})
	}
	c.was = append(c.was, s)
}

// String tells a standing in a story.
func (s *standing) String() string {
	if s == nil {
		return "nowhere"
	}
	return fmt.Sprintf("%s %s%v of %v", s.consumer, s.version, s.at, s.bounds)
}

// position returns the next offset to read in a partition, which may have been added since.
func (s *standing) position(partition int) seb.Offset {
	if partition < len(s.at) {
		return s.at[partition]
	}
	return 0
}

// is tells whether an answer speaks of the standing, in which it may leave out things.
func (s *standing) is(told standing) bool {
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

// target returns what an operation that sets a consumer moves, given what the topic is
// like then, and whether it creates the consumer.
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
func (all truth) topicOf(consumer uint64) *incarnation {
	for _, in := range all {
		if in.consumers[consumer] != nil {
			return in
		}
	}
	return nil
}

// consumersAgain returns how many consumers have the name of one before them.
func (all truth) consumersAgain() (n int) {
	names := map[subject]bool{}
	for _, in := range all {
		for _, c := range in.consumers {
			names[subject{in.name, c.name}] = true
			n++
		}
	}
	return n - len(names)
}

// standings returns where all that had a name stood one after the other: nil where
// there was none.
func (all truth) standings(s subject) []*standing {
	was := []*standing{nil}
	for _, topic := range slices.Sorted(maps.Keys(all)) {
		in := all[topic]
		for _, id := range slices.Sorted(maps.Keys(in.consumers)) {
			c := in.consumers[id]
			if in.name != s.topic || c.name != s.consumer {
				continue
			}
			for i := range c.was {
				was = append(was, &c.was[i])
			}
			if c.deleted || in.deleted {
				was = append(was, nil)
			}
		}
	}
	return was
}

// compareConsumers expects a recovery to know the consumers of a topic as the commits
// left them.
func (s *simulation) compareConsumers(b *seb.Broker, topic string, in *incarnation) {
	var left []standing
	for _, c := range in.consumers {
		if !c.deleted {
			left = append(left, c.was[len(c.was)-1])
		}
	}
	slices.SortFunc(left, func(a, b standing) int { return cmp.Compare(a.consumer, b.consumer) })
	var known []standing
	for info, err := range b.Consumers(context.Background(), topic, seb.ListOptions{}) {
		if err != nil {
			s.history.violate("LossIsLoud", "a recovery in the end knows no consumers of %s: %v", topic, err)
			return
		}
		known = append(known, standingOf(info))
	}
	if !slices.EqualFunc(left, known, func(l, k standing) bool { return l.consumer == k.consumer && l.is(k) }) {
		s.history.violate("AckDurable", "a recovery in the end knows consumers of %s as %v, and should as %v", topic, known, left)
	}
}
