package push

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// lease is how long a fakeQueue leases messages.
const lease = time.Minute

// outcomeOf is what a pusher told the queue about a message.
type outcomeOf struct {
	token   string
	acked   bool
	atLeast time.Duration
	reason  string
}

// fakeQueue hands out each message that a test adds once, and records what it is told.
type fakeQueue struct {
	told chan outcomeOf // one for each Ack and Nack that succeeded

	// Errors of calls, given how many calls came before. A test sets them before it runs a pusher.
	receiveErr, ackErr, extendErr func(call int) error

	mu                           sync.Mutex
	ready                        []Message
	added                        chan struct{}
	asked                        []int // the limits given to Receive
	receives, acks, extends, out int
	handed                       map[string]Message // messages that were handed out, by token
	late                         int                // messages that the next Receive hands out when its context ends
}

func newQueue() *fakeQueue {
	return &fakeQueue{told: make(chan outcomeOf, 4096), added: make(chan struct{}), handed: map[string]Message{}}
}

// add makes messages with these values ready.
func (q *fakeQueue) add(values ...string) {
	for _, v := range values {
		q.addMessage(Message{Value: []byte(v), Attempt: 1})
	}
}

func (q *fakeQueue) addMessage(m Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m.Token = strconv.Itoa(q.out)
	m.Offset = format.Offset(q.out)
	m.Timestamp = time.UnixMilli(1_700_000_000_250)
	q.out++
	q.ready = append(q.ready, m)
	close(q.added)
	q.added = make(chan struct{})
}

func (q *fakeQueue) Receive(ctx context.Context, limit int) ([]Message, error) {
	q.mu.Lock()
	call := q.receives
	q.receives++
	q.asked = append(q.asked, limit)
	q.mu.Unlock()
	if q.receiveErr != nil {
		if err := q.receiveErr(call); err != nil {
			return nil, err
		}
	}
	for {
		q.mu.Lock()
		n, added := min(limit, len(q.ready)), q.added
		taken := slices.Clone(q.ready[:n])
		q.ready = q.ready[n:]
		for _, m := range taken {
			q.handed[m.Token] = m
		}
		q.mu.Unlock()
		for i := range taken {
			taken[i].LeasedUntil = time.Now().Add(lease)
		}
		if n > 0 {
			return taken, nil
		}
		select {
		case <-ctx.Done():
			return q.handOutLate(), ctx.Err()
		case <-added:
		}
	}
}

func (q *fakeQueue) handOutLate() (ms []Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ; q.late > 0; q.late-- {
		m := Message{Token: strconv.Itoa(q.out), Offset: format.Offset(q.out), Attempt: 1, LeasedUntil: time.Now().Add(lease)}
		q.handed[m.Token] = m
		ms = append(ms, m)
		q.out++
	}
	return ms
}

func (q *fakeQueue) Return(token string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ready = append(q.ready, q.handed[token])
	close(q.added)
	q.added = make(chan struct{})
	return nil
}

func (q *fakeQueue) Ack(_ context.Context, token string) error {
	return q.tell(outcomeOf{token: token, acked: true})
}

func (q *fakeQueue) Nack(_ context.Context, token string, atLeast time.Duration, reason string) error {
	if len(reason) > ReasonBytesMax || reason == "" {
		reason = fmt.Sprintf("not a reason: %d bytes", len(reason))
	}
	return q.tell(outcomeOf{token: token, atLeast: atLeast, reason: reason})
}

func (q *fakeQueue) tell(o outcomeOf) error {
	q.mu.Lock()
	call := q.acks
	q.acks++
	q.mu.Unlock()
	if q.ackErr != nil {
		if err := q.ackErr(call); err != nil {
			return err
		}
	}
	q.told <- o
	return nil
}

func (q *fakeQueue) Extend(_ context.Context, _ string) (time.Time, error) {
	q.mu.Lock()
	call := q.extends
	q.extends++
	q.mu.Unlock()
	if q.extendErr != nil {
		if err := q.extendErr(call); err != nil {
			return time.Time{}, err
		}
	}
	return time.Now().Add(lease), nil
}

// counts returns how many messages are ready, and how many leases were extended.
func (q *fakeQueue) counts() (ready, extends int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.ready), q.extends
}

// next waits for the next outcome that the queue is told.
func (q *fakeQueue) next(t *testing.T) outcomeOf {
	t.Helper()
	select {
	case o := <-q.told:
		return o
	case <-time.After(20 * time.Second):
		t.Fatal("the queue was told nothing")
		return outcomeOf{}
	}
}

// nothing fails the test if the queue was told an outcome.
func (q *fakeQueue) nothing(t *testing.T) {
	t.Helper()
	select {
	case o := <-q.told:
		t.Errorf("the queue was told %+v", o)
	default:
	}
}

// run runs p until the test ends or stop is called. stop returns what Run returns.
func run(t *testing.T, p *Pusher) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Minute):
			t.Error("Run doesn't end")
			return nil
		}
	})
	t.Cleanup(func() { _ = stop() }) // a test that needs the result has called stop before
	return stop
}
