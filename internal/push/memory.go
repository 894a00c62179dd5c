package push

import (
	"context"

	"github.com/simple-event-broker/seb/internal/budget"
)

const (
	// memoryShare is 4: messages that are being pushed may hold a quarter of a broker's memory, so that
	// slow targets can't take all of it.
	memoryShare = 4
	// messageBytes is how many bytes a push holds in addition to its message.
	messageBytes = 512
)

// Memory counts the bytes that all messages of a broker hold while they are being pushed, and bounds them.
type Memory struct {
	of    *budget.Budget // the broker's memory
	share *budget.Budget
}

// NewMemory returns a Memory that may use a quarter of the broker's memory. The parameters are the budget of
// the whole broker, and how many bytes that budget has.
func NewMemory(of *budget.Budget, limit int64) *Memory {
	return &Memory{of, budget.New(limit/memoryShare, func(int64) {})}
}

// Take waits for n bytes of the share, and then for n bytes of the broker's memory.
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

// Plan returns how many messages, and how many bytes, a pusher may receive at a time: at most
// messagesMax and bytesMax. ahead is how many bytes of the share the pusher has to take before it receives:
// at most half of the share, so that two pushers can receive at the same time.
func (m *Memory) Plan(messagesMax int, bytesMax int64) (messages int, bytes, ahead int64) {
	quarter := m.share.Limit() / 4
	messages, bytes = int(min(int64(messagesMax), quarter/messageBytes)), min(bytesMax, quarter)
	return messages, bytes, bytes + int64(messages)*messageBytes
}

// Held returns how many bytes of the share a message of the given size takes. A message that is larger than
// the share (a broker with more memory may have appended it) takes all of the share.
func (m *Memory) Held(size int64) int64 { return min(size+messageBytes, m.share.Limit()) }

// Settle corrects how many bytes a pusher has taken, after the pusher has received messages. ahead is how
// many bytes the pusher took before that, and held is how many bytes the messages take.
func (m *Memory) Settle(ctx context.Context, ahead, held int64) error {
	if held > ahead { // a Receive returns its first message even if the message is larger than planned
		return m.Take(ctx, held-ahead)
	}
	m.Give(ahead - held)
	return nil
}
