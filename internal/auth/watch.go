package auth

import (
	"context"
	"sync"
)

// Watches has the contexts of work that goes on as long as an API key is valid. K is the type of
// the keys' ids. The zero Watches has none, and can be used at once.
type Watches[K comparable] struct {
	mu sync.Mutex
	m  map[K]map[*watch]struct{}
}

type watch struct{ end context.CancelCauseFunc }

// Add adds work for a key. The caller calls remove when the work is done.
func (w *Watches[K]) Add(key K, end context.CancelCauseFunc) (remove func()) {
	added := &watch{end}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m == nil {
		w.m = map[K]map[*watch]struct{}{}
	}
	if w.m[key] == nil {
		w.m[key] = map[*watch]struct{}{}
	}
	w.m[key][added] = struct{}{}
	return func() { w.remove(key, added) }
}

func (w *Watches[K]) remove(key K, added *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.m[key], added)
	if len(w.m[key]) == 0 {
		delete(w.m, key)
	}
}

// End calls check for each key that has work. If check returns an error, the key's work ends with
// this error as the cause.
func (w *Watches[K]) End(check func(key K) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, watches := range w.m {
		if err := check(key); err != nil {
			for watch := range watches {
				watch.end(err)
			}
		}
	}
}
