package trigger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/driplang"
)

// Limits of a definition.
const (
	MaxFrom    = 64  // topics that a trigger watches
	MaxEmit    = 64  // fields of Emit
	MaxRunsMax = 256 // open runs of an entity
)

// Definition says when a trigger fires, and what it appends.
type Definition struct {
	// From names the topics that the trigger watches.
	From []string `json:"from"`
	// When is the expression that has to become true.
	When When `json:"when"`
	// By is an expression in CEL that returns the entity of an event, as a text or a whole number. Empty means the entity of
	// [EventOf]. Events without an entity do not count.
	By string `json:"by,omitempty"`
	// Repeat says how often an entity can fire; the zero value means once.
	Repeat driplang.Repeat `json:"repeat"`
	// To names the topic that gets a record for each firing.
	To string `json:"to"`
	// Emit has expressions in CEL, by the name of the field of the record that gets the value. They can use the aliases of
	// events that have surely happened.
	Emit map[string]string `json:"emit,omitempty"`
	// Start says from when on events count.
	Start Start `json:"start"`
	// Mode says whether the trigger fires; empty means [Live].
	Mode Mode `json:"mode"`
	// RunsMax is how many runs of an entity can be open; 0 means [driplang.RunsMax].
	RunsMax int `json:"runs_max,omitempty"`
}

// Mode says whether a trigger fires.
type Mode string

// The modes.
const (
	Live   Mode = "live"   // it fires
	Dry    Mode = "dry"    // it is evaluated, and its firings are counted, but not appended
	Paused Mode = "paused" // it is not evaluated
)

// When is an expression. In JSON, it is the text of the expression, or its tree.
type When struct{ *driplang.Expr }

// MarshalJSON returns the canonical text.
func (w When) MarshalJSON() ([]byte, error) { return json.Marshal(w.String()) }

// UnmarshalJSON reads a text or a tree.
func (w *When) UnmarshalJSON(b []byte) (err error) {
	if !bytes.HasPrefix(bytes.TrimSpace(b), []byte{'"'}) {
		w.Expr, err = driplang.ParseJSON(b)
		return err
	}
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	w.Expr, err = driplang.Parse(text)
	return err
}

// Start is the time from which on events count. The zero value is the place of the definition in the log; in JSON, it is "now".
type Start struct{ time.Time }

// MarshalJSON writes "now", or a time of RFC 3339.
func (s Start) MarshalJSON() ([]byte, error) {
	if s.IsZero() {
		return []byte(`"now"`), nil
	}
	return json.Marshal(s.UTC())
}

// UnmarshalJSON reads "now", or a time of RFC 3339.
func (s *Start) UnmarshalJSON(b []byte) error {
	if string(b) == `"now"` || string(b) == `""` {
		*s = Start{}
		return nil
	}
	if err := json.Unmarshal(b, &s.Time); err != nil {
		return fmt.Errorf(`start: expected "now", or a time such as "2026-11-29T12:00:00Z": %w`, err)
	}
	return nil
}

// compiled is a definition that is ready to be evaluated.
type compiled struct {
	Definition
	program *driplang.Program
	by      *driplang.Condition // nil without By
	emit    []emitted           // sorted by name
	names   []string            // of the events that the expression names, sorted
	keeps   [][]string          // the fields of events with an alias that conditions and emits use
	aliases []string            // those that conditions and emits use, sorted
}

// emitted is a field of the records that a trigger appends.
type emitted struct {
	name  string
	value *driplang.Condition
}

// compile checks a definition.
func compile(d Definition) (*compiled, error) {
	switch {
	case len(d.From) == 0:
		return nil, errors.New("from: name at least one topic")
	case len(d.From) > MaxFrom:
		return nil, fmt.Errorf("from: %d topics: at most %d are allowed", len(d.From), MaxFrom)
	case d.When.Expr == nil:
		return nil, errors.New("when: the expression is missing")
	case d.To == "":
		return nil, errors.New("to: name the topic that gets the firings")
	case slices.Contains(d.From, d.To):
		return nil, fmt.Errorf("to: the trigger watches topic %s, so its firings would be its own events", d.To)
	case len(d.Emit) > MaxEmit:
		return nil, fmt.Errorf("emit: %d fields: at most %d are allowed", len(d.Emit), MaxEmit)
	case d.RunsMax < 0 || d.RunsMax > MaxRunsMax:
		return nil, fmt.Errorf("runs_max: %d: it is from 1 to %d", d.RunsMax, MaxRunsMax)
	}
	if d.Mode == "" {
		d.Mode = Live
	}
	if !slices.Contains([]Mode{Live, Dry, Paused}, d.Mode) {
		return nil, fmt.Errorf("mode: expected live, dry or paused, not %q", d.Mode)
	}
	c := &compiled{Definition: d}
	var err error
	if c.program, err = driplang.Compile(d.When.Expr); err != nil {
		return nil, fmt.Errorf("when: %w", err)
	}
	if err := c.program.CheckRepeat(d.Repeat); err != nil {
		return nil, fmt.Errorf("repeat: %w", err)
	}
	if d.By != "" {
		if c.by, err = driplang.CompileCondition(d.By); err != nil {
			return nil, fmt.Errorf("by: %w", err)
		}
	}
	for name, text := range d.Emit {
		value, err := driplang.CompileCondition(text, c.program.Emittable()...)
		if err != nil {
			return nil, fmt.Errorf("emit: %s: %w", name, err)
		}
		c.emit = append(c.emit, emitted{name, value})
		c.keep(value.Uses())
	}
	slices.SortFunc(c.emit, func(a, b emitted) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	c.keep(c.program.Uses())
	c.names = c.program.Names()
	slices.Sort(c.aliases)
	c.aliases = slices.Compact(c.aliases)
	return c, nil
}

// decidesAs reports whether another definition decides the same, so that it differs in the mode at most.
func (c *compiled) decidesAs(d *Definition) bool {
	a, b := c.Definition, *d
	a.Mode, b.Mode, a.Start = "", "", Start{}
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && bytes.Equal(x, y)
}

// keep adds fields to those that runs keep of their events.
func (c *compiled) keep(fields []driplang.Field) {
	for _, f := range fields {
		c.keeps = append(c.keeps, f.Path)
		c.aliases = append(c.aliases, f.Alias)
	}
}
