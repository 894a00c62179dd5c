package sim

import (
	"slices"
	"time"
)

// The standings of a consumer have an order, that of the log, so to look for an order of
// the operations on it is to find between which two moves each may have taken effect:
// porcupine would have to try out which of all that had no answer was done, and when.

// checkStandings expects an order of all operations on a consumer that explains its
// standings one after the other, and every answer, lies between each operation's call
// and its return, and lets no life of a broker go back.
func (x *checker) checkStandings(s subject, was []*standing, deeds []deed) {
	for i := range deeds {
		deeds[i].might = deeds[i].indexes(was)
	}
	var sure []*deed
	for i := range deeds {
		if !deeds[i].maybe {
			sure = append(sure, &deeds[i])
		}
	}
	for i, d := range sure {
		from := 0
		for _, b := range sure[:i] {
			if b.before(d) {
				from = max(from, b.least)
			}
		}
		at := slices.IndexFunc(d.might, func(at int) bool { return at-d.step() >= from })
		if at < 0 {
			x.history.violate("ConsumerAsAsked", "what was known before does not allow for it: %v; %v stood at %v", d.op, s, was)
			return
		}
		d.least = d.might[at]
	}
	for i, d := range slices.Backward(sure) {
		d.most = len(was) - 1
		for _, a := range sure[i+1:] {
			if d.before(a) {
				d.most = min(d.most, a.most-a.step())
			}
		}
		at := slices.IndexFunc(d.might, func(at int) bool { return at > d.most })
		if at < 0 {
			at = len(d.might)
		}
		d.most = d.might[at-1] // least goes
	}
	x.checkDoers(s, was, deeds, sure)
}

// step returns by how many standings a deed takes the consumer on.
func (d *deed) step() int {
	if d.takes != nil {
		return 1
	}
	return 0
}

// indexes returns the standings in which a deed may leave the consumer.
func (d *deed) indexes(was []*standing) (might []int) {
	for i := range was {
		if d.finds != nil && d.finds(was[i]) || d.takes != nil && i > 0 && d.takes(was[i-1], was[i]) {
			might = append(might, i)
		}
	}
	return might
}

// before tells whether a deed that is not behind another in their list took effect before
// it: it had ended, or was the same client's, or a life of a broker had told of it.
func (d *deed) before(o *deed) bool {
	return d.ret < o.call || d.op == o.op || d.op.client == o.op.client && d.ret <= o.call ||
		d.op.broker == o.op.broker && d.op.ret < o.op.call
}

// checkDoers expects each move to be the doing of one operation, that may have taken
// effect when the consumer was moved, and each that was acknowledged to have done one.
func (x *checker) checkDoers(s subject, was []*standing, deeds []deed, sure []*deed) {
	moves := make([]window, len(was)) // to each standing
	for i := range moves {
		moves[i] = window{0, lifetimeMax}
		for _, d := range sure {
			if d.least >= i {
				moves[i].ret = min(moves[i].ret, d.ret)
			}
			if d.most < i {
				moves[i].call = max(moves[i].call, d.call)
			}
		}
	}
	can := func(d *deed, move int) bool {
		return d.takes != nil && slices.Contains(d.might, move) && d.call <= moves[move].ret && d.ret >= moves[move].call
	}
	doers := match(len(was), len(deeds), func(move, d int) bool { return can(&deeds[d], move) })
	for move := 1; move < len(was); move++ {
		if doers[move] < 0 {
			x.history.violate("ConsumerAsAsked", "%v went from %v to %v, and whoever can have done that has done something else", s, was[move-1], was[move])
		}
	}
	// Where there is a match for every move, and one for every deed that is sure, there
	// is one for both.
	done := match(len(sure), len(was), func(d, move int) bool { return can(sure[d], move) })
	for i, d := range sure {
		if d.takes != nil && done[i] < 0 {
			x.history.violate("ConsumerAsAsked", "what it can have done others have done: %v; %v stood at %v", d.op, s, was)
		}
	}
}

// window is between when something was done.
type window struct{ call, ret time.Duration }

// match pairs as many of the left as it can with one of the right each, and returns whom,
// -1 for nobody.
func match(left, right int, fits func(l, r int) bool) []int {
	whom, whose := make([]int, left), make([]int, right)
	for r := range whose {
		whose[r] = -1
	}
	var tried []bool
	var pair func(l int) bool
	pair = func(l int) bool {
		for r := range whose {
			if tried[r] || !fits(l, r) {
				continue
			}
			tried[r] = true
			if whose[r] < 0 || pair(whose[r]) {
				whose[r] = l
				return true
			}
		}
		return false
	}
	for l := range whom {
		tried = make([]bool, right)
		pair(l)
	}
	for l := range whom {
		whom[l] = slices.Index(whose, l)
	}
	return whom
}
