package httpapi

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// smallBytes is the most memory that a small request or answer may hold: see
	// [seb.ShareSmall].
	smallBytes = 64 << 10
	// bodyGrowth is the factor by which the buffer of a body grows when it is full. The bytes read so
	// far are copied into the new buffer. Together, all these copies have about a third of the body's
	// bytes.
	bodyGrowth = 4
)

// holder returns the key and the address to which the request's memory is attributed.
func (w *response) holder() seb.Holder {
	return seb.Holder{Key: w.access.Key.ID, Address: attemptsOf(w.request.RemoteAddr)}
}

// bodyMemory is the memory that a body holds while it is read. The broker may revoke it: then
// the read ends.
type bodyMemory struct {
	w            *response
	small, large *seb.Reservation

	revoked  atomic.Bool
	mu       sync.Mutex
	complete bool // revoke must no longer set the connection's deadline
}

// newBodyMemory returns the memory of a body of size bytes. A size of -1 means unknown: then
// the body counts as small until it needs a larger buffer.
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

// revoke ends a read that waits for more of the body.
func (m *bodyMemory) revoke() {
	m.revoked.Store(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.complete {
		_ = m.w.conn.SetReadDeadline(time.Unix(1, 0)) // the error is ignored: a connection that supports no deadlines can't stall
	}
}

// ended returns why the memory was revoked, nil if it was not.
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
	// net/http goes on to read from the connection, to notice its end: that needs no deadline.
	_ = m.w.conn.SetReadDeadline(time.Time{})
}

// firstBytes returns the size of the first buffer for a body of up to most bytes. A buffer that begins
// with this size and grows by the factor bodyGrowth reaches most, or a few bytes more.
func firstBytes(most int) int {
	for most > smallBytes {
		most = (most + bodyGrowth - 1) / bodyGrowth
	}
	return most
}
