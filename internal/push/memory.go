package push

import (
	"context"

	"github.com/simple-event-broker/seb/internal/budget"
)

const (
	// memoryShare is the fraction of a broker's memory that messages may hold together while they are
	// under way: slow targets must not take all of it.
	memoryShare = 4
	// messageBytes is what a push holds in addition to its message.
	messageBytes = 512
)

// Memory is what the messages of all pushers of a broker hold of its memory while they are under way.
type Memory struct {
	of    *budget.Budget // of the broker
	share *budget.Budget
}

// NewMemory returns a share of a broker's memory, which has limit bytes.
func NewMemory(of *budget.Budget, limit int64) *Memory {
	return &Memory{of, budget.New(limit/memoryShare, func(int64) {})}
}

// Take waits for n bytes of the share, which bounds what pushers hold together, and then of the
// broker's memory.
func (m *Memory) Take(ctx context.Context, n int64) error {
	if err := m.share.Take(ctx, budget.Batches, n); err != nil {
		return err
	}
	if err := m.of.Take(ctx, budget.Pushed, n); err != nil {
		m.share.Give(budget.Batches, n)
		return err
	}
	return nil
}

// Give gives n bytes back.
func (m *Memory) Give(n int64) {
	m.of.Give(budget.Pushed, n)
	m.share.Give(budget.Batches, n)
}

// Plan returns how many messages a pusher may receive at a time, and of how many bytes, which are at
// most those given; and what to take before it receives any. That is less than half of the share, so
// that two pushers fit in it.
func (m *Memory) Plan(messagesMax int, bytesMax int64) (messages int, bytes, ahead int64) {
	quarter := m.share.Limit() / 4
	messages, bytes = int(min(int64(messagesMax), quarter/messageBytes)), min(bytesMax, quarter)
	return messages, bytes, bytes + int64(messages)*messageBytes
}

// Held returns what a message of that size holds. A message that is larger than the share, which a
// broker with more memory may have appended, holds all of it.
func (m *Memory) Held(size int64) int64 { return min(size+messageBytes, m.share.Limit()) }

// Settle changes what was taken ahead to what the messages hold that came.
func (m *Memory) Settle(ctx context.Context, ahead, held int64) error {
	if held > ahead { // the first message comes whatever its size
		return m.Take(ctx, held-ahead)
	}
	m.Give(ahead - held)
	return nil
}
