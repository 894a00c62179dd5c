package driplang

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

var keywords = []string{"THEN", "OR", "AND", "NOT", "WITHIN", "TIMES", "AS"}

// Parse reads an expression from text:
//
//	expr     = or { "THEN" or } .
//	or       = and { "OR" and } .
//	and      = term { "AND" term } .
//	term     = [ "NOT" ] primary [ "WITHIN" duration ] .
//	primary  = [ number "TIMES" ] ( event | "(" expr ")" ) .
//	event    = name [ "AS" alias ] [ "[" condition "]" ] .
//	duration = number unit { number unit } .
//
// Errors are of type [*Error]. Parse does not look into conditions, and accepts expressions that make no sense: see [Check].
func Parse(text string) (*Expr, error) {
	if err := checkText(text); err != nil {
		return nil, err
	}
	p := parser{lexer: newLexer(text)}
	p.space()
	e, err := p.expr()
	if err != nil {
		return nil, err
	}
	if !p.ended() {
		return nil, p.expected(`THEN, OR, AND, WITHIN or the end`)
	}
	return e, checkSize(e)
}

func checkText(text string) error {
	if len(text) > MaxText {
		return position{}.errorf("the expression has %d bytes: at most %d are allowed", len(text), MaxText)
	}
	if !utf8.ValidString(text) {
		return position{}.errorf("the expression is not UTF-8")
	}
	return nil
}

// checkSize checks the limits that count over the whole tree.
func checkSize(e *Expr) error {
	nodes, aliases := 0, 0
	e.walk(func(x *Expr) {
		nodes++
		if x.As != "" {
			aliases++
		}
	})
	if nodes > MaxNodes {
		return position{}.errorf("the expression has %d nodes (events and operators): at most %d are allowed", nodes, MaxNodes)
	}
	if aliases > MaxAliases {
		return position{}.errorf("the expression has %d aliases: at most %d are allowed", aliases, MaxAliases)
	}
	// Both forms have to be readable again, and either may be longer than what was read.
	var js bytes.Buffer
	e.json(&js)
	if longer := max(len(e.String()), js.Len()); longer > MaxText {
		return position{}.errorf("the expression has %d bytes in its canonical text or JSON: at most %d are allowed", longer, MaxText)
	}
	return nil
}

// parser reads an expression by recursive descent. Each of its functions begins at a token, and ends at the next one.
type parser struct {
	lexer
	depth int
}

func (p *parser) expected(what string) error {
	return p.pos.errorf("expected %s, found %s", what, p.found())
}

// keyword returns the keyword that is next, or nothing.
func (p *parser) keyword() string {
	at := p.lexer
	if name := at.name(); slices.Contains(keywords, name) {
		return name
	}
	return ""
}

// accept reads a keyword if it is next.
func (p *parser) accept(word string) bool {
	if p.keyword() != word {
		return false
	}
	p.take(len(word))
	p.space()
	return true
}

func (p *parser) expr() (*Expr, error) { return p.list(OpThen, "THEN", p.or) }

func (p *parser) or() (*Expr, error) { return p.list(OpOr, "OR", p.and) }

func (p *parser) and() (*Expr, error) { return p.list(OpAnd, "AND", p.term) }

// list reads operands with a keyword between them.
func (p *parser) list(op Op, word string, operand func() (*Expr, error)) (*Expr, error) {
	at := p.pos
	var args []*Expr
	for {
		e, err := operand()
		if err != nil {
			return nil, err
		}
		args = append(args, e)
		if len(args) > MaxNodes {
			return nil, at.errorf("the expression has more than %d nodes (events and operators)", MaxNodes)
		}
		if !p.accept(word) {
			return join(op, args, at), nil
		}
	}
}

func (p *parser) term() (*Expr, error) {
	at := p.pos
	not := p.accept("NOT")
	e, err := p.primary()
	if err != nil {
		return nil, err
	}
	if not {
		e = &Expr{Op: OpNot, Times: 1, Args: []*Expr{e}, pos: at}
	}
	if p.accept("WITHIN") {
		d, wrong := p.duration()
		if wrong != nil {
			return nil, wrong
		}
		if err := e.within(d); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (p *parser) primary() (*Expr, error) {
	times := 1
	if isDigit(p.next()) {
		at := p.pos
		times, _ = p.number()
		if times < 1 || times > MaxTimes {
			return nil, at.errorf("TIMES takes a number from 1 to %d", MaxTimes)
		}
		p.space()
		if !p.accept("TIMES") {
			return nil, p.expected("TIMES")
		}
	}
	e, err := p.operand()
	if err != nil {
		return nil, err
	}
	if times > 1 {
		return e, e.repeat(times)
	}
	return e, nil
}

// operand reads an event, or an expression in parentheses.
func (p *parser) operand() (*Expr, error) {
	if p.next() != '(' {
		return p.event()
	}
	if p.depth++; p.depth > maxNesting {
		return nil, p.pos.errorf("more than %d parentheses in each other", maxNesting)
	}
	p.take(1)
	p.space()
	e, err := p.expr()
	if err != nil {
		return nil, err
	}
	if p.next() != ')' {
		return nil, p.expected(`THEN, OR, AND, WITHIN or ")"`)
	}
	p.take(1)
	p.space()
	p.depth--
	return e, nil
}

func (p *parser) event() (*Expr, error) {
	e := &Expr{Op: OpEvent, Times: 1, pos: p.pos}
	switch next := p.next(); {
	case next == '*':
		e.Event = p.take(1)
	case next == '"':
		name, err := p.quoted()
		if err != nil {
			return nil, err
		}
		e.Event = name
	case p.keyword() == "":
		e.Event = p.name()
	}
	if e.Event == "" {
		return nil, p.expected(`an event, NOT, a number or "("`)
	}
	if err := e.checkName(); err != nil {
		return nil, err
	}
	p.space()
	if p.accept("AS") {
		at := p.pos
		e.As = p.takeWhile(isNamePart)
		if err := checkAlias(e.As, at); err != nil {
			return nil, err
		}
		p.space()
	}
	if p.next() == '[' {
		where, err := p.condition()
		if err != nil {
			return nil, err
		}
		e.Where = where
		p.space()
	}
	return e, nil
}

func (e *Expr) checkName() error {
	if len(e.Event) > MaxName {
		return e.pos.errorf("the name of an event has at most %d bytes", MaxName)
	}
	return nil
}

// checkAlias checks that an alias can be a variable in conditions.
func checkAlias(alias string, at position) error {
	letter := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' }
	bad := strings.ContainsFunc(alias, func(r rune) bool { return !letter(r) && (r < '0' || r > '9') })
	switch {
	case alias == "" || bad || !letter(rune(alias[0])):
		return at.errorf("expected an alias after AS: ASCII letters, digits and _, beginning with a letter or _")
	case len(alias) > maxAlias:
		return at.errorf("an alias has at most %d characters", maxAlias)
	case slices.Contains(reserved, alias), slices.Contains(keywords, alias):
		return at.errorf("%s can't be an alias: the word means something else", alias)
	}
	return nil
}

// reserved are the words that are no aliases: the variables of conditions, and the reserved words and functions of CEL (the
// language definition of CEL lists them under "identifiers").
var reserved = []string{
	"data", "key", "headers", "topic", "time", "log_time",
	"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
	"package", "namespace", "return", "var", "void", "while",
	"bool", "bytes", "double", "duration", "dyn", "int", "list", "map", "string", "timestamp", "type", "uint", "null_type",
}
