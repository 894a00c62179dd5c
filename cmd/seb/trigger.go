package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/simple-event-broker/seb/driplang"
)

type triggerCmd struct {
	Check triggerCheckCmd `cmd:"" help:"Check an expression, and say in English what it means."`
	Eval  triggerEvalCmd  `cmd:"" help:"Say whether an expression is true of a list of events."`
}

// Help tells what expressions are.
func (triggerCmd) Help() string {
	return `An expression in driplang says what has to happen, and what must not, such as

    user_created THEN NOT use_feature_x WITHIN 7d

These commands need no broker. docs/driplang.md describes the language.`
}

// whenArg is an expression on the command line.
type whenArg struct {
	When string `arg:"" help:"The expression, as text or as JSON; @FILE reads it from a file, and - from standard input."`
}

// parse reads the expression.
func (a whenArg) parse(std streams) (*driplang.Expr, error) {
	text, err := a.text(std)
	if err != nil {
		return nil, err
	}
	parse := driplang.Parse
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		parse = func(text string) (*driplang.Expr, error) { return driplang.ParseJSON([]byte(text)) }
	}
	e, err := parse(text)
	if err != nil {
		return nil, usage(err)
	}
	return e, nil
}

func (a whenArg) text(std streams) (string, error) {
	switch {
	case a.When == "-":
		return readExpression(std.in)
	case strings.HasPrefix(a.When, "@"):
		f, err := os.Open(a.When[1:])
		if err != nil {
			return "", usage(fmt.Errorf("read the expression: %w", err))
		}
		defer func() { _ = f.Close() }() // it was only read
		return readExpression(f)
	}
	return a.When, nil
}

// readExpression reads one byte more than an expression can have, so that the parser says what is wrong with a longer one.
func readExpression(r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, driplang.MaxText+1))
	if err != nil {
		return "", fmt.Errorf("read the expression: %w", err)
	}
	return string(text), nil
}
