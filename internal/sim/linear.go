package sim

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/simple-event-broker/seb"
)

// register is a partition as porcupine's model: its state is its end, an append
// moves it, and a read tells it. What stands at an offset the other checks
// compare with the log, which also knows where an append of unknown outcome
// ended up; those that are not in it never happened.
var register = porcupine.Model{
	Init: func() any { return seb.Offset(0) },
	Step: func(state, input, _ any) (bool, any) {
		end, in := state.(seb.Offset), input.(step)
		if end != in.before {
			return false, state
		}
		return true, in.after
	},
	Equal:             func(a, b any) bool { return a == b },
	DescribeOperation: func(input, _ any) string { return input.(step).op.String() },
	DescribeState:     func(state any) string { return fmt.Sprint(state) },
}

// step is an operation on one partition: it finds one end, and leaves another.
type step struct {
	op            *op
	before, after seb.Offset
}

const linearTimeout = time.Minute

// checkLinear looks for an order of all operations on a partition that explains
// every answer and lies between each operation's call and its return. An append
// of unknown outcome may take effect at any later time; a read may tell what its
// broker knew before it was asked, and a conflict tells an end that the partition
// had since the append was asked for.
func (x *checker) checkLinear(ops []*op) {
	for p := range x.final.partitions {
		if !x.stays(p.topic) {
			continue
		}
		var steps []porcupine.Operation
		for i, o := range ops {
			if s, call, ret, ok := x.step(ops[:i], o, p); ok {
				steps = append(steps, porcupine.Operation{ClientId: i, Input: s, Call: int64(call), Return: int64(ret)})
			}
		}
		switch porcupine.CheckOperationsTimeout(register, steps, linearTimeout) {
		case porcupine.Ok:
		case porcupine.Illegal:
			x.history.violate("SlotAgreement", "no order of the operations on %s/%d explains their answers", p.topic, p.partition)
		case porcupine.Unknown:
			x.history.violate("SlotAgreement", "whether some order of the operations on %s/%d explains their answers was not found out in %v",
				p.topic, p.partition, linearTimeout)
		}
	}
}

// step returns what an operation did to a partition, if it did anything, and
// the times between which it did.
func (x *checker) step(before []*op, o *op, p place) (s step, call, ret time.Duration, ok bool) {
	s.op = o
	switch {
	case o.topic != p.topic:
		return s, 0, 0, false
	case o.kind == reads && o.partition == p.partition && o.acked():
		s.before, s.after = o.end, o.end
		return s, x.freshSince(o), o.ret, true
	case o.conflicts() && o.partition == p.partition:
		s.before, s.after = o.end, o.end
		return s, o.call, o.ret, true
	case o.kind != appends:
		return s, 0, 0, false
	}
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
		return s, 0, 0, false
	}
	s.before, s.after, ret = first, first+seb.Offset(count), o.ret
	if !o.acked() {
		ret = lifetimeMax
	}
	return s, o.call, ret, true
}
