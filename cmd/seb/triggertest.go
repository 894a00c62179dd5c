package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/httpapi"
)

type triggerTestCmd struct {
	serverFlag
	outputFlag
	definitionFlags
	Since string `default:"30d" placeholder:"TIME" help:"From when on events count: a duration ago such as 30d, or a time such as 2026-01-31T12:00:00Z (default ${default})."`
}

// Help shows examples.
func (triggerTestCmd) Help() string {
	return `Examples:

    seb trigger test --when 'signed_up THEN NOT logged_in WITHIN 7d' --from events --to reminders
    seb trigger test trigger.json --since 2026-01-31T00:00:00Z
    seb trigger show nudge --output json | jq .definition | seb trigger test - --since 90d

Tells what the trigger would have done, if it had been there. The broker reads the records of the topics since that time, and
appends nothing.`
}

// Run tells what the trigger would have done.
func (c *triggerTestCmd) Run(ctx context.Context, std streams) error {
	spec, err := c.spec(std)
	if err != nil {
		return err
	}
	since, err := parseSince(c.Since, time.Now())
	if err != nil {
		return err
	}
	broker, err := c.client()
	if err != nil {
		return err
	}
	r, err := broker.TestTrigger(ctx, spec.TriggerDefinition, since)
	if err != nil {
		return fmt.Errorf("test the trigger: %w", err)
	}
	if c.json() {
		return printJSON(std.out, r)
	}
	out := newPrinter(std.out)
	out.printf("would have fired %s for %s since %s", counted(r.Firings, "time", "times"), counted(int64(r.Entities), "entity", "entities"),
		r.Since.UTC().Format(timestampLayout))
	if r.Most > 1 {
		out.printf(", at most %d times for one", r.Most)
	}
	out.printf("\nevents: %d; waiting at the end: %s; repeats: %d; dropped: %d; condition errors: %d\n", r.Events,
		counted(int64(r.Waiting), "entity", "entities"), r.Counts.Repeats, r.Counts.Dropped, r.Counts.ConditionErrors)
	if r.Firings == 0 {
		return out.err
	}
	out.printf("\n")
	out.table(func(row *printer) {
		row.printf("DAY\tFIRINGS\n")
		for _, day := range slices.Sorted(maps.Keys(r.ByDay)) {
			row.printf("%s\t%d\n", day, r.ByDay[day])
		}
	})
	out.printf("\nThe first firings:\n")
	printFirings(out, r.Samples)
	return out.err
}

// parseSince returns the time that --since names.
func parseSince(since string, now time.Time) (time.Time, error) {
	if ago, err := httpapi.ParseDuration(since); err == nil && ago > 0 {
		return now.Add(-ago), nil
	}
	t, err := time.Parse(time.RFC3339, since)
	if err != nil {
		return t, usage(fmt.Errorf("invalid --since %q: write a duration such as 30d, or a time such as 2026-01-31T12:00:00Z", since))
	}
	return t, nil
}
