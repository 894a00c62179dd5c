package state

import "sync"

// Live is a state that one goroutine changes while other goroutines read it.
//
// Readers hold the read lock. The goroutine that changes the state holds the write lock during
// each change; it needs no lock to read.
type Live struct {
	sync.RWMutex
	State *State
}

// View calls f with the state, which does not change until f returns. f must not call View.
func (l *Live) View(f func(s *State)) {
	l.RLock()
	defer l.RUnlock()
	f(l.State)
}

// Viewer gives access to a live state to callers that may only read it.
type Viewer struct{ live *Live }

// Viewer returns a Viewer of the live state.
func (l *Live) Viewer() Viewer { return Viewer{l} }

// View does what [Live.View] does.
func (v Viewer) View(f func(s *State)) { v.live.View(f) }
