package trigger

import (
	"slices"

	"github.com/simple-event-broker/seb/driplang"
)

// firing is a record that a trigger appends.
type firing struct {
	trigger *active
	entity  string
	at      position // the moment at which the expression became true
	events  []*seen  // those that made leaves of the expression true
	emit    map[string]any
	failed  string // why a field of emit has no value; empty if all have one
}

// firing makes the firing of a run.
func (a *active) firing(entity string, run *driplang.Run[*seen], at position) firing {
	f := firing{trigger: a, entity: entity, at: at, events: a.machine.Seen(run), emit: map[string]any{}}
	for _, e := range a.emit {
		v, err := e.value.Value(&driplang.Event{}, a.aliases(run))
		if err != nil {
			f.failed = "emit: " + e.name + ": " + err.Error()
			continue
		}
		f.emit[e.name] = v
	}
	return f
}

// same reports whether two runs have captured the same fields.
func (a *active) same(x, y *driplang.Run[*seen]) bool {
	return !slices.ContainsFunc(a.compiled.aliases, func(alias string) bool {
		s, has := a.machine.Captured(x, alias)
		t, too := a.machine.Captured(y, alias)
		return has != too || has && a.storeFields(s) != a.storeFields(t)
	})
}
