package httpapi

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// answerWait is how long a large answer waits for memory. After that, the answer is limited to smallBytes.
	answerWait = 250 * time.Millisecond
	// smallRecords is how many records a small answer may have: the records' structs may take half of smallBytes.
	smallRecords = smallBytes / 2 / recordStructBytes
)

// answerMemory is the memory that is reserved for an answer while its client reads it. The broker may revoke the
// memory if the client is slow. The answer then ends, and the broker closes the connection.
type answerMemory struct {
	broker *seb.Broker
	w      *response

	of    *seb.Reservation
	share seb.Share // the share from which the reservation is made
	held  int64
}

func (h *Handler) newAnswerMemory(w *response) *answerMemory {
	return &answerMemory{broker: h.broker, w: w}
}

// heldAnswer is the memory of a response that the broker may revoke.
type heldAnswer struct {
	mu      sync.Mutex
	parts   []*answerMemory // those that hold such memory
	revoked bool
}

// errSlowClient says why the broker has ended an answer.
var errSlowClient = errors.New("the client took the response slowly, and other responses waited for its memory")

func (l *heldAnswer) add(m *answerMemory) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parts = append(l.parts, m)
}

func (l *heldAnswer) remove(m *answerMemory) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.parts, m); i >= 0 {
		l.parts = slices.Delete(l.parts, i, i+1)
	}
}

// ended returns why the broker has ended the answer, or nil if the broker has not ended it.
func (l *heldAnswer) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.revoked {
		return errSlowClient
	}
	return nil
}

// sent tells the broker that the client has taken n more bytes.
func (l *heldAnswer) sent(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.parts {
		m.of.Sent(int64(n))
	}
}

// broken tells the broker that the client has ended the connection.
func (l *heldAnswer) broken() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.parts {
		m.of.Broken()
	}
}

// revokeAnswer ends a write that waits for the client. If the answer has given its memory back meanwhile,
// revokeAnswer does nothing: the connection may already serve another request.
func (w *response) revokeAnswer() {
	w.held.mu.Lock()
	defer w.held.mu.Unlock()
	if len(w.held.parts) > 0 {
		w.held.revoked = true
		_ = w.conn.SetWriteDeadline(time.Unix(1, 0)) // the error is ignored: a connection that is closed, or in memory, does not stall
	}
}

// reserve implements [seb.FetchOptions].Reserve. Records for which there is no memory now are left
// to the next read. A large answer needn't get all the memory that it asks for: if at least a
// quarter of that memory is free, the answer gets what is free, and doesn't wait for the rest.
func (m *answerMemory) reserve(ctx context.Context, records int, bytes int64) (limit int, maxBytes int64, err error) {
	bytes = m.atMost(bytes, records, int64(recordStructBytes))
	n := bytes + int64(records)*int64(recordStructBytes)
	if n > smallBytes {
		m.begin(seb.ShareAnswers)
		if m.held = m.of.GrowNow(n/4, n); m.held > 0 {
			records = max(1, int(int64(records)*m.held/n))
			return records, m.held - int64(records)*int64(recordStructBytes), nil
		}
	}
	if n > smallBytes && m.take(ctx, seb.ShareAnswers, n, answerWait) == nil {
		return records, bytes, nil
	}
	if n > smallBytes {
		records, bytes = min(records, smallRecords), min(bytes, smallBytes/2)
		n = bytes + int64(records)*int64(recordStructBytes)
	}
	return records, bytes, m.take(ctx, seb.ShareSmall, n, time.Hour)
}

// atMost returns how many bytes of records one large answer may hold: bytes, or less. The limit leaves memory
// for the records' structs, of structBytes each, and for other answers.
func (m *answerMemory) atMost(bytes int64, records int, structBytes int64) int64 {
	return min(bytes, max(smallBytes, m.broker.ShareAlone(seb.ShareAnswers)-int64(records)*structBytes))
}

// take replaces the reservation by a reservation of n bytes from share s. If there is not enough memory, take
// waits for at most the given duration, and never longer than the broker lets callers wait for memory.
func (m *answerMemory) take(ctx context.Context, s seb.Share, n int64, wait time.Duration) error {
	m.begin(s)
	if err := m.of.GrowSoon(ctx, n, wait); err != nil {
		return err
	}
	m.held = n
	return nil
}

// begin replaces the reservation by an empty one from share s.
func (m *answerMemory) begin(s seb.Share) {
	m.free()
	m.share = s
	m.of = m.broker.NewReservation(s, m.w.holder(), m.w.revokeAnswer).ForResponse()
	m.w.held.add(m)
}

// settle adjusts the reservation to n, the bytes that the answer holds, and tells whether there was room for them
// at once. If there was none, it gives the memory back: requests that wait for more memory while they hold some could
// wait for each other. The caller then drops what it has read, reserves n bytes with [answerMemory.takeWhole], and reads
// again.
func (m *answerMemory) settle(n int64) bool {
	n = m.wholeOf(n)
	if n <= m.held {
		if m.of != nil {
			m.of.Shrink(m.held - n)
			m.held = n
		}
		return true
	}
	if m.of == nil || m.share == seb.ShareSmall && n > smallBytes {
		m.begin(seb.ShareAnswers)
	}
	if m.of.GrowNow(n-m.held, n-m.held) > 0 {
		m.held = n
		return true
	}
	m.free()
	return false
}

// takeWhole reserves n bytes for an answer that was read once, and for which there was no room.
func (m *answerMemory) takeWhole(ctx context.Context, n int64) error {
	s := seb.ShareAnswers
	if n <= smallBytes {
		s = seb.ShareSmall
	}
	return m.take(ctx, s, m.wholeOf(n), time.Hour)
}

// whole returns a [seb.FetchOptions].Reserve that reserves n bytes for that many records.
func (m *answerMemory) whole(records int, n int64) func(context.Context, int, int64) (int, int64, error) {
	return func(ctx context.Context, _ int, _ int64) (int, int64, error) { return records, n, m.takeWhole(ctx, n) }
}

// wholeOf returns n, or the size of the share if that is less. An answer has at least one record, however large that
// record is. A record that a broker with more memory has written may be larger than the share. The answer then
// reserves the whole share.
func (m *answerMemory) wholeOf(n int64) int64 {
	_, most := m.broker.ShareBytes(seb.ShareAnswers)
	return min(n, most)
}

// free gives the memory back. A second call does nothing.
func (m *answerMemory) free() {
	if m.of == nil {
		return
	}
	m.w.held.remove(m)
	m.of.Shrink(m.held)
	m.of, m.held = nil, 0
}

// reserveFor returns a function that reserves memory for the part of w's answer that can't be
// made smaller.
func (h *Handler) reserveFor(w *response) reserve {
	return func(ctx context.Context, n int64) (release func(), err error) {
		m := h.newAnswerMemory(w)
		s := seb.ShareAnswers
		if n <= smallBytes {
			s = seb.ShareSmall
		}
		if err := m.take(ctx, s, n, time.Hour); err != nil {
			return nil, err
		}
		return m.free, nil
	}
}
