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

// FindSession reports whether a session is that of a broker of this log: the log names it, or it was introduced.
//
// If this broker knows neither, and introduction is the key of an object in the bucket, FindSession reads that object: see
// [Engine.Introduce]. Without such a key, it syncs. These reads and syncs are rare: see SyncRarely.
//
// A session that nothing introduces may be that of a new broker of an older version. While this broker commits all the time, the
// new one wins hardly any slot, so this broker leaves it a free one: at most one every 5 s, however often FindSession is called.
func (e *Engine) FindSession(ctx context.Context, k format.SessionKey, introduction string) (known bool, err error) {
	find := func() bool { return e.Knows(k) || e.introduced(k) }
	if find() {
		return true, nil
	}
	if err := e.Usable(); err != nil {
		return false, err
	}
	if _, ok := format.ParseDataKey(introduction); ok {
		err := e.rarely(ctx, func() bool { known = find(); return known }, func(ctx context.Context) (err error) {
			known, err = e.readIntroduction(ctx, k, introduction)
			return err
		})
		return known, err
	}
	if err := e.SyncRarely(ctx); err != nil {
		return false, err
	}
	if known = find(); !known {
		e.newcomer.Store(true)
	}
	return known, nil
}
