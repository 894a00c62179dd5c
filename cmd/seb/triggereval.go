package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/driplang"
	"github.com/simple-event-broker/seb/triggerapi"
)

type triggerEvalCmd struct {
	outputFlag
	whenArg
	Events []string `arg:"" optional:"" help:"The events of one entity in their order: NAME, NAME@TIME, NAME{JSON} or NAME@TIME{JSON}; all or none have a TIME. TIME is the time since the first event, such as 0 or 50m, and JSON is the event's data."`
	At     string   `placeholder:"TIME" help:"Tell the verdict at this time, including the deadlines at it (default: at the last event)."`
}

// Help shows examples.
func (triggerEvalCmd) Help() string {
	return `Examples:

    seb trigger eval 'A AND NOT B' A B
    seb trigger eval 'A THEN B WITHIN 1h' A@0 A@50m B@70m
    seb trigger eval 'user_created THEN NOT use_feature_x WITHIN 7d' user_created@0 --at 7d
    seb trigger eval 'A AS a THEN B [data.plan == a.data.plan]' 'A@0{"plan":"team"}' 'B@1m{"plan":"team"}'

It prints true, false or undecided: undecided if a window is open, and the events or the deadline to come decide. An
expression without WITHIN needs no times.

Exit codes: 0 there is a verdict, whatever it is; 2 the expression or an event is not valid.`
}

// Run prints the verdict.
func (c *triggerEvalCmd) Run(std streams) error {
	e, err := c.parse(std)
	if err != nil {
		return err
	}
	program, err := driplang.Compile(e)
	if err != nil {
		return usage(err)
	}
	var events []driplang.Event
	for _, arg := range c.Events {
		event, err := eventArg(arg)
		if err != nil {
			return usage(fmt.Errorf("event %s: %w", arg, err))
		}
		events = append(events, event)
	}
	var at time.Time
	if c.At != "" {
		if at, err = triggerapi.ParseTime(c.At); err != nil {
			return usage(fmt.Errorf("--at %s: %w", c.At, err))
		}
	}
	verdict, err := program.Eval(events, at)
	if err != nil {
		return usage(err)
	}
	if c.json() {
		return printJSON(std.out, struct {
			Verdict string `json:"verdict"`
		}{verdict.String()})
	}
	p := newPrinter(std.out)
	p.printf("%s\n", verdict)
	return p.err
}

// eventArg reads NAME, NAME@TIME, NAME{JSON} or NAME@TIME{JSON}.
func eventArg(arg string) (driplang.Event, error) {
	var e driplang.Event
	var err error
	head := arg
	if i := strings.IndexByte(arg, '{'); i >= 0 {
		head = arg[:i]
		if e.Data, err = driplang.ParseData([]byte(arg[i:])); err != nil {
			return e, fmt.Errorf("its data: %w", err)
		}
	}
	name, at, timed := strings.Cut(head, "@")
	if e.Name = name; name == "" {
		return e, errors.New("expected NAME, NAME@TIME, NAME{JSON} or NAME@TIME{JSON}")
	}
	if timed {
		e.LogTime, err = triggerapi.ParseTime(at)
		e.Timestamp = e.LogTime
	}
	return e, err
}
