package explore

import (
	"fmt"
	"slices"
)

// model is what an exploration needs of a model: it makes worlds of type W, and tells them apart.
type model[W any] interface {
	// begin returns the initial world.
	begin() *W
	// of returns the key of a world, its canonical form, which is valid until the next call. Two
	// worlds with the same key have the same future. of puts interchangeable parts of the world in
	// order.
	of(*W) []byte
	// worldOf returns the world with a key. The world is valid until the key changes.
	worldOf(key []byte, c *choices, t *trace) *W
}

// living is a world that can take steps. A copy of a world is independent of it: what both share is
// never changed in place.
type living[W any] interface {
	*W
	here() *moment
	// step makes one thing happen.
	step()
	// check checks all invariants; the step has checked some of them before.
	check()
}

// moment is what the worlds of every model have.
type moment struct {
	*choices
	*trace             // nil means no trace
	only   []Invariant // the invariants that are checked; if empty, all are
	wrong  *violation
	// undo says that the step was impossible, or that another choice leads to the same state.
	// untouched says in addition that the step has changed nothing.
	undo, untouched bool
}

func (m *moment) here() *moment { return m }

// skip ends a step that is impossible, before it has changed anything.
func (m *moment) skip() { m.undo, m.untouched = true, true }

// violate notes that an invariant does not hold, if that invariant is checked.
func (m *moment) violate(inv Invariant, format string, args ...any) {
	if m.wrong == nil && (len(m.only) == 0 || slices.Contains(m.only, inv)) {
		m.wrong = &violation{inv, fmt.Sprintf(format, args...)}
	}
}
