package sim

import (
	"slices"

	"github.com/simple-event-broker/seb"
)

// appendIf appends on condition that the partition ends where the client believes that it ends. After a
// conflict it may try again with the end that the conflict names.
func (c *client) appendIf(l *life, p place) {
	for range pick(c.rng, 1, 2, 3) {
		end := c.ends[p]
		if chance(c.rng, 0.2) {
			end = max(0, end+seb.Offset(c.rng.IntN(6)-3))
		}
		o := &op{kind: appends, topic: p.topic, partition: p.partition, ifOffset: &end}
		c.deliver(l, o, "", c.compose(o))
		if !o.conflicts() {
			return
		}
		c.ends[p] = max(c.ends[p], o.end)
	}
}

// conflicts reports whether an append was refused because of its condition.
func (o *op) conflicts() bool { return o.kind == appends && o.failure == seb.CodeOffsetConflict }

// passed reports whether an append was refused because the partition ends beyond the offset in the
// condition. The end never moves back, so the condition can never hold again.
func (o *op) passed() bool { return o.conflicts() && o.ifOffset != nil && o.end > *o.ifOffset }

// checkConditions expects the records of an append with a condition to begin at the offset in the condition,
// or not to be in the log. It expects each conflict to name an end that differs from that offset.
// checkLinear checks whether the partition really had the end that the conflict names.
func (x *checker) checkConditions(ops []*op) {
	for _, o := range ops {
		if o.conflicts() && (o.ifOffset == nil || o.end == *o.ifOffset) {
			x.history.violate("Condition", "the append was refused with a conflict, but its condition holds: %v", o)
		}
		if o.ifOffset == nil || !x.stays(o.topic) {
			continue
		}
		for i, id := range o.values {
			want := position{place{o.topic, o.partition}, *o.ifOffset + seb.Offset(i)}
			if at := x.at[id]; len(at) > 0 && !slices.Contains(at, want) {
				x.history.violate("Condition", "%s is at %v: %v", id, at, o)
			}
		}
	}
}
