package driplang

import (
	"fmt"
	"strings"
	"time"
)

// Report explains an expression to the person who wrote it.
type Report struct {
	Text     string   `json:"text"`     // the canonical text
	JSON     *Expr    `json:"json"`     // the canonical JSON
	Repeat   Repeat   `json:"repeat"`   // what it was checked with
	English  string   `json:"english"`  // what it says, in English
	Warnings []string `json:"warnings"` // what is allowed, and probably not meant
	Kept     Kept     `json:"kept"`     // what a trigger keeps for an entity
	Events   []string `json:"events"`   // the names of the events that it looks at; "*" means all
	Aliases  []string `json:"aliases"`  // the aliases that emit can use
	Cost     uint64   `json:"cost"`     // the most that the conditions can cost for one event, in cost units of CEL
}

// Kept says how long a trigger keeps something for an entity.
type Kept string

// What is kept.
const (
	KeptNothing Kept = "nothing"
	KeptWindow  Kept = "while a window is open"
	KeptForever Kept = "a few bytes for each entity, forever"
)

// Check compiles an expression, and explains it. Errors are of type [*Error].
func Check(e *Expr, repeat Repeat) (*Report, error) {
	p, err := Compile(e)
	if err != nil {
		return nil, err
	}
	if err := p.CheckRepeat(repeat); err != nil {
		return nil, err
	}
	r := &Report{
		Text: e.String(), JSON: e, Repeat: repeat, English: p.english(repeat), Warnings: p.warnings(), Kept: p.kept(repeat),
		Events: p.Names(), Aliases: p.Emittable(),
	}
	for _, c := range p.conditions {
		r.Cost += c.Cost()
	}
	return r, nil
}

// CheckRepeat checks that the expression can have a repeat.
func (p *Program) CheckRepeat(repeat Repeat) error {
	if p.kind == lasting && repeat != Once {
		return p.first.pos.errorf("%s counts from the start of the trigger, so it stays true: the repeat can only be once. "+
			"Put a WITHIN around it, or write THEN in the place of AND", p.first.Expr)
	}
	return nil
}

func (p *Program) warnings() []string {
	warnings := []string{}
	if last := p.root; last.then >= 0 && last.window == 0 {
		last = last.args[len(last.args)-1]
		if newRun[int](p, 0).verdict(last, 0, moment{}, free) == True {
			limited := *last.Expr
			limited.Within = week
			warnings = append(warnings, fmt.Sprintf(
				"%s is true as soon as what is left of it has happened: WITHIN is probably missing, as in %s", last.Expr, &limited))
		}
	}
	if p.first.leaf >= 0 && p.first.Times == 1 && p.first.window != 0 {
		warnings = append(warnings, fmt.Sprintf(
			"the window of %s does nothing, since it begins with this event: a WITHIN is probably meant for what comes after a THEN", p.first.Expr))
	}
	if p.kind == lasting {
		warnings = append(warnings, fmt.Sprintf(
			"%s counts from the start of the trigger: an event before counts as if it had not happened, and one after it counts forever", p.first.Expr))
	}
	return warnings
}

func (p *Program) kept(repeat Repeat) Kept {
	switch {
	case repeat == Once || p.kind == lasting || p.kind == counting && p.first.window == 0:
		return KeptForever
	case p.root == p.first && p.kind == simple && repeat == Every:
		return KeptNothing
	case p.root.anyLeaf(func(n *node) bool { return !n.inFirst && !n.windowed }) != nil:
		return KeptForever
	}
	return KeptWindow
}

// english says in a sentence or two when the expression fires.
func (p *Program) english(repeat Repeat) string {
	s := p.when()
	switch {
	case repeat == Once:
		s += " Each entity fires once."
	case repeat.most > 0:
		s += fmt.Sprintf(" Each entity fires at most %s in %s.", plural(repeat.most, "time"), spell(repeat.per))
	}
	return s
}

func (p *Program) when() string {
	if p.root.Op != OpThen || p.root.window != 0 {
		return "Fires when " + p.root.clause(false) + "."
	}
	last := p.root.args[len(p.root.args)-1]
	before := p.root.args[:len(p.root.args)-1]
	if absent := absence(last); absent != nil && len(before) == 1 && p.kind == simple {
		return fmt.Sprintf("Fires %s after %s if no %s comes before.", spell(last.Within), p.first.noun(),
			strings.ReplaceAll(absent.noun(), "any event", "event"))
	}
	var parts []string
	for i, a := range p.root.args {
		part := a.clause(i > 0)
		if i > 0 {
			part = "then " + part
		}
		parts = append(parts, part)
	}
	s := "Fires when " + strings.Join(parts, ", ") + "."
	if last.window != 0 && last.holdsNot() {
		s += " What does not come is known for certain when that time is over."
	}
	return s
}

// absence returns E if n is NOT E WITHIN d, with an event or alternatives as E.
func absence(n *node) *node {
	if n.window == 0 || n.Op != OpNot || kindOf(n.args[0]) != simple {
		return nil
	}
	return n.args[0]
}

// noun names an event, or alternatives.
func (n *node) noun() string { return noun(n.Expr) }

func noun(e *Expr) string {
	if e.Op == OpOr {
		var all []string
		for _, a := range e.Args {
			all = append(all, noun(a))
		}
		return strings.Join(all, " or ")
	}
	s := e.Event
	if s == Any {
		s = "any event"
	}
	if e.Where != "" {
		s += " with [" + e.Where + "]"
	}
	return s
}

// clause says that n becomes true. inner is set if it stands behind a THEN.
func (n *node) clause(inner bool) (s string) {
	switch {
	case n.leaf >= 0 && n.Times > 1:
		s = fmt.Sprintf("%s comes %d times", noun(withoutTimes(n.Expr)), n.Times)
	case n.leaf >= 0:
		s = n.noun() + " comes"
	case n.Op == OpNot && n.args[0].leaf >= 0 && n.args[0].Times == 1 && n.args[0].window == 0:
		s = n.args[0].noun() + " does not come"
	case n.Op == OpNot:
		s = "it is not so that (" + n.args[0].clause(inner) + ")"
	default:
		word := map[Op]string{OpAnd: " and ", OpOr: " or ", OpThen: ", then "}[n.Op]
		var all []string
		for _, a := range n.args {
			part := a.clause(inner)
			// Without parentheses, "A comes and B comes within 1 hour" would be read as (A AND B) WITHIN 1h.
			if a.leaf < 0 && a.Op != OpNot && a.window == 0 || a.window != 0 && n.Op != OpThen {
				part = "(" + part + ")"
			}
			all = append(all, part)
		}
		s = strings.Join(all, word)
	}
	if n.window == 0 {
		return s
	}
	if n.leaf < 0 && n.Op != OpNot {
		s = "(" + s + ")"
	}
	if inner {
		return s + " within " + spell(n.Within)
	}
	return s + " within " + spell(n.Within) + " of the first of these events"
}

// withoutTimes returns e with a count of 1.
func withoutTimes(e *Expr) *Expr {
	once := *e
	once.Times = 1
	return &once
}

// spell writes a duration in words.
func spell(d time.Duration) string {
	var parts []string
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{day, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if n := d / u.of; n > 0 {
			parts = append(parts, plural(int(n), u.name))
			d %= u.of
		}
	}
	return strings.Join(parts, " ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
