package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
)

// deed is an operation on a consumer, or a part of one: it finds the consumer
// somewhere, or takes it from one standing to the next.
type deed struct {
	op        *op
	call, ret time.Duration // between which it takes effect

	finds func(*standing) bool // nil if it takes it on
	takes func(from, to *standing) bool
	maybe bool // it may also do nothing

	might       []int // the standings in which it may leave the consumer, in order
	least, most int   // which of them go with all that was before, and came after
}

// deeds returns what an operation did to a consumer, and found there.
func (x *checker) deeds(before []*op, o *op, s subject) []deed {
	d := deed{op: o, call: o.call, ret: o.ret}
	if !o.acked() {
		d.ret, d.maybe = lifetimeMax, true
	}
	switch {
	case o.kind == deletes:
		d.takes, d.maybe = gone, true // whether there was one or not
		return d.unless(o.outcome == seb.NotCommitted)
	case o.kind == lists && o.acked():
		return []deed{{op: o, call: x.freshSince(o), ret: o.ret, finds: o.lists(s.consumer)}}
	case o.consumer != s.consumer:
		return nil
	case o.failure == seb.CodeConsumerNotFound, o.failure == seb.CodeTopicNotFound:
		found := deed{op: o, call: o.call, ret: o.ret, finds: func(s *standing) bool { return s == nil }}
		d.takes = o.takes()
		return append(d.unless(d.takes == nil || o.outcome == seb.NotCommitted), found)
	case o.failure == seb.CodePositionConflict:
		return []deed{{op: o, call: o.call, ret: o.ret, finds: func(s *standing) bool { return s != nil && s.version != o.version }}}
	case o.kind == describes && o.acked():
		return []deed{{op: o, call: x.freshSince(o), ret: o.ret, finds: o.tells}}
	case o.kind == consumes:
		return x.consumeDeeds(before, o, d)
	case o.kind == sets && o.acked():
		found := deed{op: o, call: o.call, ret: o.ret, finds: o.tells}
		d.takes = o.takes()
		return append(d.unless(o.to == "" && !o.created), found)
	}
	d.takes = o.takes()
	return d.unless(d.takes == nil || o.outcome == seb.NotCommitted)
}

// unless returns the deed, unless nothing was done.
func (d deed) unless(nothing bool) []deed {
	if nothing {
		return nil
	}
	return []deed{d}
}

// tells tells whether an answer about one consumer tells a standing.
func (o *op) tells(s *standing) bool {
	return s != nil && s.consumer == o.consumer && s.version == o.told[0].version && s.is(o.told[0])
}

// lists returns whether a list of all consumers tells a standing of one of them.
func (o *op) lists(consumer string) func(*standing) bool {
	at := slices.IndexFunc(o.told, func(t standing) bool { return t.consumer == consumer })
	return func(s *standing) bool {
		if at < 0 || s == nil {
			return at < 0 && s == nil
		}
		return s.is(o.told[at])
	}
}

func gone(from, to *standing) bool { return from != nil && to == nil }

// takes returns from which standing to which an operation takes a consumer, nil if to
// none.
func (o *op) takes() func(from, to *standing) bool {
	if o.kind == forgets {
		return gone
	}
	if o.kind == commits {
		return func(from, to *standing) bool {
			return from != nil && to != nil && maps.Equal(to.moved, o.offsets) && (o.version == "" || from.version == o.version) &&
				(!o.acked() || o.with != nil || to.is(o.told[0]))
		}
	}
	if o.kind != sets && o.kind != consumes {
		return nil
	}
	return func(from, to *standing) bool {
		creates := from == nil
		if to == nil || !maps.Equal(to.moved, o.target(to.bounds, creates)) || !creates && o.to == "" {
			return false
		}
		return o.kind == consumes || !o.acked() || o.created == creates
	}
}

// consumeDeeds returns that a read may have created its consumer, and where it found it.
func (x *checker) consumeDeeds(before []*op, o *op, creates deed) []deed {
	creates.takes, creates.maybe = o.takes(), true
	found := deed{op: o, call: x.freshSince(o), ret: o.ret}
	switch {
	case len(o.records) > 0:
		found.finds = func(s *standing) bool { return s != nil && s.position(o.partition) == o.records[0].offset }
	case o.acked():
		found.finds = func(s *standing) bool { return s != nil && !x.left(before, o, s) }
	case o.failure == seb.CodeOffsetOutOfRange:
		found.finds = func(s *standing) bool { return s != nil && x.belowStart(o, s) }
	default:
		return []deed{creates}
	}
	return []deed{creates, found}
}

// left tells whether a consumer has not read all that the broker of a read must have known.
func (x *checker) left(before []*op, o *op, s *standing) bool {
	for p := range partitionsMax {
		if (o.partition < 0 || o.partition == p) && s.position(p) < x.known(before, o, place{o.topic, p}).end && x.stays(o.topic) {
			return true
		}
	}
	return false
}

// belowStart tells whether a consumer can have been where a partition's records were
// deleted.
func (x *checker) belowStart(o *op, s *standing) bool {
	for p := range partitionsMax {
		if end := x.final.partitions[place{o.topic, p}]; end != nil && (o.partition < 0 || o.partition == p) && s.position(p) < end.start() {
			return true
		}
	}
	return false
}
