package explore

import (
	"fmt"
	"slices"
)

// model makes worlds of type W, and the keys by which an exploration tells worlds apart. There are models of
// the log, of a queue, and of brokers that hand over bundles.
type model[W any] interface {
	// begin returns the initial world.
	begin() *W
	// of returns the key of a world, after it has sorted the world's interchangeable parts. The key is
	// valid until the next call. If two worlds have the same key, the same steps are possible in both.
	of(*W) []byte
	// worldOf returns the world that has the key. The world is valid until the bytes of key change.
	worldOf(key []byte, c *choices, t *trace) *W
}

// living is a world that can take steps. A step of a world does not change the copies of that world: slices
// that a world shares with its copies are never changed in place.
type living[W any] interface {
	*W
	here() *moment
	// step makes one thing happen.
	step()
	// check checks all invariants; the step has checked some of them before.
	check()
}

// moment has the fields that the worlds of all models share. Each world embeds one.
type moment struct {
	*choices
	*trace             // counts the events, and writes the story
	only   []Invariant // the invariants that are checked; if empty, all are
	wrong  *violation
	// undo says that the step was impossible, or that another choice leads to the same state: so the
	// exploration drops the world after this step. untouched says that the step has not changed the world.
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
