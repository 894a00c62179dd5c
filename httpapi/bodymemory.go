package httpapi

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// smallBytes is what a request may have, or an answer, that counts as small: see
	// [seb.ShareSmall].
	smallBytes = 64 << 10
	// bodyGrowth is how many times as large as what has come the memory of a body
	// becomes when it is full. What has come is copied then: a third of a body in all.
	bodyGrowth = 4
)

// holder is on whose account the request holds memory.
func (w *response) holder() seb.Holder {
	return seb.Holder{Key: w.access.Key.ID, Address: attemptsOf(w.request.RemoteAddr)}
}

// bodyMemory is what a body holds while it comes. It may be taken back: then reading ends.
type bodyMemory struct {
	w            *response
	small, large *seb.Reservation

	revoked  atomic.Bool
	mu       sync.Mutex
	complete bool // the connection's deadline is not to be touched
}

// newBodyMemory returns the memory of a body that has size bytes, or -1 if that is not
// known: then it counts as small for as long as it is.
func (h *Handler) newBodyMemory(w *response, size int64) *bodyMemory {
	m := &bodyMemory{w: w}
	if size <= smallBytes {
		m.small = h.broker.NewReservation(seb.ShareSmall, w.holder(), m.revoke)
	}
	if size > smallBytes || size < 0 {
		m.large = h.broker.NewReservation(seb.ShareBodies, w.holder(), m.revoke)
	}
	return m
}

// reserve implements [reserve].
func (m *bodyMemory) reserve(ctx context.Context, n int64) (release func(), err error) {
	r := m.small
	if r == nil || n > smallBytes && m.large != nil {
		r = m.large
	}
	if err := r.Grow(ctx, n); err != nil {
		return nil, err
	}
	return func() { r.Shrink(n) }, nil
}

// revoke has a read that waits for the body end.
func (m *bodyMemory) revoke() {
	m.revoked.Store(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.complete {
		_ = m.w.conn.SetReadDeadline(time.Unix(1, 0)) // a connection without deadlines can't stall
	}
}

// ended returns why the memory was taken back, nil if it was not.
func (m *bodyMemory) ended() error {
	for _, r := range []*seb.Reservation{m.small, m.large} {
		if r == nil {
			continue
		}
		if err := r.Ended(); err != nil {
			return err
		}
	}
	return nil
}

// done is called when the body is complete.
func (m *bodyMemory) done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.complete = true
	// The server goes on to watch the connection for its end, without a deadline.
	_ = m.w.conn.SetReadDeadline(time.Time{})
}

// firstBytes returns how much to reserve for a body of at most so many bytes before any
// have come, such that the last step of its growth is a whole one.
func firstBytes(most int) int {
	for most > smallBytes {
		most = (most + bodyGrowth - 1) / bodyGrowth
	}
	return most
}
