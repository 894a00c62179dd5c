package driplang

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// MarshalJSON returns the canonical JSON of the expression: what [ParseJSON] reads as the same expression. A node is an object
// with one of event, and, or, not and then; an event also has as and where, an event or alternatives have times, and any node
// has within.
func (e *Expr) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e.json(&b)
	return b.Bytes(), nil
}

// opNames are the names of operators in JSON.
var opNames = map[Op]string{OpEvent: "event", OpAnd: "and", OpOr: "or", OpNot: "not", OpThen: "then"}

func (e *Expr) json(b *bytes.Buffer) {
	fmt.Fprintf(b, `{"%s":`, opNames[e.Op])
	switch e.Op {
	case OpEvent:
		b.WriteString(quote(e.Event))
	case OpNot:
		e.Args[0].json(b)
	default:
		for i, a := range e.Args {
			b.WriteByte("[,"[min(i, 1)])
			a.json(b)
		}
		b.WriteByte(']')
	}
	if e.As != "" {
		b.WriteString(`,"as":` + quote(e.As))
	}
	if e.Where != "" {
		b.WriteString(`,"where":` + quote(e.Where))
	}
	if e.Times > 1 {
		fmt.Fprintf(b, `,"times":%d`, e.Times)
	}
	if e.Within != 0 {
		fmt.Fprintf(b, `,"within":"%s"`, FormatDuration(e.Within))
	}
	b.WriteByte('}')
}

// ParseJSON reads an expression from JSON, in the form that [Expr.MarshalJSON] writes. Errors are of type [*Error].
func ParseJSON(text []byte) (*Expr, error) {
	if err := checkText(string(text)); err != nil {
		return nil, err
	}
	p := jsonParser{text: text, dec: json.NewDecoder(bytes.NewReader(text))}
	p.dec.UseNumber()
	e, err := p.node(0)
	if err != nil {
		return nil, err
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, p.at().errorf("expected the end after the expression")
	}
	return e, checkSize(e)
}

// jsonParser reads an expression token by token, so that errors have positions and repeated names are noticed.
type jsonParser struct {
	text []byte
	dec  *json.Decoder
}

// at returns the position of the next token.
func (p *jsonParser) at() position {
	read := p.text[:p.dec.InputOffset()]
	rest := p.text[len(read):]
	read = p.text[:len(read)+len(rest)-len(bytes.TrimLeft(rest, " \t\r\n,:"))]
	line := bytes.LastIndexByte(read, '\n') + 1
	return position{line: 1 + bytes.Count(read, []byte("\n")), column: 1 + utf8.RuneCount(read[line:])}
}

// token reads the next token, and returns where it stands.
func (p *jsonParser) token(what string) (json.Token, position, error) {
	at := p.at()
	t, err := p.dec.Token()
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, at, at.errorf("expected %s, found the end", what)
	case errors.As(err, &syntax):
		return nil, at, at.errorf("expected %s: invalid JSON: %v", what, syntax)
	case err != nil:
		return nil, at, at.errorf("expected %s: %v", what, err)
	}
	return t, at, nil
}

// node reads an object.
func (p *jsonParser) node(depth int) (*Expr, error) {
	if depth > maxNesting {
		return nil, p.at().errorf("more than %d objects in each other", maxNesting)
	}
	const what = "an object with one of event, and, or, not and then"
	t, at, err := p.token(what)
	if err != nil {
		return nil, err
	}
	if t != json.Delim('{') {
		return nil, at.errorf("expected %s, found %v", what, t)
	}
	n := jsonNode{Expr: Expr{Times: 1, pos: at}, seen: map[string]position{}}
	for p.dec.More() {
		t, nameAt, err := p.token("a name")
		if err != nil {
			return nil, err
		}
		name, ok := t.(string)
		if !ok {
			return nil, nameAt.errorf("expected a name, found %v", t)
		}
		if _, twice := n.seen[name]; twice {
			return nil, nameAt.errorf("%q stands twice in one object", name)
		}
		n.seen[name] = p.at()
		if err := p.field(&n, name, nameAt, depth); err != nil {
			return nil, err
		}
	}
	if _, _, err := p.token("}"); err != nil {
		return nil, err
	}
	return n.finish()
}

// jsonNode is a node that is being read.
type jsonNode struct {
	Expr
	seen     map[string]position // the fields, and where their values stand
	times    int
	duration string
}

func (p *jsonParser) field(n *jsonNode, name string, at position, depth int) (err error) {
	operator := func(op Op) error {
		if n.Op != 0 {
			return at.errorf("an object has one of event, and, or, not and then: %q is a second one", name)
		}
		n.Op = op
		return nil
	}
	switch name {
	case "event":
		if err := operator(OpEvent); err != nil {
			return err
		}
		n.Event, err = p.str()
	case "not":
		if err := operator(OpNot); err != nil {
			return err
		}
		var arg *Expr
		if arg, err = p.node(depth + 1); err == nil {
			n.Args = []*Expr{arg}
		}
	case "and", "or", "then":
		if err := operator(map[string]Op{"and": OpAnd, "or": OpOr, "then": OpThen}[name]); err != nil {
			return err
		}
		n.Args, err = p.list(name, depth)
	case "as":
		n.As, err = p.str()
	case "where":
		n.Where, err = p.str()
	case "within":
		n.duration, err = p.str()
	case "times":
		n.times, err = p.integer()
	default:
		return at.errorf("unknown field %q: expected event, and, or, not, then, as, where, times or within", name)
	}
	return err
}

func (p *jsonParser) str() (string, error) {
	t, at, err := p.token("a string")
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", at.errorf("expected a string, found %v", t)
	}
	return s, nil
}

func (p *jsonParser) integer() (int, error) {
	t, at, err := p.token("a number")
	if err != nil {
		return 0, err
	}
	n, _ := t.(json.Number)
	i, err := n.Int64()
	if err != nil || i < 1 || i > MaxTimes {
		return 0, at.errorf("times is a number from 1 to %d, not %v", MaxTimes, t)
	}
	return int(i), nil
}

func (p *jsonParser) list(name string, depth int) (args []*Expr, _ error) {
	t, at, err := p.token("a list")
	if err != nil {
		return nil, err
	}
	if t != json.Delim('[') {
		return nil, at.errorf("expected a list, found %v", t)
	}
	for p.dec.More() {
		arg, err := p.node(depth + 1)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
	if len(args) < 2 {
		return nil, at.errorf("%q needs at least two operands", name)
	}
	_, _, err = p.token("]")
	return args, err
}

// finish checks the node as a whole, and makes it canonical.
func (n *jsonNode) finish() (*Expr, error) {
	e := &n.Expr
	for _, name := range []string{"as", "where"} {
		if at, has := n.seen[name]; has && e.Op != OpEvent {
			return nil, at.errorf("%q stands beside event only", name)
		}
	}
	switch e.Op {
	case 0:
		return nil, e.pos.errorf("the object has none of event, and, or, not and then")
	case OpEvent:
		if err := n.finishEvent(); err != nil {
			return nil, err
		}
	case OpAnd, OpOr, OpThen:
		e = join(e.Op, e.Args, e.pos)
	case OpNot:
	}
	if at, has := n.seen["times"]; has {
		e.pos = at // of the error
		if err := e.repeat(n.times); err != nil {
			return nil, err
		}
		e.pos = n.pos
	}
	if at, has := n.seen["within"]; has {
		d, err := ParseDuration(n.duration)
		if err != nil {
			return nil, at.errorf("within: %v", err)
		}
		return e, e.within(d)
	}
	return e, nil
}

func (n *jsonNode) finishEvent() error {
	if n.Event == "" {
		return n.seen["event"].errorf("the name of an event is empty")
	}
	if err := n.checkName(); err != nil {
		return err
	}
	if at, has := n.seen["as"]; has {
		if err := checkAlias(n.As, at); err != nil {
			return err
		}
	}
	if at, has := n.seen["where"]; has {
		n.Where = strings.TrimSpace(n.Where)
		l := newLexer("[" + n.Where + "]")
		if got, err := l.condition(); err != nil || got != n.Where || !l.ended() {
			return at.errorf("where is not a condition: its brackets and strings have to be closed")
		}
	}
	return nil
}
