package mesh

import (
	"context"
	"sync"

	"github.com/simple-event-broker/seb/internal/format"
)

// link is a connection in use, and the messages that wait to be sent.
type link struct {
	conn   Conn
	dialer format.SessionID // the session that asked for the connection
	wake   chan struct{}
	ended  chan struct{} // closed when the connection has ended

	questions chan uint64 // has the number of the peer's last ask; its capacity is 1

	mu     sync.Mutex
	outbox [][]byte
	bytes  int
	number uint64                     // of the last own ask
	waits  map[uint64]chan format.Seq // own asks without an answer, by number
}

func newLink(conn Conn, dialer format.SessionID) *link {
	return &link{
		conn: conn, dialer: dialer, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		questions: make(chan uint64, 1), waits: map[uint64]chan format.Seq{},
	}
}

// ask sends an ask, and waits for the proof.
func (l *link) ask(ctx context.Context) (format.Seq, error) {
	answer := make(chan format.Seq, 1)
	l.mu.Lock()
	l.number++
	number := l.number
	l.waits[number] = answer
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waits, number)
	}()
	l.put(ask{number}.encode())
	select {
	case end := <-answer:
		return end, nil
	case <-l.ended:
		return 0, ErrNoPeer
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// proven passes a proof to the call of ask that waits for it, and to those of earlier asks.
func (l *link) proven(p proof) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for number, answer := range l.waits {
		if number <= p.number {
			answer <- p.end // has room, since each answer is sent once
			delete(l.waits, number)
		}
	}
}

// asked notes an ask of the peer. Only the goroutine that receives calls it.
func (l *link) asked(number uint64) {
	select {
	case <-l.questions: // the answer to a later ask also answers this one
	default:
	}
	l.questions <- number
}

// put adds a message, which must not change afterwards. If the peer reads too slowly, put drops the message and returns
// false: the peer reads the commit from the store.
func (l *link) put(message []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes > 0 && l.bytes+len(message) > outboxBytesMax {
		return false
	}
	l.outbox = append(l.outbox, message)
	l.bytes += len(message)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return true
}

func (l *link) take() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.outbox
	l.outbox = nil
	return taken
}

// send sends messages until ctx ends or the connection fails.
func (l *link) send(ctx context.Context) error {
	for {
		for _, message := range l.take() {
			within, cancel := context.WithTimeout(ctx, sendTimeout)
			err := l.conn.Send(within, message)
			cancel()
			if err != nil {
				return err
			}
			l.mu.Lock()
			l.bytes -= len(message)
			l.mu.Unlock()
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
