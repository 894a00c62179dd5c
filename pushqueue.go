package seb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/internal/push"
)

// pushQueue implements push.Queue for a pusher.
type pushQueue struct {
	q *Queue
	// may tells whether received records may still be sent to the pusher's target.
	may func() bool
}

// Receive implements [push.Queue].
func (p pushQueue) Receive(ctx context.Context, limit int) ([]push.Message, error) {
	memory, permits := p.q.b.pushMemory, p.q.b.permits
	messagesMax, bytesMax, ahead := memory.Plan(min(limit, receiveMax), receiveBytes)
	permitted := 0
	got, err := p.q.Receive(ctx, ReceiveOptions{
		Max: messagesMax, MaxBytes: bytesMax, Wait: ReceiveWaitMax,
		admit: func(ctx context.Context, most int) (int, func(), error) {
			n, err := permits.Take(ctx, most)
			permitted = n
			return n, func() { permits.Give(n) }, err
		},
		Reserve: func(ctx context.Context) (func(), error) {
			return func() { memory.Give(ahead) }, memory.Take(ctx, ahead)
		},
	})
	if len(got) > 0 {
		permits.Give(permitted - len(got))
	}
	if len(got) > 0 && !p.may() {
		memory.Give(ahead)
		permits.Give(len(got))
		if back := p.q.Return(got); back != nil {
			return nil, fmt.Errorf("%w: %w", push.ErrNoQueue, back)
		}
		return nil, fmt.Errorf("%w: the queue was deleted or paused, or its push target was changed, removed or stopped", push.ErrNoQueue)
	}
	if len(got) > 0 {
		held := int64(0)
		for i := range got {
			held += memory.Held(got[i].bytes())
		}
		if err := memory.Settle(ctx, ahead, held); err != nil {
			memory.Give(ahead)
			permits.Give(len(got))
			return nil, errors.Join(public(err), p.q.Return(got))
		}
	}
	messages := make([]push.Message, len(got))
	for i := range got {
		held := memory.Held(got[i].bytes())
		messages[i] = pushed(&got[i])
		permit := permits.One()
		messages[i].Release = func() {
			permit()
			memory.Give(held)
		}
	}
	switch CodeOf(err) {
	case CodeQueueElsewhere, CodeQueueNotFound, CodeTopicNotFound, CodeBrokerClosed, CodeBrokerStopped:
		return messages, fmt.Errorf("%w: %w", push.ErrNoQueue, err)
	default: // no error, or a temporary one
		return messages, err
	}
}

func pushed(m *Message) push.Message {
	p := push.Message{
		Token: m.Token, Attempt: m.Attempt, LeasedUntil: asFarOff(m.LeasedUntil),
		Partition: m.Partition, Offset: m.Offset, Key: m.Key, Value: m.Value, Timestamp: m.Timestamp, LogTime: m.LogTime,
	}
	for _, h := range m.Headers {
		p.Headers = append(p.Headers, push.Header(h))
	}
	return p
}

// Ack implements [push.Queue].
func (p pushQueue) Ack(ctx context.Context, token string) error {
	return ifLost(p.q.Ack(ctx, token))
}

// Nack implements [push.Queue].
func (p pushQueue) Nack(ctx context.Context, token string, atLeast time.Duration, reason string) error {
	return ifLost(p.q.Nack(ctx, NackOptions{Reason: reason, atLeast: atLeast}, token))
}

// Return implements [push.Queue].
func (p pushQueue) Return(token string) error {
	return p.q.Return([]Message{{Token: token}})
}

// Extend implements [push.Queue].
func (p pushQueue) Extend(ctx context.Context, token string) (until time.Time, err error) {
	until, err = p.q.Extend(ctx, 0, token)
	return asFarOff(until), ifLost(err)
}

// asFarOff returns the given time, with a reading of the monotonic clock. Leases end by the monotonic
// clock too, so a change of the wall clock does not matter.
func asFarOff(at time.Time) time.Time { return time.Now().Add(time.Until(at)) }

// ifLost wraps err with push.ErrLost if the pusher must drop the message.
func ifLost(err error) error {
	switch CodeOf(err) {
	case CodeLeaseLost, CodeQueueNotFound, CodeTopicNotFound, CodeInvalidRequest:
		return fmt.Errorf("%w: %w", push.ErrLost, err)
	default:
		return err
	}
}
