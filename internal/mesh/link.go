package mesh

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// link is a connection in use, and the messages that wait to be sent.
type link struct {
	conn   Conn
	dialer format.SessionID // the session that asked for the connection
	since  time.Time
	wake   chan struct{}
	ended  chan struct{} // closed when the connection has ended

	questions chan uint64 // has the number of the peer's last ask; its capacity is 1

	mu     sync.Mutex
	outbox [][]byte
	last   bool // the connection ends once the outbox is empty
	bytes  int
	number uint64                     // of the last own ask or ping
	waits  map[uint64]chan format.Seq // own asks without an answer, by number
	pings  map[uint64]chan struct{}   // own pings without an answer, by number

	heardAt  time.Time     // when the last message came
	deaf     bool          // the peer has committed long after its last message, or did not answer in time
	answers  bool          // the peer answers pings
	probe    uint64        // number of the ping that measures the round trip; 0 if none is under way
	probedAt time.Time     // when it was sent
	measured time.Duration // the last round trip that was measured; 0 if none was
	pingedAt time.Time     // when the link sent a ping, since nothing had come for long; zero if something has come since then
	askPause time.Duration // how long the link counted as broken after the last ask; 0 if that was answered
	askAfter time.Time     // until then the link counts as broken
}

func newLink(conn Conn, dialer format.SessionID) *link {
	return &link{
		conn: conn, dialer: dialer, since: time.Now(), wake: make(chan struct{}, 1), ended: make(chan struct{}),
		questions: make(chan uint64, 1), waits: map[uint64]chan format.Seq{}, pings: map[uint64]chan struct{}{}, heardAt: time.Now(),
	}
}

// heard notes that a message has come.
func (l *link) heard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heardAt, l.deaf, l.pingedAt = time.Now(), false, time.Time{}
}

// committed notes a commit of the peer that did not come over this link.
func (l *link) committed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = l.deaf || time.Since(l.heardAt) > silence
}

// works reports whether commits and answers probably come over the link in time.
func (l *link) works() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	unanswered := !l.pingedAt.IsZero() && time.Since(l.pingedAt) > pingTimeout
	return !l.deaf && !unanswered && !time.Now().Before(l.askAfter)
}

// silent notes that the peer should have sent something, and has not.
func (l *link) silent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
}

// answered notes whether the last ask was answered in time.
func (l *link) answered(ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.askPause = min(max(askPauseMin, 2*l.askPause), askPauseMax)
	if ok {
		l.askPause = 0
	}
	l.askAfter = time.Now().Add(l.askPause)
}

// ask asks the other broker where the log ends, and waits for the answer: the slot of the last commit.
func (l *link) ask(ctx context.Context) (format.Seq, error) {
	answer := make(chan format.Seq, 1)
	l.mu.Lock()
	l.number++
	number := l.number
	l.waits[number] = answer
	sent := l.putLocked(ask{number}.encode()) // in the order of the numbers
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waits, number)
	}()
	if !sent {
		l.answered(false)
		return 0, ErrNoPeer
	}
	select {
	case end := <-answer:
		l.answered(true)
		return end, nil
	case <-l.ended:
		return 0, ErrNoPeer
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			l.answered(false)
		}
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

// ping returns how long a message takes to the other side and back.
func (l *link) ping(ctx context.Context) (time.Duration, error) {
	answer := make(chan struct{})
	begun := time.Now()
	l.mu.Lock()
	l.number++
	number := l.number
	l.pings[number] = answer
	sent := l.putLocked(ping{number}.encode())
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.pings, number)
	}()
	if !sent {
		return 0, ErrNoPeer
	}
	select {
	case <-answer:
		return time.Since(begun), nil
	case <-l.ended:
		return 0, ErrNoPeer
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// roundTrip returns how long a message last took to the other side and back; 0 if that is not known yet. It measures that
// again, for the next call.
func (l *link) roundTrip() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answers && (l.probe == 0 || time.Since(l.probedAt) > roundTripMax) {
		l.number++
		if l.putLocked(ping{l.number}.encode()) {
			l.probe, l.probedAt = l.number, time.Now()
		}
	}
	return l.measured
}

// ponged notes the answer to a ping.
func (l *link) ponged(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number == l.probe {
		l.probe, l.measured = 0, time.Since(l.probedAt)
	}
	if answer, waits := l.pings[number]; waits {
		close(answer)
		delete(l.pings, number)
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
	return l.putLocked(message)
}

// putCommit is put for a commit. If nothing has come over the link for some time, it also sends a ping, so that this broker
// notices if the link is broken.
func (l *link) putCommit(message []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answers && l.pingedAt.IsZero() && time.Since(l.heardAt) > silence {
		l.number++
		if l.putLocked(ping{l.number}.encode()) {
			l.pingedAt = time.Now()
		}
	}
	return l.putLocked(message)
}

func (l *link) putLocked(message []byte) bool {
	if l.bytes > 0 && l.bytes+len(message) > outboxBytesMax {
		return false
	}
	l.outbox = append(l.outbox, message)
	l.bytes += len(message)
	l.wakeUp()
	return true
}

// wakeUp lets send continue.
func (l *link) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) take() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.outbox
	l.outbox = nil
	return taken
}

// finish lets send return once it has sent the messages that wait.
func (l *link) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = true
	l.wakeUp()
}

// done reports whether the link has sent its last message: see finish.
func (l *link) done() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last && len(l.outbox) == 0
}

// send sends messages until ctx ends, the connection fails, or it has sent the last one.
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
		if l.done() {
			return nil
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
