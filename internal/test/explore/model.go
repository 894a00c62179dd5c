package explore

import (
	"fmt"
	"slices"
)

// model is what is explored. It makes worlds of type W, and tells them apart.
type model[W any] interface {
	// begin returns the world that everything begins with.
	begin() *W
	// of returns the key of a world, its canonical form, until the next call: two with
	// the same one have the same future. It puts in order what is interchangeable.
	of(*W) []byte
	// worldOf returns the world with a key. What it holds is valid until the key changes.
	worldOf(key []byte, c *choices, t *trace) *W
}

// living is a world that goes on. A copy of one is independent: what both share is never
// changed in place.
type living[W any] interface {
	*W
	here() *moment
	// step lets one thing happen.
	step()
	// check checks all invariants; the step has checked some of them.
	check()
}

// moment is what every world has, whatever it is a model of.
type moment struct {
	*choices
	*trace             // nil: no trace
	only   []Invariant // those that are checked; empty = all
	wrong  *violation
	// undo: the step was none, or only what another choice does as well;
	// untouched: and it has changed nothing.
	undo, untouched bool
}

func (m *moment) here() *moment { return m }

// skip ends a step that is not possible, before it has changed anything.
func (m *moment) skip() { m.undo, m.untouched = true, true }

// violate notes that an invariant does not hold, if the model checks it.
func (m *moment) violate(inv Invariant, format string, args ...any) {
	if m.wrong == nil && (len(m.only) == 0 || slices.Contains(m.only, inv)) {
		m.wrong = &violation{inv, fmt.Sprintf(format, args...)}
	}
}
