package sim

import (
	"slices"
	"time"
)

// The log gives the order of a consumer's moves (changes of positions). So checkPositionHistory only has to
// find out between which two moves each operation may have taken effect. That is much less work than a
// general search with porcupine (see checkLinear), which would have to try out which of the operations without
// an answer took effect, and when.

// checkPositionHistory expects that some order of all operations on a consumer explains its position
// history and every answer. In that order, each operation lies between its call and its return, and
// no life of a broker goes back to earlier positions.
func (x *checker) checkPositionHistory(s consumerRef, history []*positions, effects []effect) {
	for i := range effects {
		effects[i].may = effects[i].indexes(history)
	}
	var sure []*effect
	for i := range effects {
		if !effects[i].maybe {
			sure = append(sure, &effects[i])
		}
	}
	for i, d := range sure {
		from := 0
		for _, b := range sure[:i] {
			if b.before(d) {
				from = max(from, b.least)
			}
		}
		at := slices.IndexFunc(d.may, func(at int) bool { return at-d.step() >= from })
		if at < 0 {
			x.history.violate("ConsumerAsAsked", "the operation contradicts what earlier operations showed: %v; the positions of %v were %v", d.op, s, history)
			return
		}
		d.least = d.may[at]
	}
	for i, d := range slices.Backward(sure) {
		d.most = len(history) - 1
		for _, a := range sure[i+1:] {
			if d.before(a) {
				d.most = min(d.most, a.most-a.step())
			}
		}
		at := slices.IndexFunc(d.may, func(at int) bool { return at > d.most })
		if at < 0 {
			at = len(d.may)
		}
		d.most = d.may[at-1] // at > 0, because d.may has d.least, which is at most d.most
	}
	x.checkDoers(s, history, effects, sure)
}

// step returns by how many entries of the position history an effect advances the consumer: 0 or 1.
func (d *effect) step() int {
	if d.changes != nil {
		return 1
	}
	return 0
}

// indexes returns the indexes of the positions at which the consumer may be right after the effect.
func (d *effect) indexes(history []*positions) (might []int) {
	for i := range history {
		if d.finds != nil && d.finds(history[i]) || d.changes != nil && i > 0 && d.changes(history[i-1], history[i]) {
			might = append(might, i)
		}
	}
	return might
}

// before reports whether the effect d certainly came before the effect o, which follows d in the list. That is
// certain in four cases: d had ended when o began; d ended just when o began, and their operations have the same
// client; d and o belong to one operation; or their operations have the same life of a broker, and the operation
// of d ended before the operation of o began.
func (d *effect) before(o *effect) bool {
	return d.ret < o.call || d.op == o.op || d.op.client == o.op.client && d.ret <= o.call ||
		d.op.broker == o.op.broker && d.op.ret < o.op.call
}

// checkDoers pairs each move of the consumer with an operation that may have made that move. An operation
// has made at most one move. So checkDoers expects different operations for all moves, and different moves
// for all effects in sure that change positions. The effects in sure must have happened.
func (x *checker) checkDoers(s consumerRef, history []*positions, effects []effect, sure []*effect) {
	moves := make([]window, len(history)) // for each index in history, when the consumer moved to these positions
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
	can := func(d *effect, move int) bool {
		return d.changes != nil && slices.Contains(d.may, move) && d.call <= moves[move].ret && d.ret >= moves[move].call
	}
	doers := match(len(history), len(effects), func(move, d int) bool { return can(&effects[d], move) })
	for move := 1; move < len(history); move++ {
		if doers[move] < 0 {
			x.history.violate("ConsumerAsAsked", "%v went from %v to %v, and every operation that can have done that did another move", s, history[move-1], history[move])
		}
	}
	// If one match covers all moves, and another match covers all effects in sure, then there is a match that
	// covers both. So the two may be checked separately.
	done := match(len(sure), len(history), func(d, move int) bool { return can(sure[d], move) })
	for i, d := range sure {
		if d.changes != nil && done[i] < 0 {
			x.history.violate("ConsumerAsAsked", "every move that this operation can have made was made by another operation: %v; the positions of %v were %v", d.op, s, history)
		}
	}
}

// window is a span of time in which a move was made.
type window struct{ call, ret time.Duration }

// match pairs as many left items as possible with one right item each. It returns the partner of each
// left item; -1 for an item without a partner.
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
