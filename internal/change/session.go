package change

import (
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// NameSession writes the public key of a broker's session into the log.
type NameSession struct{ Session format.SessionKey }

// Apply implements engine.Change.
func (x NameSession) Apply(*state.Draft) ([]format.Entry, error) {
	return []format.Entry{&format.SessionNamed{Session: x.Session}}, nil
}
