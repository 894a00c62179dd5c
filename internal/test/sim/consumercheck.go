package sim

import (
	"cmp"
	"maps"
	"slices"

	"github.com/simple-event-broker/seb"
)

// checkConsumers expects the positions of consumers to have changed as clients asked for, and in no
// other way. It expects every answer to name the positions that the consumer had.
func (x *checker) checkConsumers(ops []*op) {
	for _, s := range x.consumers(ops) {
		history := x.final.all.positionHistory(s)
		var effects []effect
		for i, o := range ops {
			if o.topic == s.topic {
				effects = append(effects, x.effects(ops[:i], o, s)...)
			}
		}
		x.checkMoves(s, history, effects)
		x.checkPositionHistory(s, history, effects)
	}
	for i, o := range ops {
		x.checkConsumed(ops[:i], o)
		if o.kind == commits || o.kind == sets || o.kind == forgets {
			x.checkRefusal(ops, o)
		}
	}
}

// consumers returns every consumer that an operation names or that was ever in the log.
func (x *checker) consumers(ops []*op) []consumerRef {
	all := map[consumerRef]bool{}
	for _, o := range ops {
		if o.consumer != "" {
			all[consumerRef{o.topic, o.consumer}] = true
		}
	}
	for _, in := range x.final.all {
		for _, c := range in.consumers {
			all[consumerRef{in.name, c.name}] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b consumerRef) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.consumer, b.consumer))
	})
}

// checkMoves checks each move (change of positions) of a consumer by itself, so that a violation names the
// wrong move.
func (x *checker) checkMoves(s consumerRef, history []*positions, effects []effect) {
	for i := range len(history) - 1 {
		from, to := history[i], history[i+1]
		if !slices.ContainsFunc(effects, func(d effect) bool { return d.changes != nil && d.changes(from, to) }) {
			x.history.violate("ConsumerAsAsked", "%v went from %v to %v, which nobody asked for", s, from, to)
		}
	}
	winners := map[string]*op{}
	for _, d := range effects {
		o := d.op
		if d.finds != nil && !slices.ContainsFunc(history, d.finds) {
			x.history.violate("ConsumerAsAsked", "the consumer never had these positions: %v", o)
		}
		if o.kind != commits || !o.acked() || o.with != nil {
			continue
		}
		if !slices.ContainsFunc(history, func(s *positions) bool { return s != nil && s.is(o.told[0]) && maps.Equal(s.moved, o.offsets) }) {
			x.history.violate("AckDurable", "a commit that was acknowledged is not in the log: %v", o)
		}
		if won := winners[o.version]; o.version != "" && won != nil {
			x.history.violate("Condition", "two commits with the same version as their condition took effect: %v, %v", won, o)
		}
		winners[o.version] = o
	}
}

// checkConsumed checks the failures of a read with a consumer, and compares the records that the read found
// with the log.
func (x *checker) checkConsumed(before []*op, o *op) {
	switch {
	case o.kind != consumes:
	case o.failure == seb.CodeDataLost, x.stays(o.topic) && (o.failure == seb.CodeTopicNotFound || o.failure == seb.CodePartitionNotFound):
		x.history.violate("LossIsLoud", "a broker reported lost data, but nothing was lost: %v", o)
	case x.stays(o.topic) && len(o.records) > 0:
		x.checkFound(o, x.final.ids(place{o.topic, o.partition}))
	case !x.stays(o.topic):
		x.checkOwnRead(before, o)
	}
}

// checkRefusal expects the error of a failed change of a consumer to tell the outcome. A broker may refuse a
// change because of an offset only if at least one offset is beyond every end that any answer has named or,
// when the change creates or resets the consumer, before the start of a partition.
func (x *checker) checkRefusal(ops []*op, o *op) {
	if !o.acked() && o.outcome == "" {
		x.history.violate("NoPhantom", "a failed write without an outcome: %v", o)
	}
	if !x.stays(o.topic) || o.failure != seb.CodeOffsetOutOfRange {
		return
	}
	honest := false
	for p, at := range o.offsets {
		in := place{o.topic, int(p)}
		honest = honest || at > o.end && at > x.acknowledged(ops, in, o.call) || o.kind == sets && at < o.start
	}
	if !honest {
		x.history.violate("Condition", "offsets in range were refused: %v", o)
	}
}
