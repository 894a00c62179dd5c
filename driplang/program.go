package driplang

import (
	"slices"
	"time"
)

// Program is a checked expression that can be decided event by event: see [Machine].
type Program struct {
	expr        *Expr
	root        *node
	first       *node   // the first part: events that match its positive leaves begin runs
	kind        kind    // of the first part
	leaves      []*node // events, and TIMES of alternatives
	thens       int     // number of THEN nodes
	names       map[string]bool
	aliases     map[string]*node // the leaves that have an alias
	conditions  map[*Expr]*Condition
	firstWindow int64 // the shortest window around the first part, in microseconds; 0 without a window
	notBehind   bool  // a NOT is behind the first part
}

// kind says how the first part of an expression counts. RFC 0006 has the reasons.
type kind uint8

const (
	simple   kind = iota + 1 // an event, or alternatives of events: each run begins with the first part true
	counting                 // TIMES, with or without a window: the last times are kept, and a run begins once there are enough
	windowed                 // all leaves are in windows, which count from the first event of the run
	lasting                  // the leaves count from the start, whatever the run
)

// node is a node of a program. Windows are in microseconds, as log times are.
type node struct {
	*Expr
	args     []*node
	leaf     int   // index among the leaves; -1 if the node is none
	then     int   // index among the THEN nodes; -1 if the node is none
	window   int64 // microseconds; 0 without WITHIN
	windowed bool  // the node has a window, or is in one
	negative bool  // under an odd number of NOTs
	later    bool  // right of a THEN
	inFirst  bool  // in the first part
}

func newProgram(e *Expr) *Program {
	p := &Program{expr: e, names: map[string]bool{}, aliases: map[string]*node{}}
	p.root = p.build(e, node{})
	p.first, p.firstWindow = firstPart(p.root)
	p.kind = kindOf(p.first)
	p.first.markFirst()
	p.notBehind = p.root.notOutside(p.first)
	return p
}

// build makes the node of an expression. around says what the node is in: windowed, negative and later.
func (p *Program) build(e *Expr, around node) *node {
	n := &node{
		Expr: e, leaf: -1, then: -1, window: e.Within.Microseconds(),
		windowed: around.windowed || e.Within != 0, negative: around.negative, later: around.later,
	}
	switch {
	case e.Op == OpEvent || e.Times > 1:
		n.leaf = len(p.leaves)
		p.leaves = append(p.leaves, n)
		if e.As != "" {
			p.aliases[e.As] = n
		}
		e.walk(func(x *Expr) {
			if x.Op == OpEvent {
				p.names[x.Event] = true
			}
		})
		return n
	case e.Op == OpThen:
		n.then = p.thens
		p.thens++
	}
	for i, a := range e.Args {
		n.args = append(n.args, p.build(a, node{
			windowed: n.windowed, negative: n.negative != (e.Op == OpNot), later: n.later || e.Op == OpThen && i > 0,
		}))
	}
	return n
}

// firstPart returns the leftmost operand, through THENs and windows around them, and the shortest of its windows and these.
func firstPart(n *node) (first *node, window int64) {
	for {
		if n.window != 0 && (window == 0 || n.window < window) {
			window = n.window
		}
		if n.then < 0 {
			return n, window
		}
		n = n.args[0]
	}
}

func kindOf(first *node) kind {
	inWindow := func(n *node) bool { return n.windowed }
	switch {
	case first.leaf >= 0 && first.Times > 1:
		return counting
	case first.leaf >= 0, first.Op == OpOr && first.window == 0 && !slices.ContainsFunc(first.args, func(a *node) bool { return a.leaf < 0 || a.Times > 1 || a.window != 0 }):
		return simple
	case first.allLeaves(inWindow):
		return windowed
	default:
		return lasting
	}
}

// allLeaves reports whether ok is true for all leaves below n.
func (n *node) allLeaves(ok func(*node) bool) bool {
	if n.leaf >= 0 {
		return ok(n)
	}
	return !slices.ContainsFunc(n.args, func(a *node) bool { return !a.allLeaves(ok) })
}

func (n *node) markFirst() {
	n.inFirst = true
	for _, a := range n.args {
		a.markFirst()
	}
}

// notOutside reports whether n holds a NOT that is not in a node below it.
func (n *node) notOutside(of *node) bool {
	if n == of {
		return false
	}
	return n.Op == OpNot || slices.ContainsFunc(n.args, func(a *node) bool { return a.notOutside(of) })
}

// events returns the event nodes of a leaf.
func (n *node) events() []*Expr {
	if n.Op == OpEvent {
		return []*Expr{n.Expr}
	}
	return n.Args
}

// Names returns the names of the events that matter, sorted. [Any] among them means all events.
func (p *Program) Names() []string {
	var names []string
	for name := range p.names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// NeedsAbsence reports whether the expression can become true because an event did not come.
func (p *Program) NeedsAbsence() bool { return p.root.notOutside(nil) }

// Expr returns the expression.
func (p *Program) Expr() *Expr { return p.expr }

// moment is an event at a time, or the deadline at a time, which comes after all events of that time.
type moment struct {
	time     int64 // microseconds since 1970
	deadline bool
}

// after reports whether a window that ends at the deadline of a time has ended.
func (m moment) after(deadline int64) bool {
	return m.time > deadline || m.time == deadline && m.deadline
}

func micros(t time.Time) int64 { return t.UnixMicro() }

// Run is the state of a run: which operand each THEN is at, since when, and how often each leaf has happened.
type Run[T any] struct {
	begun   int64 // the time of its first event
	next    int64 // the next deadline that may decide something; 0 if it waits for events only
	at      []uint8
	origins []int64
	counts  []uint16
	// Events has, for each leaf that has happened, the event that made it true; the zero value for the others.
	Events []T
}

func newRun[T any](p *Program, begun int64) *Run[T] {
	return &Run[T]{
		begun: begun, at: make([]uint8, p.thens), origins: make([]int64, p.thens), counts: make([]uint16, len(p.leaves)),
		Events: make([]T, len(p.leaves)),
	}
}

func (r *Run[T]) clone() *Run[T] {
	return &Run[T]{
		begun: r.begun, at: slices.Clone(r.at), origins: slices.Clone(r.origins), counts: slices.Clone(r.counts), Events: slices.Clone(r.Events),
	}
}

// operand returns the operand that a THEN is at, and the origin that it counts from.
func (r *Run[T]) operand(n *node, origin int64) (*node, int64) {
	if at := r.at[n.then]; at > 0 {
		return n.args[at], r.origins[n.then]
	}
	return n.args[0], origin
}

// happened reports whether the event of a leaf has come, as often as it has to.
func (r *Run[T]) happened(n *node) bool { return int(r.counts[n.leaf]) >= n.Times }

// feed counts an event in the leaves of n for which matches is true, and that are not over. It advances no THEN.
func (r *Run[T]) feed(n *node, origin, now int64, event T, matches func(*node) bool) {
	if n.window != 0 && now > origin+n.window {
		return
	}
	switch {
	case n.leaf >= 0:
		if !r.happened(n) && matches(n) {
			if r.counts[n.leaf]++; r.happened(n) {
				r.Events[n.leaf] = event
			}
		}
	case n.then >= 0:
		operand, since := r.operand(n, origin)
		r.feed(operand, since, now, event, matches)
	default:
		for _, a := range n.args {
			r.feed(a, origin, now, event, matches)
		}
	}
}

// advance moves the THENs of n on, as far as their operands are true.
func (r *Run[T]) advance(n *node, origin int64, now moment, in context) {
	if n.leaf >= 0 || n.window != 0 && now.time > origin+n.window {
		return
	}
	in = n.context(origin, now, in)
	if n.then < 0 {
		for _, a := range n.args {
			r.advance(a, origin, now, in)
		}
		return
	}
	for {
		operand, since := r.operand(n, origin)
		r.advance(operand, since, now, in)
		if int(r.at[n.then]) == len(n.args)-1 || r.verdict(operand, since, now, in) != True {
			return
		}
		r.at[n.then]++
		r.origins[n.then] = now.time
	}
}

// context says what an open leaf counts as.
type context uint8

const (
	free   context = iota // in no window: false
	open                  // in a window whose deadline has not come: undecided
	closed                // at the deadline of a window: false, and windows inside have ended too
)

// context returns the context of what is inside of n.
func (n *node) context(origin int64, now moment, around context) context {
	if n.window == 0 || around == closed {
		return around
	}
	if now.after(origin + n.window) {
		return closed
	}
	return open
}

// verdict decides n at a moment at which all THENs have advanced.
func (r *Run[T]) verdict(n *node, origin int64, now moment, around context) Verdict {
	in := n.context(origin, now, around)
	switch {
	case n.leaf >= 0:
		if r.happened(n) {
			return True
		}
		if in == open {
			return Undecided
		}
		return False
	case n.then >= 0:
		operand, since := r.operand(n, origin)
		return r.verdict(operand, since, now, in)
	}
	v := r.verdict(n.args[0], origin, now, in)
	for _, a := range n.args[1:] {
		if n.Op == OpAnd {
			v = min(v, r.verdict(a, origin, now, in))
		} else {
			v = max(v, r.verdict(a, origin, now, in))
		}
	}
	if n.Op == OpNot {
		return -v
	}
	return v
}

// may reports whether n is, or may still become, true and false.
func (r *Run[T]) may(n *node, origin int64, now moment, around context) (mayBeTrue, mayBeFalse bool) {
	in := n.context(origin, now, around)
	if in == closed {
		v := r.verdict(n, origin, now, around)
		return v == True, v == False
	}
	switch {
	case n.leaf >= 0:
		happened := r.happened(n)
		return true, !happened
	case n.then >= 0:
		operand, since := r.operand(n, origin)
		mayBeTrue, mayBeFalse = r.may(operand, since, now, in)
		return mayBeTrue, mayBeFalse || int(r.at[n.then]) < len(n.args)-1
	case n.Op == OpNot:
		mayBeTrue, mayBeFalse = r.may(n.args[0], origin, now, in)
		return mayBeFalse, mayBeTrue
	}
	all, some := true, false
	allFalse, someFalse := true, false
	for _, a := range n.args {
		t, f := r.may(a, origin, now, in)
		all, some = all && t, some || t
		allFalse, someFalse = allFalse && f, someFalse || f
	}
	if n.Op == OpAnd {
		return all, someFalse
	}
	return some, allFalse
}

// deadline returns the next deadline that may decide something in n; 0 if there is no such deadline. now is a moment at
// which all THENs have advanced.
func (r *Run[T]) deadline(n *node, origin int64, now moment, around context) int64 {
	in := n.context(origin, now, around)
	if in == closed || n.leaf >= 0 && n.window == 0 || n.window != 0 && r.verdict(n, origin, now, around) != Undecided {
		return 0
	}
	var next int64
	if n.window != 0 {
		next = origin + n.window
	}
	sooner := func(other int64) {
		if other != 0 && (next == 0 || other < next) {
			next = other
		}
	}
	if n.then >= 0 {
		operand, since := r.operand(n, origin)
		sooner(r.deadline(operand, since, now, in))
		return next
	}
	for _, a := range n.args {
		sooner(r.deadline(a, origin, now, in))
	}
	return next
}
