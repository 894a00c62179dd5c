package push

import (
	"context"
	"errors"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/httprecord"
)

// Message is one delivery of a record.
type Message struct {
	// Token identifies this delivery when the pusher calls the queue.
	Token string
	// Attempt counts the deliveries of this record, from 1.
	Attempt int
	// LeasedUntil is when the queue may hand the record out again.
	LeasedUntil time.Time

	Partition int32
	Offset    format.Offset
	Key       []byte // nil if there is none
	Value     []byte // must never be changed: net/http may read it even shortly after the request has ended
	Headers   []Header
	Timestamp time.Time
	LogTime   time.Time // of the record's commit; zero if the log does not keep such times yet
	// Release, if set, is called when Value is no longer needed.
	Release func()
}

// release frees the value when the request has ended. The steps after the request may take a while, and they
// don't need the value.
func (m *Message) release() {
	m.Value = nil
	if m.Release != nil {
		m.Release()
	}
}

// Header is a name and value that belong to a record.
type Header struct {
	Name  string
	Value []byte
}

func (m *Message) headers() httprecord.Headers {
	return func(yield func(string, []byte) bool) {
		for _, h := range m.Headers {
			if !yield(h.Name, h.Value) {
				return
			}
		}
	}
}

// Queue is what a [Pusher] needs from a queue. The pusher calls the methods of a Queue concurrently,
// but never Receive twice at a time. If a method other than Return fails, the pusher repeats the call,
// unless the error is ErrLost or ErrNoQueue.
type Queue interface {
	// Receive hands out at most limit messages. It waits for the first message without a time limit,
	// and then returns the messages that are available; it may return none. When ctx ends, Receive returns
	// at once. It then returns the messages that it has already leased, with or without an error.
	Receive(ctx context.Context, limit int) ([]Message, error)
	// Ack marks a message as done, and returns when that is durable.
	Ack(ctx context.Context, token string) error
	// Nack puts a message back after a failed attempt. The queue hands the message out again after the
	// queue's backoff or atLeast, whichever is longer. The reason has at most [ReasonBytesMax] bytes.
	Nack(ctx context.Context, token string, atLeast time.Duration, reason string) error
	// Return gives back a message that was not sent. The queue hands the message out again as the
	// same attempt.
	Return(token string) error
	// Extend moves the end of a message's lease to one queue lease from now, and returns that time.
	Extend(ctx context.Context, token string) (until time.Time, err error)
}

var (
	// ErrLost is returned by Ack, Nack and Extend when the pusher has lost the lease of the message: another
	// worker may have the record, or the queue no longer has the record.
	ErrLost = errors.New("the lease of the message is lost")
	// ErrNoQueue is returned by Receive when the queue is deleted, or another broker owns it.
	// ErrNoQueue ends [Pusher.Run].
	ErrNoQueue = errors.New("the queue does not exist, or another broker owns it")
)
