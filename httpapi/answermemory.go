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

	of        *seb.Reservation
	held      int64
	more      *seb.Reservation // of a record that is larger than what was reserved
	moreBytes int64
}

func (h *Handler) newAnswerMemory(w *response) *answerMemory {
	return &answerMemory{broker: h.broker, holder: w.holder()}
}

// reserve implements [seb.FetchOptions].Reserve: what there is no memory for now is
// left to the next read.
func (m *answerMemory) reserve(ctx context.Context, records int, bytes int64) (limit int, maxBytes int64, err error) {
	n := bytes + int64(records)*int64(recordStructBytes)
	if n > smallBytes && m.take(ctx, seb.ShareAnswers, n, answerWait) == nil {
		return records, bytes, nil
	}
	if n > smallBytes {
		records, bytes = min(records, smallRecords), min(bytes, smallBytes/2)
		n = bytes + int64(records)*int64(recordStructBytes)
	}
	return records, bytes, m.take(ctx, seb.ShareSmall, n, time.Hour)
}

// take reserves n bytes of a share in place of what was reserved, and waits for no longer
// than that, nor than the broker ever does.
func (m *answerMemory) take(ctx context.Context, s seb.Share, n int64, wait time.Duration) error {
	m.free()
	m.of = m.broker.NewReservation(s, m.holder, nil)
	if err := m.of.GrowSoon(ctx, n, wait); err != nil {
		return err
	}
	m.held = n
	return nil
}

// settle makes of what was reserved what the answer holds.
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
	more := m.broker.NewReservation(seb.ShareAnswers, m.holder, nil)
	n = min(n-m.held, most)
	if err := more.Grow(ctx, n); err != nil {
		return err
	}
	m.more, m.moreBytes = more, n
	return nil
}

// free gives everything back. It may be called again.
func (m *answerMemory) free() {
	if m.of != nil {
		m.of.Shrink(m.held)
	}
	if m.more != nil {
		m.more.Shrink(m.moreBytes)
	}
	m.of, m.held, m.more, m.moreBytes = nil, 0, nil, 0
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
