package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
)

// effect is what an operation, or a part of an operation, does to a consumer: it finds the consumer at
// certain positions, or changes the positions.
type effect struct {
	op        *op
	call, ret time.Duration // the effect happens between these times

	finds   func(*positions) bool // nil if the effect changes the positions
	changes func(from, to *positions) bool
	maybe   bool // the operation may also have done nothing

	may         []int // indexes in the position history, ascending: right after the effect, the consumer is at one of these positions
	least, most int   // elements of may: the first that fits the earlier effects, and the last that fits the later effects
}

// effects returns the effects of an operation on a consumer.
func (x *checker) effects(before []*op, o *op, s consumerRef) []effect {
	d := effect{op: o, call: o.call, ret: o.ret}
	if !o.acked() {
		d.ret, d.maybe = lifetimeMax, true
	}
	switch {
	case o.kind == deletes:
		d.changes, d.maybe = gone, true // the deleted topic may have had no such consumer
		return d.unless(o.outcome == seb.NotCommitted)
	case o.kind == lists && o.acked():
		return []effect{{op: o, call: x.freshSince(o), ret: o.ret, finds: o.lists(s.consumer)}}
	case o.consumer != s.consumer:
		return nil
	case o.failure == seb.CodeConsumerNotFound, o.failure == seb.CodeTopicNotFound:
		found := effect{op: o, call: o.call, ret: o.ret, finds: func(s *positions) bool { return s == nil }}
		d.changes = o.changes()
		return append(d.unless(d.changes == nil || o.outcome == seb.NotCommitted), found)
	case o.failure == seb.CodePositionConflict:
		return []effect{{op: o, call: o.call, ret: o.ret, finds: func(s *positions) bool { return s != nil && s.version != o.version }}}
	case o.kind == describes && o.acked():
		return []effect{{op: o, call: x.freshSince(o), ret: o.ret, finds: o.tells}}
	case o.kind == consumes:
		return x.consumeEffects(before, o, d)
	case o.kind == sets && o.acked():
		found := effect{op: o, call: o.call, ret: o.ret, finds: o.tells}
		d.changes = o.changes()
		return append(d.unless(o.to == "" && !o.created), found)
	}
	d.changes = o.changes()
	return d.unless(d.changes == nil || o.outcome == seb.NotCommitted)
}

// unless returns no effect if its argument is true. If the argument is false, it returns the effect d.
func (d effect) unless(nothing bool) []effect {
	if nothing {
		return nil
	}
	return []effect{d}
}

// tells reports whether an answer about one consumer agrees with the positions s.
func (o *op) tells(s *positions) bool {
	return s != nil && s.consumer == o.consumer && s.version == o.told[0].version && s.is(o.told[0])
}

// lists returns a function that reports whether the answer to a list of all consumers agrees with the
// positions s of one consumer. If s is nil, the consumer does not exist, and the list must not have it.
func (o *op) lists(consumer string) func(*positions) bool {
	at := slices.IndexFunc(o.told, func(t positions) bool { return t.consumer == consumer })
	return func(s *positions) bool {
		if at < 0 || s == nil {
			return at < 0 && s == nil
		}
		return s.is(o.told[at])
	}
}

func gone(from, to *positions) bool { return from != nil && to == nil }

// changes returns a function that reports whether an operation may have changed a consumer
// from one value of positions to another. It returns nil if the operation changes no positions.
func (o *op) changes() func(from, to *positions) bool {
	if o.kind == forgets {
		return gone
	}
	if o.kind == commits {
		return func(from, to *positions) bool {
			return from != nil && to != nil && maps.Equal(to.moved, o.offsets) && (o.version == "" || from.version == o.version) &&
				(!o.acked() || o.with != nil || to.is(o.told[0]))
		}
	}
	if o.kind != sets && o.kind != consumes {
		return nil
	}
	return func(from, to *positions) bool {
		creates := from == nil
		if to == nil || !maps.Equal(to.moved, o.target(to.bounds, creates)) || !creates && o.to == "" {
			return false
		}
		return o.kind == consumes || !o.acked() || o.created == creates
	}
}

// consumeEffects returns the effects of a read with a consumer: the read may have created the consumer, and
// it found the consumer at some positions.
func (x *checker) consumeEffects(before []*op, o *op, creates effect) []effect {
	creates.changes, creates.maybe = o.changes(), true
	found := effect{op: o, call: x.freshSince(o), ret: o.ret}
	switch {
	case len(o.records) > 0:
		found.finds = func(s *positions) bool { return s != nil && s.position(o.partition) == o.records[0].offset }
	case o.acked():
		found.finds = func(s *positions) bool { return s != nil && !x.left(before, o, s) }
	case o.failure == seb.CodeOffsetOutOfRange:
		found.finds = func(s *positions) bool { return s != nil && x.belowStart(o, s) }
	default:
		return []effect{creates}
	}
	return []effect{creates, found}
}

// left reports whether a consumer at positions s had records to read that the broker of the read must have
// known.
func (x *checker) left(before []*op, o *op, s *positions) bool {
	for p := range partitionsMax {
		if (o.partition < 0 || o.partition == p) && s.position(p) < x.known(before, o, place{o.topic, p}).end && x.stays(o.topic) {
			return true
		}
	}
	return false
}

// belowStart reports whether a consumer at positions s may have been below the start of a partition.
func (x *checker) belowStart(o *op, s *positions) bool {
	for p := range partitionsMax {
		if end := x.final.partitions[place{o.topic, p}]; end != nil && (o.partition < 0 || o.partition == p) && s.position(p) < end.start() {
			return true
		}
	}
	return false
}
