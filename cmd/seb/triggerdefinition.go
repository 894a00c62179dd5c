package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/trigger"
)

// definitionFlags are a trigger on the command line: a file, or flags.
type definitionFlags struct {
	File    string            `arg:"" optional:"" help:"A file with the trigger as JSON, as PUT /v1/triggers/NAME takes it; - reads standard input."`
	When    string            `placeholder:"EXPRESSION" help:"The expression that has to become true, such as 'A THEN NOT B WITHIN 7d' (default: that of the file)."`
	From    []string          `placeholder:"TOPIC" help:"A topic that the trigger watches; may be repeated (default: those of the file)."`
	To      string            `placeholder:"TOPIC" help:"The topic that gets a record for each firing (default: that of the file)."`
	By      string            `placeholder:"CEL" help:"An expression in CEL that returns the entity of an event (default: the entity that the event names, else the record's key)."`
	Repeat  string            `placeholder:"REPEAT" help:"How often an entity can fire: once, every, or for example 'at most 3 per 1d' (default: once)."`
	Emit    map[string]string `mapsep:"none" placeholder:"NAME=CEL" help:"A field of the record of a firing, with an expression in CEL such as u.data.email; may be repeated (default: none)."`
	Start   string            `placeholder:"TIME" help:"From when on events count: now, or a time such as 2026-01-31T12:00:00Z (default: now)."`
	Mode    string            `enum:"live,dry,paused," default:"" placeholder:"MODE" help:"live; dry, which counts firings and appends none; or paused (default: live)."`
	RunsMax int               `placeholder:"N" help:"How many runs of an entity can be open, 256 at most (default: 16)."`
}

// spec returns the trigger that the file or the flags describe.
func (f definitionFlags) spec(std streams) (client.TriggerSpec, error) {
	flags := client.TriggerSpec{TriggerDefinition: client.TriggerDefinition{
		From: f.From, When: f.When, By: f.By, Repeat: f.Repeat, To: f.To, Emit: f.Emit, Start: f.Start, Mode: f.Mode, RunsMax: f.RunsMax,
	}}
	given := len(f.From) > 0 || len(f.Emit) > 0 || f.When+f.By+f.Repeat+f.To+f.Start+f.Mode != "" || f.RunsMax != 0
	switch {
	case f.File != "" && given:
		return flags, usage(errors.New("name a file or give flags such as --when, not both"))
	case f.File == "-":
		return readSpec(std.in)
	case f.File != "":
		file, err := os.Open(f.File)
		if err != nil {
			return flags, usage(fmt.Errorf("read the trigger: %w", err))
		}
		defer func() { _ = file.Close() }() // it was only read
		return readSpec(file)
	case f.When == "" || len(f.From) == 0 || f.To == "":
		return flags, usageError{hinted(errors.New("give --when, --from and --to, or a file"), "see seb trigger set --help")}
	}
	return flags, nil
}

// specBytesMax is more than brokers accept.
const specBytesMax = 1 << 20

// readSpec reads a trigger as JSON. Its expression may be a tree.
func readSpec(r io.Reader) (client.TriggerSpec, error) {
	text, err := io.ReadAll(io.LimitReader(r, specBytesMax))
	if err != nil {
		return client.TriggerSpec{}, fmt.Errorf("read the trigger: %w", err)
	}
	var given struct {
		client.TriggerSpec
		When trigger.When `json:"when"` // in place of the field of TriggerSpec
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&given); err != nil {
		return given.TriggerSpec, usage(fmt.Errorf("the trigger can't be read: %s", strings.TrimPrefix(err.Error(), "json: ")))
	}
	if given.When.Expr == nil {
		return given.TriggerSpec, usage(errors.New(`the trigger has no "when": it is the expression`))
	}
	given.TriggerSpec.When = given.When.String()
	return given.TriggerSpec, nil
}
