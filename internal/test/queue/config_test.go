package queue_test

import (
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// If records fail because the dead-letter topic is missing, an operator must be able to change the
// queue.
func TestQueueWhoseDeadLetterTopicWasDeletedCanBeChanged(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	mustCreateTopic(t, b, "t", 1)
	mustCreateTopic(t, b, "dead", 1)
	q := b.Queue("t", "work")
	mustSet(t, q, seb.QueueUpdate{DeadLetterTopic: ptr("dead")})
	if err := b.DeleteTopic(t.Context(), "dead"); err != nil {
		t.Fatal(err)
	}
	info, err := q.Update(t.Context(), seb.QueueUpdate{Paused: ptr(true)})
	if err != nil || !info.Config.Paused || info.Config.DeadLetterTopic != "dead" {
		t.Fatalf("%+v, %v", info, err)
	}
	_, err = q.Update(t.Context(), seb.QueueUpdate{DeadLetterTopic: ptr("none")})
	wantCode(t, err, seb.CodeTopicNotFound)
	if _, err := q.Update(t.Context(), seb.QueueUpdate{DeadLetterTopic: ptr("")}); err != nil {
		t.Fatal(err)
	}
	_, _, err = b.Queue("t", "more").Set(t.Context(), seb.QueueUpdate{DeadLetterTopic: ptr("dead")}, seb.Earliest)
	wantCode(t, err, seb.CodeTopicNotFound)
}

// The records of a queue may be what fills the state, so it must be possible to work them off.
func TestQueueIsPausedAndResumedWithoutRoomInTheState(t *testing.T) {
	store := objstore.NewMemory()
	b := openOnly(t, store, immediate())
	queueOf(t, b, 1, 1)
	kill(t, b)
	opts := immediate()
	opts.StateMemory = 1
	b = open(t, store, opts)
	q := b.Queue("t", "work")
	for _, paused := range []bool{true, false} {
		if info, err := q.Update(t.Context(), seb.QueueUpdate{Paused: &paused}); err != nil || info.Config.Paused != paused {
			t.Errorf("%+v, %v", info, err)
		}
	}
	if _, created, err := q.Set(t.Context(), seb.QueueUpdate{}, seb.Earliest); err != nil || created {
		t.Errorf("an update that changes nothing: %v", err)
	}
	_, _, err := b.Queue("t", "more").Set(t.Context(), seb.QueueUpdate{}, seb.Earliest)
	wantCode(t, err, seb.CodeOverStateBudget)
}
