package main

import (
	"fmt"
	"strings"

	"github.com/simple-event-broker/seb/driplang"
)

type triggerCheckCmd struct {
	outputFlag
	whenArg
	Repeat driplang.Repeat `default:"once" placeholder:"REPEAT" help:"How often an entity can fire: once, every, or for example 'at most 3 per 1d' (default ${default})."`
}

// Help shows examples.
func (triggerCheckCmd) Help() string {
	return `Examples:

    seb trigger check 'user_created THEN NOT use_feature_x WITHIN 7d'
    seb trigger check 'H THEN NOT H WITHIN 1m' --repeat every
    seb trigger check 'A AS a THEN B [data.plan == a.data.plan]' --output json | jq .json
    seb trigger check @when.drip

Exit codes: 0 the expression is valid, perhaps with warnings; 2 it is not.`
}

// Run explains the expression.
func (c *triggerCheckCmd) Run(std streams) error {
	e, err := c.parse(std)
	if err != nil {
		return err
	}
	r, err := driplang.Check(e, c.Repeat)
	if err != nil {
		return usage(err)
	}
	if c.json() {
		return printJSON(std.out, r)
	}
	p := newPrinter(std.out)
	p.printf("%s\n\n", r.English)
	p.printf("text     %s\n", r.Text)
	p.printf("repeat   %s\n", r.Repeat)
	p.printf("events   %s\n", strings.Join(r.Events, ", "))
	p.printf("keeps    %s\n", r.Kept)
	if r.Cost > 0 {
		p.printf("cost     at most %s for one event\n", fmt.Sprintf("%d units of CEL", r.Cost))
	}
	for _, w := range r.Warnings {
		p.printf("%s\n", p.paint(red, "warning  "+w))
	}
	return p.err
}
