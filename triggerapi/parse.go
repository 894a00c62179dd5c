package triggerapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/driplang"
	"github.com/simple-event-broker/seb/trigger"
)

// fields are the fields that an object may have, with pointers to what they are decoded into.
type fields map[string]any

// object reads an object. It refuses a field that is not known; encoding/json alone would also take a name in other letters. The
// parameter what names the object in errors.
func object(text []byte, what string, known fields) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(text, &given); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return invalid("", "%s must be an object; its type is %s", what, wrong.Value)
		}
		return invalid("", "%s is no JSON: %v", what, err)
	}
	if given == nil {
		return invalid("", "%s must be an object, not null", what)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		into, is := known[name]
		if !is && len(known) == 0 {
			return invalid("leave it out", "%s has an unknown field %.100q", what, name)
		}
		if !is {
			return invalid("known fields: "+strings.Join(slices.Sorted(maps.Keys(known)), ", "), "%s has an unknown field %.100q", what, name)
		}
		if _, any := into.(*json.RawMessage); !any && string(given[name]) == "null" {
			return invalid("leave it out", "%s of %s is null", name, what)
		}
		if err := field(given[name], name, into); err != nil {
			return err
		}
	}
	return nil
}

// field reads the value of a field. What a definition says wrong has its own code.
func field(text []byte, name string, into any) error {
	err := json.Unmarshal(text, into)
	if err == nil || seb.CodeOf(err) != "" {
		return err
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return invalid("", "%s has the wrong type: %s", strings.Trim(name+"."+wrong.Field, "."), wrong.Value)
	}
	if _, ok := errors.AsType[*time.ParseError](err); ok {
		return invalid("write a date, a time and a zone, such as 2026-11-29T12:00:00Z", "%s: %v", name, err)
	}
	return wrongTrigger(fmt.Errorf("%s: %w", name, err))
}

// parsePut reads the body of a request that stores a version.
func parsePut(body []byte) (d trigger.Definition, o trigger.PutOptions, err error) {
	all := definitionFields(&d)
	o.Replace = trigger.Drain
	all["replace"], all["catch_up"] = &o.Replace, &o.CatchUp
	if err := object(body, "a trigger", all); err != nil {
		return d, o, err
	}
	if o.Replace == "" {
		return d, o, wrongTrigger(errors.New("replace: expected drain or drop"))
	}
	if o.Replace == trigger.Drain {
		o.Replace = "" // the same, and shorter in the list of versions
	}
	return d, o, checkMode(d.Mode)
}

// checkMode refuses a mode that is given and empty: to package trigger, an empty mode means live.
func checkMode(mode trigger.Mode) error {
	if mode == "" {
		return wrongTrigger(errors.New("mode: expected live, dry or paused"))
	}
	return nil
}

func definitionFields(d *trigger.Definition) fields {
	d.Mode = trigger.Live
	return fields{
		"from": &d.From, "when": &d.When, "by": &d.By, "repeat": &d.Repeat, "to": &d.To, "emit": &d.Emit, "start": &d.Start,
		"mode": &d.Mode, "runs_max": &d.RunsMax,
	}
}

// definition is a definition in a body.
type definition struct{ trigger.Definition }

// UnmarshalJSON refuses fields that a definition does not have.
func (d *definition) UnmarshalJSON(text []byte) error {
	if err := object(bytes.TrimSpace(text), "definition", definitionFields(&d.Definition)); err != nil {
		return err
	}
	return checkMode(d.Mode)
}

// invalid returns an error with status 400; hint says what would be valid.
func invalid(hint, format string, args ...any) error {
	return &seb.Error{Code: seb.CodeInvalidRequest, Outcome: seb.NotCommitted, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

// wrongTrigger returns the error for an expression or a definition that can't be.
func wrongTrigger(err error) error {
	return &seb.Error{Code: trigger.CodeInvalidTrigger, Outcome: seb.NotCommitted, Detail: err.Error()}
}

// compile reads an expression of a body.
func compile(when trigger.When) (*driplang.Program, error) {
	if when.Expr == nil {
		return nil, invalid(`send {"when":"A THEN B"}`, "when is missing: it is the expression")
	}
	p, err := driplang.Compile(when.Expr)
	if err != nil {
		return nil, wrongTrigger(err)
	}
	return p, nil
}
