package seb

import (
	"context"

	"github.com/simple-event-broker/seb/internal/budget"
)

const (
	// pushShare is the fraction of the memory budget that pushed records may hold together
	// while they are under way: slow targets must not take all of it.
	pushShare = 4
	// pushedBytes is what a push holds in addition to its record.
	pushedBytes = 512
)

// pushMemory is what the pushed records under way hold of the memory budget.
type pushMemory struct {
	b     *Broker
	share *budget.Budget
}

func newPushMemory(b *Broker) *pushMemory {
	return &pushMemory{b: b, share: budget.New(b.opts.Memory/pushShare, func(int64) {})}
}

// take waits for n bytes of the share, which bounds what pushes hold together, and then of the
// budget.
func (m *pushMemory) take(ctx context.Context, n int64) error {
	if err := m.share.Take(ctx, budget.Batches, n); err != nil {
		return err
	}
	if err := m.b.engine.Budget().Take(ctx, budget.Pushed, n); err != nil {
		m.share.Give(budget.Batches, n)
		return err
	}
	return nil
}

func (m *pushMemory) give(n int64) {
	m.b.engine.Budget().Give(budget.Pushed, n)
	m.share.Give(budget.Batches, n)
}

// options returns options to receive at most that many records, and the memory that is taken
// before any is received: less than half of the share, so that two pushers fit in it.
func (m *pushMemory) options(most int) (o ReceiveOptions, ahead int64) {
	quarter := m.share.Limit() / 4
	o = ReceiveOptions{
		Max: int(min(int64(most), receiveMax, quarter/pushedBytes)), MaxBytes: min(receiveBytes, quarter), Wait: ReceiveWaitMax,
	}
	ahead = o.MaxBytes + int64(o.Max)*pushedBytes
	o.Reserve = func(ctx context.Context) (func(), error) {
		if err := m.take(ctx, ahead); err != nil {
			return nil, err
		}
		return func() { m.give(ahead) }, nil
	}
	return o, ahead
}

// held returns what a received record holds. A record that is larger than the share, which a
// broker with more memory may have appended, holds all of it.
func (m *pushMemory) held(r *Record) int64 { return min(r.bytes()+pushedBytes, m.share.Limit()) }

// settle changes the memory that was taken ahead to what messages hold.
func (m *pushMemory) settle(ctx context.Context, messages []Message, ahead int64) error {
	more := -ahead
	for i := range messages {
		more += m.held(&messages[i].Record)
	}
	if more > 0 { // the first record comes whatever its size
		return m.take(ctx, more)
	}
	m.give(-more)
	return nil
}
