package sim

import (
	"context"
	"slices"

	"github.com/simple-event-broker/seb"
)

// trim moves the start of a partition. Mostly it moves the start by a few records, so that some are left to
// read. Seldom it moves the start to the end of the partition, or tries an offset beyond the end.
func (c *client) trim(l *life, p place) {
	o := &op{kind: trims, topic: p.topic, partition: p.partition, before: c.starts[p] + seb.Offset(c.rng.IntN(5))}
	if chance(c.rng, 0.1) {
		o.before = c.ends[p] + seb.Offset(c.rng.IntN(3))
	}
	c.call(l, o, func(ctx context.Context, by caller) { by.trim(ctx, o) })
	c.learn(p, o)
}

// learn keeps the bounds of a partition that an answer names.
func (c *client) learn(p place, o *op) {
	if o.acked() || o.failure == seb.CodeOffsetOutOfRange {
		c.starts[p] = max(c.starts[p], o.start)
		c.ends[p] = max(c.ends[p], o.end)
	}
}

// mayTrim reports whether an operation may have moved the start of a partition.
func (o *op) mayTrim(p place) bool {
	return o.kind == trims && (place{o.topic, o.partition}) == p && (o.acked() || o.outcome == seb.Unknown)
}

// checkTrims expects the start of every partition to have moved only upwards, only to offsets that a
// client asked for, and at least as far as was acknowledged.
func (x *checker) checkTrims(ops []*op) {
	for _, o := range ops {
		if o.kind == trims && o.acked() && (o.start < o.before || o.end < o.start) {
			x.history.violate("StartAsAsked", "the answer names bounds that the trim can't have led to: %v", o)
		}
		p := x.final.partitions[place{o.topic, o.partition}]
		if p != nil && o.kind == trims && o.acked() && x.stays(o.topic) && p.start() < o.before {
			x.history.violate("StartAsAsked", "the start is %d at the end of the run: %v", p.start(), o)
		}
	}
	for at, p := range x.final.partitions {
		if at.topic == ages {
			continue // see tellRetention
		}
		for i, start := range p.starts {
			asked := func(o *op) bool { return o.mayTrim(at) && o.before == start }
			if !slices.ContainsFunc(ops, asked) {
				x.history.violate("StartAsAsked", "the start of %v was moved to %d, which nobody asked for", at, start)
			}
			if i > 0 && start < p.starts[i-1] {
				x.history.violate("StartAsAsked", "the start of %v was moved from %d to %d", at, p.starts[i-1], start)
			}
		}
	}
}

// checkOutOfRange checks a read that a broker refused: the offset of the read must be below a start that a
// client asked for, or beyond every end that an answer has named.
func (x *checker) checkOutOfRange(ops []*op, o *op) {
	p := place{o.topic, o.partition}
	at, ok := x.asked(o)
	switch {
	case !ok || at >= o.start && at <= o.end:
		x.history.violate("DenseOffsets", "the read was refused as out of range, but its offset was in range: %v", o)
	case at > o.end && at <= x.acknowledged(ops, p, o.call):
		x.history.violate("AckDurable", "the offset was refused, but had been acknowledged before the client asked for it: %v", o)
	case at < o.start && !slices.ContainsFunc(ops, func(t *op) bool { return t.mayTrim(p) && t.before > at && t.call <= o.ret }):
		x.history.violate("StartAsAsked", "the offset was refused as below the start, but no client asked for a start beyond it: %v", o)
	}
}
