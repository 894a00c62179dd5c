package driplang

import (
	"encoding/json"
	"fmt"
	"strings"
)

// String returns the canonical text of the expression: what [Parse] reads as the same expression, with as few parentheses as
// possible.
func (e *Expr) String() string {
	var b strings.Builder
	e.print(&b, levelExpr)
	return b.String()
}

// level says which forms of the grammar a place allows without parentheses. Each level allows those above it too.
type level int

const (
	levelExpr level = iota
	levelOr
	levelAnd
	levelTerm
	levelPrimary
)

var listLevels = map[Op]struct {
	level level // the level of the list; its operands are one higher
	word  string
}{OpThen: {levelExpr, " THEN "}, OpOr: {levelOr, " OR "}, OpAnd: {levelAnd, " AND "}}

// level returns the form that e is printed as.
func (e *Expr) level() level {
	switch {
	case e.Within != 0:
		return levelTerm
	case e.Op == OpEvent || e.Times > 1:
		return levelPrimary
	case e.Op == OpNot:
		return levelTerm
	default:
		return listLevels[e.Op].level
	}
}

func (e *Expr) print(b *strings.Builder, at level) {
	if e.level() < at {
		b.WriteByte('(')
		defer b.WriteByte(')')
	}
	if e.Times > 1 {
		fmt.Fprintf(b, "%d TIMES ", e.Times)
	}
	switch list := listLevels[e.Op]; {
	case e.Op == OpEvent:
		e.printEvent(b)
	case e.Op == OpNot:
		b.WriteString("NOT ")
		e.Args[0].print(b, levelPrimary)
	case e.Within != 0 || e.Times > 1:
		b.WriteByte('(')
		e.printList(b, list.level, list.word)
		b.WriteByte(')')
	default:
		e.printList(b, list.level, list.word)
	}
	if e.Within != 0 {
		b.WriteString(" WITHIN " + FormatDuration(e.Within))
	}
}

func (e *Expr) printList(b *strings.Builder, at level, word string) {
	for i, a := range e.Args {
		if i > 0 {
			b.WriteString(word)
		}
		a.print(b, at+1)
	}
}

func (e *Expr) printEvent(b *strings.Builder) {
	if e.Event == Any || isPlain(e.Event) {
		b.WriteString(e.Event)
	} else {
		b.WriteString(quote(e.Event))
	}
	if e.As != "" {
		b.WriteString(" AS " + e.As)
	}
	if e.Where != "" {
		b.WriteString(" [" + e.Where + "]")
	}
}

// quote returns s as a string of JSON, without escapes for HTML.
func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // no string fails
	}
	return strings.TrimSuffix(b.String(), "\n")
}
