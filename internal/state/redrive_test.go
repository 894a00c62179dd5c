package state

import (
	"errors"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
)

// A dead letter that was redriven goes to another worker. An answer of the worker that had it
// before must not count as one of the new worker.
func TestTokensFromBeforeARedriveAreRefused(t *testing.T) {
	s := New()
	apply := func(entries ...format.Entry) error {
		return s.Apply(&format.Commit{Seq: s.Seq() + 1, PayloadSize: 61, Entries: entries})
	}
	must := func(entries ...format.Entry) {
		t.Helper()
		if err := apply(entries...); err != nil {
			t.Fatal(err)
		}
	}
	last := func() Attempt {
		_, a, _ := s.Draft(0).RecordState(1, 0, 0)
		return a
	}
	must(
		&format.TopicCreated{ID: 1, Partitions: 1, Name: "t"}, &format.Batch{Topic: 1, Count: 1, Size: 61},
		&format.QueueSet{ID: 1, Topic: 1, Name: "q", Config: format.QueueConfig{LeaseMS: 1, Attempts: 1}},
		&format.QueueOwned{Queue: 1, Epoch: 1, Windows: []format.Offset{1}}, // the first delivery follows
	)
	must(&format.RecordPutBack{Queue: 1, Attempt: format.Attempt{Number: 1}, DeadLetter: true, Reason: "the lease has ended"})
	must(&format.RecordsRedriven{Queue: 1, Offsets: []format.Offset{0}})
	must(&format.RecordsAttempted{Queue: 1, Epoch: 1, Attempts: []format.Attempt{{Number: last().Number + 1}}})

	if err := apply(&format.RecordPutBack{Queue: 1, Attempt: format.Attempt{Number: 1}, Reason: "late"}); !errors.Is(err, ErrNonsense) {
		t.Errorf("the worker from before the redrive puts back what another one has: %v", err)
	}
	if err := apply(&format.RecordsDone{Queue: 1, Runs: []format.Run{{Count: 1, Number: 1}}}); !errors.Is(err, ErrNonsense) {
		t.Errorf("the worker from before the redrive acknowledges what another one has: %v", err)
	}
	must(&format.RecordsDone{Queue: 1, Runs: []format.Run{{Count: 1, Number: last().Number}}})
}
