package httpapi

import (
	"context"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// answerWait is how long a large answer waits for memory before it becomes a small one.
	answerWait = 250 * time.Millisecond
	// smallRecords is how many records a small answer may have, for half of its memory.
	smallRecords = smallBytes / 2 / recordStructBytes
)

// answerMemory is what an answer holds while its client reads it.
type answerMemory struct {
	broker *seb.Broker
	holder seb.Holder

	of    *seb.Reservation
	share seb.Share // whose that is
	held  int64
}

func (h *Handler) newAnswerMemory(w *response) *answerMemory {
	return &answerMemory{broker: h.broker, holder: w.holder()}
}

// reserve implements [seb.FetchOptions].Reserve: what there is no memory for now is
// left to the next read. A large answer gets what there is room for at once, if that is a
// quarter of it or more.
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

// atMost returns the bytes of records that a large answer may have beside the structs of so many, each
// of which takes structBytes: one answer leaves room for those of others.
func (m *answerMemory) atMost(bytes int64, records int, structBytes int64) int64 {
	return min(bytes, max(smallBytes, m.broker.ShareAlone(seb.ShareAnswers)-int64(records)*structBytes))
}

// take reserves n bytes of a share in place of what was reserved, and waits for no longer
// than that, nor than the broker ever does.
func (m *answerMemory) take(ctx context.Context, s seb.Share, n int64, wait time.Duration) error {
	m.begin(s)
	if err := m.of.GrowSoon(ctx, n, wait); err != nil {
		return err
	}
	m.held = n
	return nil
}

// begin makes a reservation of a share, which holds nothing yet, in place of what was reserved.
func (m *answerMemory) begin(s seb.Share) {
	m.free()
	m.of, m.share = m.broker.NewReservation(s, m.holder, nil), s
}

// settle adjusts the reservation to what the answer holds.
func (m *answerMemory) settle(ctx context.Context, n int64) error {
	if n <= m.held {
		if m.of != nil {
			m.of.Shrink(m.held - n)
			m.held = n
		}
		return nil
	}
	// The first record comes whatever its size. One of a broker with more memory may
	// be larger than the share: it holds all of that.
	_, most := m.broker.ShareBytes(seb.ShareAnswers)
	n = min(n, most)
	if m.of == nil || m.share != seb.ShareAnswers {
		return m.take(ctx, seb.ShareAnswers, n, time.Hour)
	}
	if err := m.of.Grow(ctx, n-m.held); err != nil { // in one reservation: nobody waits for itself
		return err
	}
	m.held = n
	return nil
}

// free gives everything back. It may be called again.
func (m *answerMemory) free() {
	if m.of != nil {
		m.of.Shrink(m.held)
	}
	m.of, m.held = nil, 0
}

// reserveFor returns how to reserve memory for what an answer of w holds that can't be
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
