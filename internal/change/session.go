package change

import (
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// NameSession adds a broker's session to those that the log names.
type NameSession struct{ Session format.SessionKey }

// Apply implements engine.Change.
func (x NameSession) Apply(*state.Draft) ([]format.Entry, error) {
	return []format.Entry{&format.SessionNamed{Session: x.Session}}, nil
}
