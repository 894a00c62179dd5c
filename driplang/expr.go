package driplang

import (
	"slices"
	"time"
)

// Limits of an expression. [Parse] and [ParseJSON] refuse expressions beyond them.
const (
	MaxText     = 16 << 10             // bytes of an expression as text or JSON
	MaxNodes    = 64                   // nodes of the tree
	MaxTimes    = 1000                 // the number before TIMES
	MaxWithin   = 366 * 24 * time.Hour // a window
	MaxAliases  = 8                    // names after AS
	MaxName     = 256                  // bytes of the name of an event
	maxAlias    = 64                   // bytes of an alias
	maxNesting  = 100                  // parentheses in parentheses, or JSON objects in objects
	minWithin   = time.Second
	withinUnits = "s, m, h, d or w"
)

// Any is the name that stands for every event of an entity.
const Any = "*"

// Op says what a node of an expression is.
type Op uint8

// The operators.
const (
	OpEvent Op = iota + 1 // an event
	OpAnd
	OpOr
	OpNot
	OpThen
)

// Expr is a node of an expression, and so an expression: a tree that [Parse] or [ParseJSON] has made. Callers must not change it.
//
// And, Or and Then have at least two operands, of which none is the same operator without a window: A AND (B AND C) is a single
// node. Not has one operand.
type Expr struct {
	Op     Op
	Event  string        // of an event: its name, or [Any]
	As     string        // of an event: its alias, or empty
	Where  string        // of an event: its condition in CEL, or empty
	Times  int           // of an event, or of alternatives (OpOr) of events: how many have to come; at least 1
	Args   []*Expr       // the operands of the other operators
	Within time.Duration // the window around the node, in whole seconds; 0 if it has none
	pos    position
}

// position is where a node stands in the text or in the JSON.
type position struct{ line, column int }

// walk calls f for e and all nodes below it, parents first.
func (e *Expr) walk(f func(*Expr)) {
	f(e)
	for _, a := range e.Args {
		a.walk(f)
	}
}

// holdsNot reports whether e or a node below it is a NOT.
func (e *Expr) holdsNot() bool {
	return e.Op == OpNot || slices.ContainsFunc(e.Args, (*Expr).holdsNot)
}

// alternatives reports whether e is an event, or an OR of events, without counts, aliases and windows of their own: what
// TIMES can count.
func (e *Expr) alternatives() bool {
	if e.Within != 0 || e.Times > 1 {
		return false
	}
	if e.Op == OpEvent {
		return true
	}
	return e.Op == OpOr && !slices.ContainsFunc(e.Args, func(a *Expr) bool {
		return a.Op != OpEvent || a.As != "" || !a.alternatives()
	})
}

// join makes a node of an operator with several operands. Operands that are the same operator become part of it.
func join(op Op, args []*Expr, at position) *Expr {
	if len(args) == 1 {
		return args[0]
	}
	e := &Expr{Op: op, Times: 1, pos: at}
	for _, a := range args {
		if a.Op == op && a.Within == 0 && a.Times == 1 {
			e.Args = append(e.Args, a.Args...)
		} else {
			e.Args = append(e.Args, a)
		}
	}
	return e
}

// repeat makes e come n times.
func (e *Expr) repeat(n int) error {
	switch {
	case n < 1 || n > MaxTimes:
		return e.pos.errorf("TIMES takes a number from 1 to %d, not %d", MaxTimes, n)
	case n == 1:
		return nil
	case !e.alternatives():
		return e.pos.errorf("TIMES counts events: its operand is an event, or several events with OR between them")
	}
	e.Times = n
	return nil
}

// within puts a window around e. Of two windows around one node, the shorter one holds.
func (e *Expr) within(d time.Duration) error {
	if d < minWithin || d > MaxWithin {
		return e.pos.errorf("a window has from 1 s to %d days", int(MaxWithin/day))
	}
	if e.Within == 0 {
		e.Within = d
		return nil
	}
	if e.holdsNot() {
		return e.pos.errorf("%s", windowInWindow)
	}
	e.Within = min(e.Within, d)
	return nil
}

const windowInWindow = "a window must not be in another window if one of them holds a NOT"
