package seb

import "context"

const (
	// pushShare is which part of the memory budget pushed records may hold together while
	// they are under way: targets may be slow, and what they hold others can't have.
	pushShare = 4
	// pushedBytes is what one holds beside its record.
	pushedBytes = 512
)

// pushMemory is what the pushed records under way hold of the memory budget.
type pushMemory struct {
	b     *Broker
	share budget
}

func newPushMemory(b *Broker) *pushMemory {
	return &pushMemory{b: b, share: budget{limit: b.opts.Memory / pushShare, resize: func(int64) {}}}
}

// take waits for n bytes, as a request does that holds memory already: what it needs
// beside that is bounded here.
func (m *pushMemory) take(ctx context.Context, n int64) error {
	if err := m.share.take(ctx, forBatches, n); err != nil {
		return err
	}
	if err := m.b.budget.take(ctx, forPushed, n); err != nil {
		m.share.give(forBatches, n)
		return err
	}
	return nil
}

func (m *pushMemory) give(n int64) {
	m.b.budget.give(forPushed, n)
	m.share.give(forBatches, n)
}

// options returns how to receive at most so many records, and the memory that is taken
// before any of them are: less than half of the share, so that pushers don't wait for each
// other's.
func (m *pushMemory) options(most int) (o ReceiveOptions, ahead int64) {
	quarter := m.share.limit / 4
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

// held returns what a received record holds. One that is larger than the share, which the
// log may have of a broker with more memory, holds all of it.
func (m *pushMemory) held(r *Record) int64 { return min(r.bytes()+pushedBytes, m.share.limit) }

// settle makes of the memory that was taken ahead what messages hold.
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
