package kit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// MustSet creates a queue that begins at the start of its topic, or changes an existing one.
func MustSet(t testing.TB, q *seb.Queue, u seb.QueueUpdate) seb.QueueInfo {
	t.Helper()
	info, _, err := q.Set(t.Context(), u, seb.Earliest)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// MustReceive receives at most the given number of records.
func MustReceive(t testing.TB, q *seb.Queue, most int, wait time.Duration) []seb.Message {
	t.Helper()
	got, err := q.Receive(t.Context(), seb.ReceiveOptions{Max: most, Wait: wait})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Handed writes the offset and the attempt of each message: "[0#1 1#2]" is attempt 1 of offset 0, then
// attempt 2 of offset 1.
func Handed(ms []seb.Message) string {
	var s []string
	for _, m := range ms {
		s = append(s, fmt.Sprintf("%d#%d", m.Offset, m.Attempt))
	}
	return fmt.Sprint(s)
}

// WantHanded fails unless the messages are those in want, in the form of [Handed].
func WantHanded(t testing.TB, ms []seb.Message, want string) {
	t.Helper()
	if got := Handed(ms); got != want {
		t.Fatalf("handed out %s, want %s", got, want)
	}
}

// MustAck acknowledges messages.
func MustAck(t testing.TB, q *seb.Queue, ms ...seb.Message) {
	t.Helper()
	if err := q.Ack(t.Context(), Tokens(ms)...); err != nil {
		t.Fatal(err)
	}
}

// Tokens returns the tokens of messages.
func Tokens(ms []seb.Message) (list []string) {
	for _, m := range ms {
		list = append(list, m.Token)
	}
	return list
}

// Waiting starts a receive that waits for records of a queue, and returns once the receive waits. The channel
// gets the records.
func Waiting(t *testing.T, q *seb.Queue, wait time.Duration) <-chan []seb.Message {
	t.Helper()
	got := make(chan []seb.Message, 1)
	go func() {
		ms, err := q.Receive(context.WithoutCancel(t.Context()), seb.ReceiveOptions{Wait: wait})
		if err != nil {
			t.Error(err)
		}
		got <- ms
	}()
	synctest.Wait()
	return got
}

// QueueOf creates queue "work" of topic "t", and appends n records of the given size, each in a separate
// request.
func QueueOf(t *testing.T, b *seb.Broker, n, size int) *seb.Queue {
	t.Helper()
	MustCreateTopic(t, b, "t", 1)
	q := b.Queue("t", "work")
	MustSet(t, q, seb.QueueUpdate{})
	for range n {
		if _, err := b.Append(t.Context(), "t", Values(strings.Repeat("x", size))); err != nil {
			t.Fatal(err)
		}
	}
	return q
}

// OpenQueue opens a broker on an empty store, and creates queue "work" of topic "t" with the given number of
// records.
func OpenQueue(t *testing.T, records int, u seb.QueueUpdate) (*seb.Broker, *seb.Queue) {
	return OpenQueueOn(t, objstore.NewMemory(), records, u)
}

// OpenQueueOn is [OpenQueue] on a given store.
func OpenQueueOn(t *testing.T, store objstore.Store, records int, u seb.QueueUpdate) (*seb.Broker, *seb.Queue) {
	b := Open(t, store, Immediate())
	MustCreateTopic(t, b, "t", 1)
	q := b.Queue("t", "work")
	MustSet(t, q, u)
	if records > 0 {
		AppendTo(t, b, 0, records)
	}
	return b, q
}

// WantLeft fails unless a queue has the given number of records that are not done, dead letters included.
func WantLeft(t *testing.T, q *seb.Queue, left int64) {
	t.Helper()
	info, err := q.Describe(t.Context())
	if err != nil || info.Ready+info.Held+info.Delayed+info.Leased+info.Dead != left {
		t.Fatalf("%+v, %v; want %d left", info, err, left)
	}
}
