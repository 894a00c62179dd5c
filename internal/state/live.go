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
