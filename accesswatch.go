package seb

import (
	"context"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// accessWatches cancels the contexts that run under an API key when the key is revoked.
type accessWatches struct {
	mu sync.Mutex
	m  map[uint64]map[*accessWatch]struct{} // by key; 0 for open accesses
}

type accessWatch struct{ end context.CancelCauseFunc }

func (w *accessWatches) init() { w.m = map[uint64]map[*accessWatch]struct{}{} }

func (w *accessWatches) add(key uint64, watch *accessWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m[key] == nil {
		w.m[key] = map[*accessWatch]struct{}{}
	}
	w.m[key][watch] = struct{}{}
}

func (w *accessWatches) remove(key uint64, watch *accessWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.m[key], watch)
	if len(w.m[key]) == 0 {
		delete(w.m, key)
	}
}

// Applying implements engine.Observer.
func (w *accessWatches) Applying([]format.Entry, state.Moment) {}

// Applied implements engine.Observer.
func (w *accessWatches) Applied(s *state.State, entries []format.Entry, _ state.Moment) {
	for _, e := range entries {
		switch e.(type) {
		case *format.KeyCreated, *format.KeyRevoked:
			w.Loaded(s)
			return
		}
	}
}

// Loaded implements engine.Observer: it cancels the watches of keys that s no longer has.
func (w *accessWatches) Loaded(s *state.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, watches := range w.m {
		c := caller{key: key, open: key == 0} // its context has a deadline: time need not be checked here
		if err := c.May(s, time.Time{}); err != nil {
			for watch := range watches {
				watch.end(err)
			}
		}
	}
}

// While returns a context that ends with ctx, when a expires, or when this broker learns
// that a's key was revoked: for work that goes on long after the caller was authenticated.
// If the access ended, the cause is an [Error] with [CodeUnauthorized]. Call leave when done.
func (b *Broker) While(ctx context.Context, a Access) (_ context.Context, leave context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	watch := &accessWatch{end}
	key := a.Key.ID // so that leave keeps the id alone, not all of a
	b.accesses.add(key, watch)
	if err := b.holdsNow(a); err != nil {
		end(err)
	}
	cancel := func() {}
	if !a.Until.IsZero() {
		ctx, cancel = context.WithTimeoutCause(ctx, a.Until.Sub(b.engine.StoreNow()), expired(a))
	}
	return ctx, func() {
		b.accesses.remove(key, watch)
		cancel()
		end(nil)
	}
}
