package engine

import (
	"context"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// Knows reports whether the applied log names the session as that of a broker.
func (e *Engine) Knows(k format.SessionKey) (knows bool) {
	e.View(func(s *state.State) { knows = s.KnowsSession(k) })
	return knows
}

// FindSession does the same as Knows, but syncs if the applied log does not name the session: see SyncRarely. A session that
// the log does not name may be that of a new broker. While this broker commits all the time, the new one wins hardly any
// slot, so this broker leaves it a free one: at most one every 5 s, however often FindSession is called.
func (e *Engine) FindSession(ctx context.Context, k format.SessionKey) (bool, error) {
	if e.Knows(k) {
		return true, nil
	}
	if err := e.Usable(); err != nil {
		return false, err
	}
	if err := e.SyncRarely(ctx); err != nil {
		return false, err
	}
	known := e.Knows(k)
	if !known {
		e.newcomer.Store(true)
	}
	return known, nil
}
