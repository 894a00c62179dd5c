package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/driplang"
)

type triggerListCmd struct {
	serverFlag
	outputFlag
}

// Help shows examples.
func (triggerListCmd) Help() string {
	return `Examples:

    seb trigger list
    seb trigger list --output json | jq -r '.triggers[].name'

One broker runs the triggers of a log. FIRED and WAITING are known to that broker: it counts from when it began to run
them. WAITING is how many entities wait for an event or a deadline.`
}

// Run prints a line per trigger.
func (c *triggerListCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	l, err := broker.Triggers(ctx)
	if err != nil {
		return fmt.Errorf("list triggers: %w", err)
	}
	if c.json() {
		return printJSON(std.out, l)
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("TRIGGER\tVERSION\tMODE\tFROM\tTO\tFIRED\tWAITING\tWHEN\n")
		for _, t := range l.Triggers {
			d := t.Definition
			fired, waiting := known(t)
			row.printf("%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Name, t.Version, d.Mode, strings.Join(d.From, ","), d.To, fired, waiting, d.When)
		}
	})
	if l.Error != "" {
		out.printf("%s\n", out.paint(red, "this broker can't run the triggers: "+l.Error))
	}
	return out.err
}

// known returns how often a trigger has fired, and how many entities wait; - if the broker that answered doesn't know.
func known(t client.Trigger) (fired, waiting string) {
	if t.Counts == nil || t.Waiting == nil {
		return "-", "-"
	}
	return fmt.Sprint(t.Counts.Fired), fmt.Sprint(*t.Waiting)
}

type triggerShowCmd struct{ triggerFlags }

// Help shows examples.
func (triggerShowCmd) Help() string {
	return `Examples:

    seb trigger show nudge
    seb trigger show nudge --output json | jq .definition`
}

// Run explains the trigger.
func (c *triggerShowCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	t, err := broker.Trigger(ctx, c.Trigger)
	if err != nil {
		return c.failed("show", err)
	}
	if c.json() {
		return printJSON(std.out, t)
	}
	d := t.Definition
	p := newPrinter(std.out)
	if english, ok := inEnglish(d); ok {
		p.printf("%s\n\n", english)
	}
	p.printf("when     %s\n", d.When)
	p.printf("repeat   %s\n", d.Repeat)
	p.printf("from     %s\n", strings.Join(d.From, ", "))
	p.printf("to       %s\n", d.To)
	if d.By != "" {
		p.printf("by       %s\n", d.By)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Emit)) {
		p.printf("emit     %s: %s\n", name, d.Emit[name])
	}
	p.printf("start    %s\n", d.Start)
	p.printf("mode     %s\n", d.Mode)
	if t.Restored {
		p.printf("%s\n", p.paint(red, "warning  the log is a copy, so the trigger waits: seb trigger resume "+t.Name))
	}
	p.printf("version  %d, of %s\n", t.Version, t.At.UTC().Format(timestampLayout))
	if n := t.Counts; n != nil && t.Waiting != nil {
		p.printf("waiting  %s\n", counted(int64(*t.Waiting), "entity", "entities"))
		p.printf("counts   events: %d; fired: %d; lost: %d; repeats: %d; dropped: %d; condition errors: %d; gaps: %d\n",
			n.Events, n.Fired, n.Lost, n.Repeats, n.Dropped, n.ConditionErrors, n.Gaps)
	}
	return p.err
}

// inEnglish returns what a definition says, in English; false if this seb does not understand it, for example since the broker is newer.
func inEnglish(d client.TriggerDefinition) (string, bool) {
	e, err := driplang.Parse(d.When)
	if err != nil {
		return "", false
	}
	repeat, err := driplang.ParseRepeat(cmp.Or(d.Repeat, "once"))
	if err != nil {
		return "", false
	}
	r, err := driplang.Check(e, repeat)
	if err != nil {
		return "", false
	}
	return r.English, true
}

type triggerExplainCmd struct {
	triggerFlags
	Entity string `arg:"" help:"The entity, such as the id of a user."`
}

// Help shows examples.
func (triggerExplainCmd) Help() string {
	return `Examples:

    seb trigger explain nudge 42
    seb trigger explain nudge 42 --output json | jq '.steps[-1]'

The broker evaluates the records of the topics again, since the start of the trigger, under its last version. A line without an
event is a deadline. RUNS are open after the event: each began with an event that may still lead to a firing.`
}

// Run prints a line per event and deadline.
func (c *triggerExplainCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	x, err := broker.ExplainTrigger(ctx, c.Trigger, c.Entity)
	if err != nil {
		return c.failed("explain", err)
	}
	if c.json() {
		return printJSON(std.out, x)
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("TIME\tEVENT\tRUNS\tWHAT IT DID\n")
		for _, s := range x.Steps {
			event := "-"
			if s.Event != nil {
				event = fmt.Sprintf("%s (%s %d/%d)", oneLine(s.Event.Event), s.Event.Topic, s.Event.Partition, s.Event.Offset)
			}
			row.printf("%s\t%s\t%d\t%s\n", s.Time.UTC().Format(timestampLayout), event, s.Open, strings.Join(s.Did, "; "))
		}
	})
	if !x.Next.IsZero() {
		out.printf("\nthe next deadline is at %s\n", x.Next.UTC().Format(timestampLayout))
	}
	return out.err
}

type triggerVersionsCmd struct{ triggerFlags }

// Help shows examples.
func (triggerVersionsCmd) Help() string {
	return `Examples:

    seb trigger versions nudge
    seb trigger versions nudge --output json | jq '.versions[1].definition' | seb trigger set nudge -

The newest version comes first. The second example goes back to the version before.`
}

// Run prints a line per version.
func (c *triggerVersionsCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	all, err := broker.TriggerVersions(ctx, c.Trigger)
	if err != nil {
		return c.failed("show the versions of", err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"versions": all})
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("VERSION\tAT\tMODE\tREPEAT\tWHEN\n")
		for _, t := range all {
			row.printf("%d\t%s\t%s\t%s\t%s\n", t.Version, t.At.UTC().Format(timestampLayout), t.Definition.Mode, t.Definition.Repeat, t.Definition.When)
		}
	})
	return out.err
}

type triggerFiringsCmd struct {
	triggerFlags
	Limit int `default:"100" placeholder:"N" help:"How many firings to show, 1 to 1000 (default ${default})."`
}

// Help shows examples.
func (triggerFiringsCmd) Help() string {
	return `Examples:

    seb trigger firings nudge
    seb trigger firings nudge --limit 1000 --output json | jq -r '.firings[].entity'

The newest firing comes first. They are read from the last records of the topic that gets them; seb consume shows all. DUE
is when the expression became true, EVENTS are those that made it true.`
}

// Run prints a line per firing.
func (c *triggerFiringsCmd) Run(ctx context.Context, std streams) error {
	if c.Limit < 1 || c.Limit > 1000 {
		return usage(fmt.Errorf("invalid --limit %d: it must be from 1 to 1000", c.Limit))
	}
	broker, err := c.client()
	if err != nil {
		return err
	}
	all, err := broker.Firings(ctx, c.Trigger, c.Limit)
	if err != nil {
		return c.failed("show the firings of", err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"firings": all})
	}
	out := newPrinter(std.out)
	printFirings(out, all)
	return out.err
}

// printFirings prints a table of firings.
func printFirings(out *printer, all []client.Firing) {
	out.table(func(row *printer) {
		row.printf("DUE\tENTITY\tVERSION\tEVENTS\tEMIT\n")
		for _, f := range all {
			var events []string
			for _, e := range f.Events {
				events = append(events, fmt.Sprintf("%s (%s %d/%d)", oneLine(e.Event), e.Topic, e.Partition, e.Offset))
			}
			emit, err := json.Marshal(f.Emit)
			if err != nil || f.Emit == nil {
				emit = []byte("-")
			}
			row.printf("%s\t%s\t%d\t%s\t%s\n", f.Due.UTC().Format(timestampLayout), oneLine(f.Entity), f.Version, strings.Join(events, ", "), emit)
		}
	})
}
