package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// TriggerDefinition says when a trigger fires, and what it appends. docs/triggers.md describes triggers.
type TriggerDefinition struct {
	// From names the topics that the trigger watches.
	From []string `json:"from"`
	// When is an expression in driplang, as text.
	When string `json:"when"`
	// By is an expression in CEL that returns the entity of an event. Empty means the entity that the event names.
	By string `json:"by,omitempty"`
	// Repeat says how often an entity can fire: once, every, or for example at most 3 per 1d. Empty means once.
	Repeat string `json:"repeat,omitempty"`
	// To names the topic that gets a record for each firing.
	To string `json:"to"`
	// Emit has expressions in CEL, by the name of the field of the record that gets the value.
	Emit map[string]string `json:"emit,omitempty"`
	// Start is the time from which on events count: empty or now, or a time of RFC 3339.
	Start string `json:"start,omitempty"`
	// Mode is live, dry or paused; empty means live.
	Mode string `json:"mode,omitempty"`
	// RunsMax is how many runs of an entity can be open; 0 means 16.
	RunsMax int `json:"runs_max,omitempty"`
}

// TriggerSpec is a version of a trigger that is to be stored.
type TriggerSpec struct {
	TriggerDefinition
	// Replace says what happens to what waits under the version before: drain (it goes on) or drop. Empty means drain.
	Replace string `json:"replace,omitempty"`
	// CatchUp says that with a Start in the past, what was due before also fires.
	CatchUp bool `json:"catch_up,omitempty"`
}

// Trigger is a version of a trigger.
type Trigger struct {
	Name       string            `json:"name"`
	Version    int64             `json:"version"` // from 1 on
	Definition TriggerDefinition `json:"definition"`
	Replace    string            `json:"replace,omitempty"`
	CatchUp    bool              `json:"catch_up,omitempty"`
	At         time.Time         `json:"at"`                 // the log time of the version
	Restored   bool              `json:"restored,omitempty"` // the log is a copy: the trigger is paused until a further version is stored
	Counts     *TriggerCounts    `json:"counts,omitempty"`   // nil unless the broker that answers runs the triggers
	Waiting    *int              `json:"waiting,omitempty"`  // how many entities wait for an event or a deadline; nil as Counts
}

// TriggerCounts say what a trigger has done since its broker began to run it.
type TriggerCounts struct {
	Events          int64 `json:"events"` // events that the trigger looked at
	Fired           int64 `json:"fired"`
	Lost            int64 `json:"lost"`             // runs that became true at the same moment as a later run of the entity
	Repeats         int64 `json:"repeats"`          // firings that the repeat does not allow
	Dropped         int64 `json:"dropped"`          // runs that did not begin, since the entity had too many
	ConditionErrors int64 `json:"condition_errors"` // conditions that could not be decided, and so did not hold
	Gaps            int64 `json:"gaps"`             // entities whose runs ended, since records were deleted before the trigger saw them
}

// TriggerList has the triggers of a log.
type TriggerList struct {
	Triggers []Trigger  `json:"triggers"`
	Running  bool       `json:"running"`            // the broker that answers runs them
	LogTime  *time.Time `json:"log_time,omitempty"` // up to which they were evaluated; nil unless Running
	Error    string     `json:"error,omitempty"`    // why the broker can't run them
}

// Firing is a record that a trigger has appended.
type Firing struct {
	ID      string         `json:"id"` // the same whenever the same firing is computed
	Trigger string         `json:"trigger"`
	Version int64          `json:"version"`
	Entity  string         `json:"entity"`
	Due     time.Time      `json:"due"`            // when the expression became true
	Fired   time.Time      `json:"fired,omitzero"` // the log time of the record; zero in a [TriggerTest]
	Events  []FiringEvent  `json:"events"`         // those that made the expression true
	Emit    map[string]any `json:"emit,omitempty"`
}

// FiringEvent is an event that made a part of an expression true.
type FiringEvent struct {
	Event     string    `json:"event"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	LogTime   time.Time `json:"log_time"`
}

// TriggerTest says what a trigger would have done.
type TriggerTest struct {
	Since    time.Time        `json:"since"`
	Until    time.Time        `json:"until"`
	Events   int64            `json:"events"`
	Firings  int64            `json:"firings"`
	Entities int              `json:"entities"` // entities that have fired
	Most     int64            `json:"most"`     // the most firings of one entity
	Waiting  int              `json:"waiting"`  // entities that wait at the end
	Counts   TriggerCounts    `json:"counts"`
	ByDay    map[string]int64 `json:"by_day"`  // firings by the day on which they were due
	Samples  []Firing         `json:"samples"` // the first ones
}

// TriggerExplanation says what a trigger makes of an entity.
type TriggerExplanation struct {
	Trigger string        `json:"trigger"`
	Version int64         `json:"version"`
	Entity  string        `json:"entity"`
	From    time.Time     `json:"from"`  // since when the trigger looks at events
	Steps   []TriggerStep `json:"steps"` // the first 10,000
	Open    int           `json:"open_runs"`
	Next    time.Time     `json:"next_deadline,omitzero"`
}

// TriggerStep is an event of an entity, or a deadline, and what it did.
type TriggerStep struct {
	Time  time.Time    `json:"time"`
	Event *FiringEvent `json:"event,omitempty"` // nil at a deadline
	Did   []string     `json:"did"`
	Open  int          `json:"open_runs"` // runs that are open after it
	Next  time.Time    `json:"next_deadline,omitzero"`
}

// SetTrigger stores a version of a trigger. created says that the trigger is new. Requests about triggers need an API key with the
// scope admin for all topics.
func (c *Client) SetTrigger(ctx context.Context, name string, spec TriggerSpec) (t Trigger, created bool, err error) {
	t, status, err := c.trigger(ctx, name, &request{method: http.MethodPut, path: []string{"triggers", name}, body: jsonBody(spec), writes: true})
	return t, status == http.StatusCreated, err
}

// Trigger returns the last version of a trigger.
func (c *Client) Trigger(ctx context.Context, name string) (Trigger, error) {
	t, _, err := c.trigger(ctx, name, &request{method: http.MethodGet, path: []string{"triggers", name}})
	return t, err
}

// PauseTrigger stores a version that neither events nor deadlines reach. What waits is kept.
func (c *Client) PauseTrigger(ctx context.Context, name string) (Trigger, error) {
	t, _, err := c.trigger(ctx, name, &request{method: http.MethodPost, path: []string{"triggers", name, "pause"}, writes: true})
	return t, err
}

// ResumeTrigger stores a version that goes on. Events of the pause do not count; docs/triggers.md says what becomes of what waited.
func (c *Client) ResumeTrigger(ctx context.Context, name string) (Trigger, error) {
	t, _, err := c.trigger(ctx, name, &request{method: http.MethodPost, path: []string{"triggers", name, "resume"}, writes: true})
	return t, err
}

// trigger sends a request whose response is a version of a trigger.
func (c *Client) trigger(ctx context.Context, name string, r *request) (t Trigger, status int, err error) {
	res, err := c.send(ctx, r)
	if err != nil {
		return t, 0, err
	}
	err = res.decode(&t, func() error { return names("name", t.Name, name) })
	return t, res.status, err
}

// DeleteTrigger deletes a trigger. Records that it has appended stay.
func (c *Client) DeleteTrigger(ctx context.Context, name string) error {
	_, err := c.send(ctx, &request{method: http.MethodDelete, path: []string{"triggers", name}, writes: true, bare: true})
	return err
}

// Triggers returns all triggers, by name.
func (c *Client) Triggers(ctx context.Context) (l TriggerList, err error) {
	res, err := c.send(ctx, &request{method: http.MethodGet, path: []string{"triggers"}})
	if err != nil {
		return l, err
	}
	err = res.decode(&l, func() error { return lists("triggers", l.Triggers) })
	return l, err
}

// TriggerVersions returns all versions of a trigger since it was created, the newest first.
func (c *Client) TriggerVersions(ctx context.Context, name string) ([]Trigger, error) {
	res, err := c.send(ctx, &request{method: http.MethodGet, path: []string{"triggers", name, "versions"}})
	if err != nil {
		return nil, err
	}
	var l struct {
		Versions []Trigger `json:"versions"`
	}
	err = res.decode(&l, func() error { return lists("versions", l.Versions) })
	return l.Versions, err
}

// Firings returns the last firings of a trigger, the newest first, at most so many; 0 means 100.
func (c *Client) Firings(ctx context.Context, name string, most int) ([]Firing, error) {
	r := &request{method: http.MethodGet, path: []string{"triggers", name, "firings"}}
	if most != 0 {
		r.query = url.Values{"limit": {strconv.Itoa(most)}}
	}
	res, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	var l struct {
		Firings []Firing `json:"firings"`
	}
	err = res.decode(&l, func() error { return lists("firings", l.Firings) })
	return l.Firings, err
}

// evaluationWait is how long a broker may take to evaluate the records of the topics that a trigger watches.
const evaluationWait = time.Hour

// ExplainTrigger says what each event of an entity did. It reads all records of the topics since the start of the trigger.
func (c *Client) ExplainTrigger(ctx context.Context, name, entity string) (x TriggerExplanation, err error) {
	res, err := c.send(ctx, &request{method: http.MethodGet, path: []string{"triggers", name, "entities", entity}, wait: evaluationWait})
	if err != nil {
		return x, err
	}
	err = res.decode(&x, func() error { return names("entity", x.Entity, entity) })
	return x, err
}

// TestTrigger says what a trigger would have done from a time on until now. It appends nothing, and ends with ctx.
func (c *Client) TestTrigger(ctx context.Context, d TriggerDefinition, since time.Time) (t TriggerTest, err error) {
	body := jsonBody(map[string]any{"definition": d, "since": since.UTC()})
	res, err := c.send(ctx, &request{method: http.MethodPost, path: []string{"driplang", "test"}, body: body, wait: evaluationWait})
	if err != nil {
		return t, err
	}
	err = res.decode(&t, func() error { return lists("samples", t.Samples) })
	return t, err
}
