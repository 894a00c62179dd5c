package triggerapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/driplang"
	"github.com/simple-event-broker/seb/trigger"
)

// evalEventsMax is how many events a request may have decided: the time for it grows with the square of their number.
const evalEventsMax = 1000

// check explains an expression.
func check(w http.ResponseWriter, _ *http.Request, body []byte) error {
	var when trigger.When
	var repeat driplang.Repeat
	if err := object(body, "the body", fields{"when": &when, "repeat": &repeat}); err != nil {
		return err
	}
	if _, err := compile(when); err != nil {
		return err
	}
	report, err := driplang.Check(when.Expr, repeat)
	if err != nil {
		return wrongTrigger(err)
	}
	report.Aliases = append([]string{}, report.Aliases...) // an empty list is not null
	return write(w, http.StatusOK, report)
}

// eval decides an expression for a list of events.
func eval(w http.ResponseWriter, _ *http.Request, body []byte) error {
	var when trigger.When
	var given []json.RawMessage
	var at moment
	if err := object(body, "the body", fields{"when": &when, "events": &given, "at": &at}); err != nil {
		return err
	}
	program, err := compile(when)
	if err != nil {
		return err
	}
	if len(given) > evalEventsMax {
		return invalid("send fewer events", "there are %d events; at most %d are allowed", len(given), evalEventsMax)
	}
	var events []driplang.Event
	for i, text := range given {
		what := fmt.Sprintf("events/%d", i)
		var name string
		var data json.RawMessage
		var at moment
		if err := object(text, what, fields{"event": &name, "data": &data, "at": &at}); err != nil {
			return err
		}
		if name == "" {
			return invalid(`send {"event":"A"}`, "%s has no event: it is the name", what)
		}
		e := driplang.Event{Name: name, LogTime: at.Time, Timestamp: at.Time}
		if len(data) > 0 {
			if e.Data, err = driplang.ParseData(data); err != nil {
				return invalid("", "%s: data: %v", what, err)
			}
		}
		events = append(events, e)
	}
	verdict, err := program.Eval(events, at.Time)
	if err != nil {
		return invalid("", "%v", err)
	}
	return write(w, http.StatusOK, map[string]string{"verdict": verdict.String()})
}

// moment is a time in a body, as [ParseTime] reads it.
type moment struct{ time.Time }

// UnmarshalJSON reads a text.
func (m *moment) UnmarshalJSON(text []byte) error {
	var s string
	err := json.Unmarshal(text, &s)
	if err == nil {
		m.Time, err = ParseTime(s)
	}
	if err != nil {
		return invalid("", "at is %.100s: %v", text, err)
	}
	return nil
}

// ParseTime returns the time of an event in a list: the time since the first one, such as 0, 50m or 7d, after an arbitrary time.
func ParseTime(s string) (time.Time, error) {
	zero := time.Unix(0, 0).UTC()
	if slices.Contains([]string{"0", "0s", "0m", "0h", "0d"}, s) {
		return zero, nil
	}
	d, err := driplang.ParseDuration(s)
	if err != nil {
		return zero, errors.New("expected a time such as 0, 50m or 7d: a number of s, m, h, d or w, and at most 366 days")
	}
	return zero.Add(d), nil
}

// report says what a trigger would have done.
type report struct {
	Since    time.Time        `json:"since"`
	Until    time.Time        `json:"until"`
	Events   int64            `json:"events"`
	Firings  int64            `json:"firings"`
	Entities int              `json:"entities"`
	Most     int64            `json:"most"`
	Waiting  int              `json:"waiting"`
	Counts   trigger.Counts   `json:"counts"`
	ByDay    map[string]int64 `json:"by_day"`
	Samples  []trigger.Firing `json:"samples"`
}

// test tells what a definition would have done.
func (h *handler) test(w http.ResponseWriter, r *http.Request, body []byte) error {
	var d definition
	var since time.Time
	if err := object(body, "the body", fields{"definition": &d, "since": &since}); err != nil {
		return err
	}
	switch {
	case d.When.Expr == nil:
		return invalid(`send {"definition":{"from":["events"],"when":"A","to":"out"},"since":"2026-11-01T00:00:00Z"}`, "the body has no definition with an expression")
	case since.IsZero():
		return invalid("send a time, such as 2026-11-01T00:00:00Z", "since is missing: the time from which on events count")
	}
	got, err := h.triggers.Test(r.Context(), d.Definition, since)
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, report{
		Since: got.From.UTC(), Until: got.To.UTC(), Events: got.Events, Firings: got.Firings, Entities: got.Entities, Most: got.Most,
		Waiting: got.OpenRuns, Counts: got.Counts, ByDay: got.ByDay, Samples: append([]trigger.Firing{}, got.Samples...),
	})
}
