package state

import (
	"errors"
	"testing"

	"github.com/simple-event-broker/seb/internal/commitlog"
)

// TestTokensFromBeforeARedriveAreRefused: a record that was parked and sent back goes to
// another worker. The one that had it before may still answer, and must not be taken for
// the other.
func TestTokensFromBeforeARedriveAreRefused(t *testing.T) {
	s := New()
	apply := func(items ...commitlog.Item) error {
		return s.Apply(&commitlog.Commit{Seq: s.Seq() + 1, PayloadSize: 61, Items: items})
	}
	must := func(items ...commitlog.Item) {
		t.Helper()
		if err := apply(items...); err != nil {
			t.Fatal(err)
		}
	}
	last := func() Attempt {
		_, a, _ := s.Draft(0).RecordState(1, 0, 0)
		return a
	}
	must(
		&commitlog.TopicCreated{ID: 1, Partitions: 1, Name: "t"}, &commitlog.Batch{Topic: 1, Count: 1, Size: 61},
		&commitlog.QueueSet{ID: 1, Topic: 1, Name: "q", Config: commitlog.QueueConfig{LeaseMS: 1, Attempts: 1}},
		&commitlog.QueueOwned{Queue: 1, Epoch: 1, Windows: []int64{1}}, // and the first delivery is made
	)
	must(&commitlog.RecordPutBack{Queue: 1, Attempt: commitlog.Attempt{Number: 1}, Parked: true, Reason: "the lease has ended"})
	must(&commitlog.RecordsRedriven{Queue: 1, Offsets: []int64{0}})
	must(&commitlog.RecordsAttempted{Queue: 1, Epoch: 1, Attempts: []commitlog.Attempt{{Number: last().Number + 1}}})

	if err := apply(&commitlog.RecordPutBack{Queue: 1, Attempt: commitlog.Attempt{Number: 1}, Reason: "late"}); !errors.Is(err, ErrNonsense) {
		t.Errorf("the worker from before the redrive puts back what another one has: %v", err)
	}
	if err := apply(&commitlog.RecordsDone{Queue: 1, Runs: []commitlog.Run{{Count: 1, Number: 1}}}); !errors.Is(err, ErrNonsense) {
		t.Errorf("the worker from before the redrive acknowledges what another one has: %v", err)
	}
	must(&commitlog.RecordsDone{Queue: 1, Runs: []commitlog.Run{{Count: 1, Number: last().Number}}})
}
