package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/simple-event-broker/seb"
)

// bounds are the start and the end of a partition. They are the state of a partition's model. Porcupine, a
// checker of linearizability, compares the operations with this model: an append moves the end, a trim moves
// the start, and answers name both. The model takes the offset of each append from the log. So an append with
// an unknown outcome is in the model only if the log has it. Other checks compare the record at an offset with
// the log.
type bounds struct{ start, end seb.Offset }

// later returns the larger start and the larger end of b and o.
func (b bounds) later(o bounds) bounds { return bounds{max(b.start, o.start), max(b.end, o.end)} }

var register = porcupine.Model{
	Init: func() any { return bounds{} },
	Step: func(state, input, _ any) (bool, any) {
		b, in := state.(bounds), input.(step)
		if b.start < in.startMin || b.start > in.startMax || in.end >= 0 && b.end != in.end || in.trim > b.end {
			return false, state
		}
		return true, bounds{max(b.start, in.trim), b.end + in.count}
	},
	Equal:             func(a, b any) bool { return a == b },
	DescribeOperation: func(input, _ any) string { return input.(step).op.String() },
	DescribeState:     func(state any) string { return fmt.Sprint(state) },
}

// step is an operation on one partition, or a part of an operation: the bounds at which the step may take
// effect, and how the step changes them.
type step struct {
	op        *op
	call, ret time.Duration // the step takes effect between these times

	startMin, startMax seb.Offset
	end                seb.Offset // -1 means any end
	count              seb.Offset // the number of records that the step appends
	trim               seb.Offset // the offset to which the step moves the start, unless the start is beyond that offset already
}

const linearTimeout = time.Minute

// checkLinear looks for an order of all operations on a partition that explains every answer, and in which
// each operation takes effect between its call and its return. A write of unknown outcome may take effect at
// any later time. A read may return what the broker knew before the client asked. A refusal must name bounds
// that the partition had after the client sent the request.
func (x *checker) checkLinear(ops []*op) {
	for p := range x.final.partitions {
		if !x.stays(p.topic) {
			continue
		}
		var all []porcupine.Operation
		for i, o := range ops {
			for _, s := range x.steps(o, p) {
				s.op = o
				all = append(all, porcupine.Operation{ClientId: i, Input: s, Call: int64(s.call), Return: int64(s.ret)})
			}
		}
		switch porcupine.CheckOperationsTimeout(register, all, linearTimeout) {
		case porcupine.Ok:
		case porcupine.Illegal:
			x.history.violate("SlotAgreement", "no order of the operations on %s/%d explains their answers", p.topic, p.partition)
		case porcupine.Unknown:
			x.history.violate("SlotAgreement", "the search for an order of the operations on %s/%d that explains their answers did not end within %v",
				p.topic, p.partition, linearTimeout)
		}
	}
}

// steps returns what an operation did to a partition, and which bounds the operation found.
func (x *checker) steps(o *op, p place) []step {
	told := step{call: o.call, ret: o.ret, startMin: o.start, startMax: o.start, end: o.end}
	switch {
	case o.kind == appends && o.topic == p.topic && !o.conflicts():
		return x.appendStep(o, p)
	case o.topic != p.topic || o.partition != p.partition:
	case o.conflicts():
		told.startMin, told.startMax = 0, math.MaxInt64
		return []step{told}
	case o.kind == reads && o.acked():
		told.call = x.freshSince(o)
		told.startMin, told.startMax = o.startsBetween()
		return []step{told}
	case o.kind == reads && o.failure == seb.CodeOffsetOutOfRange:
		if at, _ := x.asked(o); at < o.start {
			told.call = x.freshSince(o)
		}
		return []step{told}
	case o.kind == trims && o.failure == seb.CodeOffsetOutOfRange:
		return []step{told}
	case o.kind == trims && o.acked():
		return []step{{call: o.call, ret: o.ret, startMax: math.MaxInt64, end: -1, trim: o.before}, told}
	case o.mayTrim(p) && slices.Contains(x.final.partitions[p].starts, o.before): // the start was moved to that offset, by this trim or another
		return []step{{call: o.call, ret: lifetimeMax, startMax: math.MaxInt64, end: -1, trim: o.before}}
	}
	return nil
}

// startsBetween returns the lowest and the highest start that the partition can have, according to the answer
// to a read. If the client asked for a read from the start, both are the offset at which the read began. For
// all other reads, low is 0, and high is the offset at which the read began.
func (o *op) startsBetween() (low, high seb.Offset) {
	if o.from == seb.Earliest {
		return o.first(), o.first()
	}
	return 0, o.first()
}

// first returns the offset at which a read began.
func (o *op) first() seb.Offset {
	if len(o.records) > 0 {
		return o.records[0].offset
	}
	return o.next
}

// appendStep returns the step of an append, or no step if the log does not have the append's records.
func (x *checker) appendStep(o *op, p place) []step {
	first, count := seb.Offset(-1), 0
	for _, id := range o.values {
		for _, at := range x.at[id] {
			if at.place != p {
				continue
			}
			if first < 0 || at.offset < first {
				first = at.offset
			}
			count++
		}
	}
	if count == 0 {
		return nil
	}
	s := step{call: o.call, ret: o.ret, startMax: math.MaxInt64, end: first, count: seb.Offset(count)}
	if !o.acked() {
		s.ret = lifetimeMax
	}
	return []step{s}
}
