package sim

import (
	"slices"

	"github.com/simple-event-broker/seb"
)

// appendIf appends where the client believes the partition to end, as one does who
// has read it and decided: again from where it is told that it ends, or not.
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

// conflicts tells whether an append was refused for its condition.
func (o *op) conflicts() bool { return o.kind == appends && o.failure == seb.CodeOffsetConflict }

// passed tells whether a conflict says that the condition can't come true any more.
func (o *op) passed() bool { return o.conflicts() && o.ifOffset != nil && o.end > *o.ifOffset }

// checkConditions expects appends with a condition to stand where it says, or
// nowhere, and conflicts to be some. That the partition had the end they tell when
// they were told, checkLinear looks at.
func (x *checker) checkConditions(ops []*op) {
	for _, o := range ops {
		if o.conflicts() && (o.ifOffset == nil || o.end == *o.ifOffset) {
			x.history.violate("Condition", "it is no conflict: %v", o)
		}
		if o.ifOffset == nil || !x.stays(o.topic) {
			continue
		}
		for i, id := range o.values {
			want := position{place{o.topic, o.partition}, *o.ifOffset + seb.Offset(i)}
			if at := x.at[id]; len(at) > 0 && !slices.Contains(at, want) {
				x.history.violate("Condition", "%s stands at %v: %v", id, at, o)
			}
		}
	}
}
