package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/simple-event-broker/seb/driplang"
)

type triggerCmd struct {
	Set      triggerSetCmd      `cmd:"" help:"Create a trigger, or store another version of it."`
	List     triggerListCmd     `cmd:"" help:"List all triggers, and how often they have fired."`
	Show     triggerShowCmd     `cmd:"" help:"Explain a trigger, and show its counts."`
	Versions triggerVersionsCmd `cmd:"" help:"List the versions of a trigger."`
	Firings  triggerFiringsCmd  `cmd:"" help:"Show the last firings of a trigger."`
	Explain  triggerExplainCmd  `cmd:"" help:"Tell what each event of an entity did."`
	Check    triggerCheckCmd    `cmd:"" help:"Check an expression, and say in English what it means."`
	Eval     triggerEvalCmd     `cmd:"" help:"Say whether an expression is true of a list of events."`
	Test     triggerTestCmd     `cmd:"" help:"Tell what a trigger would have done in the past."`
	Pause    triggerPauseCmd    `cmd:"" help:"Stop a trigger until it is resumed."`
	Resume   triggerResumeCmd   `cmd:"" help:"Let a trigger fire again."`
	Delete   triggerDeleteCmd   `cmd:"" help:"Delete a trigger."`
}

// Help tells what triggers are.
func (triggerCmd) Help() string {
	return `A trigger watches topics, and appends a record to a topic each time that an expression becomes true for an entity, such as a
user. The expression is in driplang, and says what has to happen, and what must not, such as

    user_created THEN NOT use_feature_x WITHIN 7d

Brokers run triggers; with API keys, a key needs the scope admin for all topics. Check and eval need no broker. docs/triggers.md is
a tutorial, docs/driplang.md describes the language. Delete asks first on a terminal, unless you add --yes.`
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
