package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/mesh"
)

// alivePause is the time between two signs of life to brokers that wait for this one.
const alivePause = 100 * time.Millisecond

// pulse sends signs of life to the brokers that wait for this one, also while the commit loop waits for the store. Its lock
// is a leaf.
type pulse struct {
	mu      sync.Mutex
	to      []format.SessionID
	since   time.Time // since when the commit loop waits for the store, for its turn, or for bundles; zero if it does not
	running bool
}

// setPulse notes who waits for this broker.
func (e *Engine) setPulse() {
	h := &e.hand
	to := slices.Collect(maps.Keys(h.offers))
	for _, s := range h.receiver.Sessions() {
		to = append(to, format.SessionID(s))
	}
	e.beat(append(to, h.turns...), false)
}

// beatFor adds a broker that waits for this one.
func (e *Engine) beatFor(session format.SessionID) { e.beat([]format.SessionID{session}, true) }

func (e *Engine) beat(to []format.SessionID, more bool) {
	p := &e.hand.pulse
	p.mu.Lock()
	defer p.mu.Unlock()
	if more {
		p.to = slices.DeleteFunc(p.to, func(s format.SessionID) bool { return slices.Contains(to, s) })
		to = append(to, p.to...)
	}
	p.to = to
	if len(to) > 0 && !p.running {
		p.running = true
		e.tasks.Go(e.sendPulse)
	}
}

// busy notes since when the commit loop waits; zero if it does not.
func (p *pulse) busy(since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = since
}

// sendPulse sends signs of life until nobody waits.
func (e *Engine) sendPulse() {
	ticker := time.NewTicker(alivePause)
	defer ticker.Stop()
	for {
		ended := false
		select {
		case <-ticker.C:
		case <-e.loopDone:
			ended = true
		}
		to, since := e.hand.pulse.next(ended)
		if len(to) == 0 {
			return
		}
		for _, s := range to {
			e.mesh.Hand(s, mesh.Alive{Since: since, Fails: e.storeFails()})
		}
	}
}

// next returns who gets a sign of life now, and how long the commit loop has waited. If nobody does, the pulse ends.
func (p *pulse) next(ended bool) (to []format.SessionID, since time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ended {
		to = slices.Clone(p.to)
	}
	if !p.since.IsZero() {
		since = time.Since(p.since)
	}
	p.running = len(to) > 0
	return to, since
}
