package main

import (
	"context"
	"fmt"

	"github.com/simple-event-broker/seb/client"
)

// triggerFlags name a trigger, and a broker.
type triggerFlags struct {
	serverFlag
	outputFlag
	Trigger string `arg:"" help:"Name of the trigger."`
}

// failed adds what the command was doing, a verb such as "show", and the trigger to err.
func (f triggerFlags) failed(doing string, err error) error {
	return fmt.Errorf("%s trigger %s: %w", doing, f.Trigger, unsure(err, "`seb trigger versions "+f.Trigger+"`"))
}

// tell prints a version that was stored: as JSON, or as a line of text.
func (f triggerFlags) tell(std streams, t client.Trigger, did string) error {
	if f.json() {
		return printJSON(std.out, t)
	}
	_, err := fmt.Fprintf(std.out, "trigger %s %s: version %d\n", f.Trigger, did, t.Version)
	return err
}

type triggerSetCmd struct {
	triggerFlags
	definitionFlags
	Replace string `enum:"drain,drop," default:"" placeholder:"HOW" help:"What happens to what waits under the version before: drain, it goes on under that version; drop, it ends (default: drain)."`
	CatchUp bool   `help:"With a --start in the past: what was due before also fires."`
}

// Help shows examples.
func (triggerSetCmd) Help() string {
	return `Examples:

    seb trigger set nudge --when 'signed_up THEN NOT logged_in WITHIN 7d' --from events --to reminders
    seb trigger set nudge --when 'signed_up AS u THEN NOT logged_in WITHIN 7d' --emit email=u.data.email --from events --to reminders
    seb trigger set nudge trigger.json
    seb trigger versions nudge --output json | jq '.versions[1].definition' | seb trigger set nudge -

A trigger that exists gets another version, which counts from its place in the log on: no event is seen by two versions,
or by none. The topics of --from must exist. Check the expression first with seb trigger check, and see what the trigger
would have done with seb trigger test.`
}

// Run stores a version of the trigger.
func (c *triggerSetCmd) Run(ctx context.Context, std streams) error {
	spec, err := c.spec(std)
	if err != nil {
		return err
	}
	if c.Replace != "" {
		spec.Replace = c.Replace
	}
	spec.CatchUp = spec.CatchUp || c.CatchUp
	broker, err := c.client()
	if err != nil {
		return err
	}
	t, created, err := broker.SetTrigger(ctx, c.Trigger, spec)
	if err != nil {
		return c.failed("set", err)
	}
	did := "changed"
	if created {
		did = "created"
	}
	return c.tell(std, t, did)
}

type triggerPauseCmd struct{ triggerFlags }

// Help shows examples.
func (triggerPauseCmd) Help() string {
	return `Examples:

    seb trigger pause nudge

Neither events nor deadlines reach the trigger until it is resumed. What waits is kept.`
}

// Run pauses the trigger.
func (c *triggerPauseCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	t, err := broker.PauseTrigger(ctx, c.Trigger)
	if err != nil {
		return c.failed("pause", err)
	}
	return c.tell(std, t, "paused")
}

type triggerResumeCmd struct{ triggerFlags }

// Help shows examples.
func (triggerResumeCmd) Help() string {
	return `Examples:

    seb trigger resume nudge

Events of the pause do not count. What waited goes on, but with an expression that has a NOT it ends, since an event of the
pause may matter to it. In a restored or copied log, each trigger waits for this command.`
}

// Run resumes the trigger.
func (c *triggerResumeCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	t, err := broker.ResumeTrigger(ctx, c.Trigger)
	if err != nil {
		return c.failed("resume", err)
	}
	return c.tell(std, t, "resumed")
}

type triggerDeleteCmd struct {
	triggerFlags
	confirmFlag
}

// Help shows examples.
func (triggerDeleteCmd) Help() string {
	return `Examples:

    seb trigger delete nudge

On a terminal, seb asks first. The trigger forgets what waits, and who has fired. Records that it has appended stay.`
}

// Run deletes the trigger.
func (c *triggerDeleteCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	if err := c.confirm(ctx, std, fmt.Sprintf("Delete trigger %s%s, and forget who has fired?", c.Trigger, c.at())); err != nil {
		return c.failed("delete", err)
	}
	if err := broker.DeleteTrigger(ctx, c.Trigger); err != nil {
		return c.failed("delete", err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"name": c.Trigger, "deleted": true})
	}
	_, err = fmt.Fprintf(std.out, "trigger %s deleted\n", c.Trigger)
	return err
}
