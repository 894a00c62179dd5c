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
	// bodyGrowth is the factor by which the buffer of a body grows when the buffer is full. The bytes read
	// so far are copied into the new buffer. All these copies together have about a third of the body's
	// bytes: a quarter, a sixteenth, and so on.
	bodyGrowth = 4
)

// holder returns the key to which the request's memory is attributed, or the address of a caller without a key.
func (w *response) holder() seb.Holder {
	if id := w.access.Key.ID; id != 0 {
		return seb.Holder{Key: id}
	}
	return seb.Holder{Address: attemptsOf(w.request.RemoteAddr)}
}

// bodyMemory is the memory that a body holds while the body is read. The broker may revoke this memory. The
// read of the body then fails.
type bodyMemory struct {
	w            *response
	small, large *seb.Reservation
	refused      *refusedBodies
	extra        int64 // how much larger than the body a buffer may be

	revoked  atomic.Bool
	mu       sync.Mutex
	complete bool // revoke must no longer set the connection's deadline
}

// newBodyMemory returns the memory of a body, none of it reserved yet. A size of -1 means unknown: then the
// body gets memory of the share for small requests until the body needs a larger buffer.
func (h *Handler) newBodyMemory(w *response, size int64) *bodyMemory {
	m := &bodyMemory{w: w, refused: h.refused}
	if size <= smallBytes {
		m.small = h.broker.NewReservation(seb.ShareSmall, w.holder(), m.revoke)
	}
	if size > smallBytes || size < 0 {
		m.large = h.broker.NewReservation(seb.ShareBodies, w.holder(), m.revoke)
	}
	return m
}

// reserve takes n bytes from the broker's memory budget until release is called. They come from the share for
// large bodies if m.small is nil (the body is large), or if n is more than smallBytes and m.large is not nil
// (the size of the body is unknown). Otherwise they come from the share for small requests. If the body is large,
// and the broker has refused too many bytes of the holder, reserve returns an error.
func (m *bodyMemory) reserve(ctx context.Context, n int64) (release func(), err error) {
	r := m.small
	if r == nil || n > smallBytes && m.large != nil {
		r = m.large
	}
	if m.small == nil || n > smallBytes+m.extra {
		if err := m.refused.check(m.w.holder()); err != nil {
			return nil, err
		}
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
		_ = m.w.conn.SetReadDeadline(time.Unix(1, 0)) // the error is ignored: a connection that is closed, or in memory, does not stall
	}
}

// ended returns the error that says why the memory was revoked, or nil if it was not revoked.
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

// done removes the read deadline. The caller calls done when the body is complete.
func (m *bodyMemory) done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.complete = true
	// net/http goes on to read from the connection, to notice when the client closes it. That read
	// must have no deadline.
	_ = m.w.conn.SetReadDeadline(time.Time{})
}

// firstBytes returns the size of the first buffer for a body whose largest size is most. For 1 MiB that is
// 64 KiB: the buffer can grow to 256 KiB, then to 1 MiB.
func firstBytes(most int) int {
	for most > smallBytes {
		most = (most + bodyGrowth - 1) / bodyGrowth
	}
	return most
}
