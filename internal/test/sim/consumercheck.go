package sim

import (
	"cmp"
	"maps"
	"slices"

	"github.com/simple-event-broker/seb"
)

// checkConsumers expects consumers to have moved by what clients asked for, and by
// nothing else, and every answer to tell where they stood.
func (x *checker) checkConsumers(ops []*op) {
	for _, s := range x.subjects(ops) {
		was := x.final.all.standings(s)
		var deeds []deed
		for i, o := range ops {
			if o.topic == s.topic {
				deeds = append(deeds, x.deeds(ops[:i], o, s)...)
			}
		}
		x.checkMoves(s, was, deeds)
		x.checkStandings(s, was, deeds)
	}
	for i, o := range ops {
		x.checkConsumed(ops[:i], o)
		if o.kind == commits || o.kind == sets || o.kind == forgets {
			x.checkRefusal(ops, o)
		}
	}
}

// subjects returns all consumers that clients spoke of, or that the log knows.
func (x *checker) subjects(ops []*op) []subject {
	all := map[subject]bool{}
	for _, o := range ops {
		if o.consumer != "" {
			all[subject{o.topic, o.consumer}] = true
		}
	}
	for _, in := range x.final.all {
		for _, c := range in.consumers {
			all[subject{in.name, c.name}] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b subject) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.consumer, b.consumer))
	})
}

// checkMoves looks at every move by itself, so that what is wrong has a name.
func (x *checker) checkMoves(s subject, was []*standing, deeds []deed) {
	for i := range len(was) - 1 {
		from, to := was[i], was[i+1]
		if !slices.ContainsFunc(deeds, func(d deed) bool { return d.takes != nil && d.takes(from, to) }) {
			x.history.violate("ConsumerAsAsked", "%v went from %v to %v, which nobody asked for", s, from, to)
		}
	}
	winners := map[string]*op{}
	for _, d := range deeds {
		o := d.op
		if d.finds != nil && !slices.ContainsFunc(was, d.finds) {
			x.history.violate("ConsumerAsAsked", "it never stood so: %v", o)
		}
		if o.kind != commits || !o.acked() || o.with != nil {
			continue
		}
		if !slices.ContainsFunc(was, func(s *standing) bool { return s != nil && s.is(o.told[0]) && maps.Equal(s.moved, o.offsets) }) {
			x.history.violate("AckDurable", "a commit that was acknowledged is not in the log: %v", o)
		}
		if won := winners[o.version]; o.version != "" && won != nil {
			x.history.violate("Condition", "two commits from one version: %v, %v", won, o)
		}
		winners[o.version] = o
	}
}

// checkConsumed expects a read with a consumer to have found what stands there.
func (x *checker) checkConsumed(before []*op, o *op) {
	switch {
	case o.kind != consumes:
	case o.failure == seb.CodeDataLost, x.stays(o.topic) && (o.failure == seb.CodeTopicNotFound || o.failure == seb.CodePartitionNotFound):
		x.history.violate("LossIsLoud", "nothing was lost: %v", o)
	case x.stays(o.topic) && len(o.records) > 0:
		x.checkFound(o, x.final.ids(place{o.topic, o.partition}))
	case !x.stays(o.topic):
		x.checkOwnRead(before, o)
	}
}

// checkRefusal expects what changes a consumer to tell its outcome, and to be refused
// for offsets only if some are beyond an end that nobody was told of, or before a start.
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
		x.history.violate("Condition", "it was refused, and is in range: %v", o)
	}
}
