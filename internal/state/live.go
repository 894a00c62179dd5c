package state

import "sync"

// Live is a state that one goroutine changes while others read it.
//
// Readers take the read lock. The goroutine that changes the state needs no lock to read it, and
// takes the write lock only for each change.
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

// Viewer returns the viewer of l.
func (l *Live) Viewer() Viewer { return Viewer{l} }

// View does what [Live.View] does.
func (v Viewer) View(f func(s *State)) { v.live.View(f) }
