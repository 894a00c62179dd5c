package push

import (
	"context"
	"errors"
	"time"

	"github.com/simple-event-broker/seb/internal/httprecord"
)

// Message is one delivery of a record, as a queue handed it out.
type Message struct {
	// Token names the delivery to the queue.
	Token string
	// Attempt counts the deliveries of this record, from 1.
	Attempt int
	// LeasedUntil is when the queue may hand the record out again.
	LeasedUntil time.Time

	Partition int32
	Offset    int64
	Key       []byte // nil: none
	Value     []byte // never changed: a request may read it for a moment after it ended
	Headers   []Header
	Timestamp time.Time
	// Release, if it is set, is called once Value is needed no more.
	Release func()
}

// release lets go of the value: what comes after a request needs it no more, and may take
// a while.
func (m *Message) release() {
	m.Value = nil
	if m.Release != nil {
		m.Release()
	}
}

// Header is one name and value beside a record.
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

// Queue is what a [Pusher] needs of a queue. Its methods are called concurrently, except
// Receive. Errors of any but the two kinds below are taken for passing: the call is
// made again.
type Queue interface {
	// Receive hands out at most limit messages. It waits for the first, for as long as it
	// likes, and then returns what is there; none is an answer too. When ctx ends it
	// returns at once what it has handed out by then, with or without an error.
	Receive(ctx context.Context, limit int) ([]Message, error)
	// Ack says that a message's work is done, and returns when that is durable.
	Ack(ctx context.Context, token string) error
	// Nack puts a message back. It comes again after the queue's own backoff, and not
	// before atLeast. The reason has at most [ReasonBytesMax] bytes.
	Nack(ctx context.Context, token string, atLeast time.Duration, reason string) error
	// Return gives back a message that was not sent: it comes again as the same attempt.
	Return(token string) error
	// Extend prolongs a message's lease by the queue's own, and returns its new end.
	Extend(ctx context.Context, token string) (until time.Time, err error)
}

var (
	// ErrLost is of Ack, Nack and Extend: the record may have gone to another by now, or
	// the queue forgot it, so that this delivery counts no more.
	ErrLost = errors.New("the message is another's by now")
	// ErrNoQueue is of Receive: there is nothing to receive here any more, because the
	// queue is gone or is handed out elsewhere. It ends [Pusher.Run].
	ErrNoQueue = errors.New("the queue is not handed out here")
)
