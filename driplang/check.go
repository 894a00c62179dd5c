package driplang

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
)

// Compile checks an expression, and makes it ready to be decided: see [Program]. Errors are of type [*Error]. RFC 0006 and
// docs/driplang.md say what is refused, and why.
func Compile(e *Expr) (*Program, error) {
	p := newProgram(e)
	for _, check := range []func() error{p.checkWindows, p.checkAbsence, p.checkFirst, p.checkAliases} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return p, p.compileConditions()
}

// OnceOnly reports whether the only repeat that the expression allows is `once`: what comes before the first THEN counts from the
// start of the trigger, so it can't become true again.
func (p *Program) OnceOnly() bool { return p.kind == lasting }

// checkWindows refuses windows in windows with a NOT, since it isn't clear which deadline decides that something did not come.
func (p *Program) checkWindows() error {
	var check func(n *node, around bool) error
	check = func(n *node, around bool) error {
		if around && n.window != 0 && n.holdsNot() {
			return n.pos.errorf("%s", windowInWindow)
		}
		if n.window != 0 && n.holdsNot() {
			if inner := n.innerWindow(); inner != nil {
				return inner.pos.errorf("%s", windowInWindow)
			}
		}
		for _, a := range n.args {
			if err := check(a, around || n.window != 0); err != nil {
				return err
			}
		}
		return nil
	}
	return check(p.root, false)
}

// innerWindow returns a node below n that has a window.
func (n *node) innerWindow() *node {
	for _, a := range n.args {
		if a.window != 0 {
			return a
		}
		if inner := a.innerWindow(); inner != nil {
			return inner
		}
	}
	return nil
}

// checkAbsence refuses what is true before anything happened: expressions, and operands before a THEN.
func (p *Program) checkAbsence() error {
	var check func(n *node) error
	check = func(n *node) error {
		for i, a := range n.args {
			if n.then >= 0 && i < len(n.args)-1 {
				if leaf := a.absent(n.negative); leaf != nil {
					if p.first.cannotBegin() != nil { // a WITHIN would not help
						return p.checkFirst()
					}
					return leaf.pos.errorf("NOT %s before a THEN needs a WITHIN of its own: without one, it is true at once. "+
						"Absence between two events is A THEN (C AND NOT B), or A THEN (C WITHIN 1d AND NOT B)", leaf.Expr)
				}
			}
			if err := check(a); err != nil {
				return err
			}
		}
		return nil
	}
	if err := check(p.root); err != nil {
		return err
	}
	if newRun[int](p, 0).verdict(p.first, 0, moment{}, free) == True {
		return p.first.pos.errorf("%s is true before anything has happened: begin with an event, as in A THEN NOT B WITHIN 7d", p.first.Expr)
	}
	return nil
}

// absent returns a leaf below n that counts if it does not happen, and that no window at or below n limits.
func (n *node) absent(negated bool) *node {
	if n.window != 0 {
		return nil
	}
	if n.leaf >= 0 {
		if n.negative != negated {
			return n
		}
		return nil
	}
	for _, a := range n.args {
		if leaf := a.absent(negated); leaf != nil {
			return leaf
		}
	}
	return nil
}

// checkFirst refuses first parts that no event can begin, or that have no origin that suits all leaves.
func (p *Program) checkFirst() error {
	in, out := p.first.anyLeaf(func(n *node) bool { return n.windowed }), p.first.anyLeaf(func(n *node) bool { return !n.windowed })
	if in != nil && out != nil {
		return p.first.pos.errorf("before the first THEN, either all events are in a window, or none is: %s is, and %s is not. "+
			"WITHIN is for what stands right before it: a window around both is (A AND B) WITHIN 1h", in.Expr, out.Expr)
	}
	if bad := p.first.cannotBegin(); bad != nil {
		return bad.pos.errorf("no event can begin %s: begin with an event, as in A THEN NOT B WITHIN 7d", bad.Expr)
	}
	return nil
}

// anyLeaf returns a leaf below n for which ok is true.
func (n *node) anyLeaf(ok func(*node) bool) (found *node) {
	n.allLeaves(func(leaf *node) bool {
		if ok(leaf) {
			found = leaf
		}
		return found == nil
	})
	return found
}

// cannotBegin returns the part of a first part that has to begin with an event, and can't; nil if all parts can.
func (n *node) cannotBegin() *node {
	switch {
	case n.leaf >= 0:
		if n.negative {
			return n
		}
		return nil
	case n.Op == OpNot:
		if n.args[0].cannotBegin() != nil {
			return n
		}
		return nil
	case n.then >= 0:
		return n.args[0].cannotBegin()
	case (n.Op == OpOr) != n.negative: // under a NOT, an AND is the alternative
		for _, a := range n.args {
			if bad := a.cannotBegin(); bad != nil {
				return bad
			}
		}
		return nil
	}
	for _, a := range n.args {
		if a.cannotBegin() == nil {
			return nil
		}
	}
	return n
}

// checkAliases refuses aliases that are not unique.
func (p *Program) checkAliases() error {
	seen := map[string]bool{}
	var twice *Expr
	p.expr.walk(func(e *Expr) {
		if e.As != "" && seen[e.As] && twice == nil {
			twice = e
		}
		seen[e.As] = true
	})
	if twice != nil {
		return twice.pos.errorf("the alias %s is used for two events", twice.As)
	}
	return nil
}

// sure returns the aliases of events that have surely happened once n is true.
func (n *node) sure() (aliases []string) {
	switch {
	case n.leaf >= 0:
		if n.As != "" {
			aliases = append(aliases, n.As)
		}
	case n.Op == OpAnd, n.Op == OpThen:
		for _, a := range n.args {
			aliases = append(aliases, a.sure()...)
		}
	}
	return aliases
}

// compileConditions compiles the condition of each event, with the aliases that it can use.
func (p *Program) compileConditions() error {
	p.conditions = map[*Expr]*Condition{}
	var compile func(n *node, aliases []string) error
	compile = func(n *node, aliases []string) error {
		if n.leaf >= 0 {
			for _, e := range n.events() {
				if e.Where == "" {
					continue
				}
				c, err := CompileCondition(e.Where, aliases...)
				if err != nil {
					return e.pos.errorf("the condition of %s: %v%s", e.Event, err, p.aliasHint(err, aliases))
				}
				if !c.result.IsExactType(cel.BoolType) && !c.result.IsExactType(cel.DynType) {
					return e.pos.errorf("the condition of %s is of type %s: it has to be true or false", e.Event, c.result)
				}
				p.conditions[e] = c
			}
			return nil
		}
		for _, a := range n.args {
			if err := compile(a, aliases); err != nil {
				return err
			}
			if n.then >= 0 {
				aliases = append(slices.Clip(aliases), a.sure()...)
			}
		}
		return nil
	}
	return compile(p.root, nil)
}

// aliasHint explains why an alias is unknown to a condition.
func (p *Program) aliasHint(err error, usable []string) string {
	for alias := range p.aliases {
		if !slices.Contains(usable, alias) && strings.Contains(err.Error(), fmt.Sprintf("undeclared reference to '%s'", alias)) {
			return fmt.Sprintf(". %s can be used only right of a THEN, if left of it its event has surely happened: not in a NOT, nor in one of several alternatives", alias)
		}
	}
	return ""
}

// Emittable returns the aliases that are surely known when a run fires, in the order of the expression.
func (p *Program) Emittable() []string { return p.root.sure() }

// Condition returns the compiled condition of an event of the expression; nil if it has none.
func (p *Program) Condition(e *Expr) *Condition { return p.conditions[e] }

// Uses returns the fields of earlier events that the conditions use.
func (p *Program) Uses() (fields []Field) {
	for _, c := range p.conditions {
		fields = append(fields, c.uses...)
	}
	return fields
}
