package state

import "sync"

// Live is a state that one goroutine changes while others read it.
//
// The lock is for reading. The goroutine that changes the state reads it without, and takes the
// lock for the change alone.
type Live struct {
	sync.RWMutex
	State *State
}

// View calls f with the state, which stays as it is meanwhile. f must not call View.
func (l *Live) View(f func(s *State)) {
	l.RLock()
	defer l.RUnlock()
	f(l.State)
}

// Viewer shows a live state to those who must not change it.
type Viewer struct{ live *Live }

// Viewer returns the viewer of l.
func (l *Live) Viewer() Viewer { return Viewer{l} }

// View is [Live.View].
func (v Viewer) View(f func(s *State)) { v.live.View(f) }
