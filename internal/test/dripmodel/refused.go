package dripmodel

import (
	"slices"

	"github.com/simple-event-broker/seb/driplang"
)

// firstPart returns the leftmost operand, through THENs and windows around them.
func firstPart(e *driplang.Expr) *driplang.Expr {
	for e.Op == driplang.OpThen {
		e = e.Args[0]
	}
	return e
}

// kind says from where the leaves of a first part count.
type kind int

const (
	simple   kind = iota // an event, alternatives of events, or TIMES of these: from the first event of the run
	windowed             // all leaves are in windows, which may be around THENs too: from the first event of the run
	lasting              // from the start of the trigger
	mixed                // some are in windows and some not: refused
)

func kindOf(e *driplang.Expr) kind {
	first, window := firstPart(e), false
	for ; e != first; e = e.Args[0] {
		window = window || e.Within > 0
	}
	inside, outside := windows(first, window)
	isEvent := func(a *driplang.Expr) bool { return a.Op == driplang.OpEvent && a.Times == 1 && a.Within == 0 }
	switch {
	case leaf(first) || first.Op == driplang.OpOr && !slices.ContainsFunc(first.Args, func(a *driplang.Expr) bool { return !isEvent(a) }):
		return simple
	case outside == 0:
		return windowed
	case inside == 0:
		return lasting
	default:
		return mixed
	}
}

// windows counts the leaves inside and outside of windows.
func windows(e *driplang.Expr, window bool) (inside, outside int) {
	window = window || e.Within > 0
	switch {
	case leaf(e) && window:
		return 1, 0
	case leaf(e):
		return 0, 1
	}
	for _, a := range e.Args {
		i, o := windows(a, window)
		inside, outside = inside+i, outside+o
	}
	return inside, outside
}

// Refused reports whether one of the rules 1 to 5 and 7 of "What is refused" refuses a trigger. Rule 6 is about aliases.
//
// Rule 1 needs no code: what is true before anything happened is so by absences alone, so that no event can begin it (rule 2), and
// in an operand before a THEN these absences have no window (rule 5).
func Refused(e *driplang.Expr, once bool) bool {
	kind := kindOf(e)
	return !startable(firstPart(e), true) || // rule 2
		kind == mixed || // rule 3
		refusedWithin(e) || // rules 4 and 5
		kind == lasting && !once // rule 7
}

// startable reports whether an event can begin e, and each of several alternatives in it. Under a NOT, AND and OR change places.
func startable(e *driplang.Expr, positive bool) bool {
	can := func(a *driplang.Expr) bool { return startable(a, positive) }
	switch {
	case leaf(e):
		return positive
	case e.Op == driplang.OpNot:
		return startable(e.Args[0], !positive)
	case e.Op == driplang.OpThen:
		return can(e.Args[0])
	case (e.Op == driplang.OpAnd) == positive:
		return slices.ContainsFunc(e.Args, can)
	default:
		return !slices.ContainsFunc(e.Args, func(a *driplang.Expr) bool { return !can(a) })
	}
}

// refusedWithin looks for windows in windows of which one holds a NOT (rule 4), and for absences before a THEN without a window of
// their own (rule 5): a window around the THEN does not help, since the operand is true at its deadline, when it is too late.
func refusedWithin(e *driplang.Expr) bool {
	if e.Within > 0 && has(e, isNot) && slices.ContainsFunc(e.Args, func(a *driplang.Expr) bool { return has(a, isWindow) }) {
		return true
	}
	if e.Op == driplang.OpThen && slices.ContainsFunc(e.Args[:len(e.Args)-1], func(a *driplang.Expr) bool { return absence(a, false) }) {
		return true
	}
	return slices.ContainsFunc(e.Args, refusedWithin)
}

// absence reports whether e holds a leaf under an odd number of NOTs, outside of windows in e.
func absence(e *driplang.Expr, odd bool) bool {
	switch {
	case e.Within > 0:
		return false
	case leaf(e):
		return odd
	}
	return slices.ContainsFunc(e.Args, func(a *driplang.Expr) bool { return absence(a, odd != isNot(e)) })
}

func isNot(e *driplang.Expr) bool { return e.Op == driplang.OpNot }

func isWindow(e *driplang.Expr) bool { return e.Within > 0 }

func has(e *driplang.Expr, what func(*driplang.Expr) bool) bool {
	return what(e) || slices.ContainsFunc(e.Args, func(a *driplang.Expr) bool { return has(a, what) })
}
