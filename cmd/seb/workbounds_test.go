package main

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
)

// emptySource has no records, and waits for its own time instead of the requested one.
type emptySource struct {
	seb.WorkSource
	waits time.Duration
}

func (s *emptySource) Receive(_ context.Context, o seb.ReceiveOptions) ([]seb.Message, error) {
	time.Sleep(min(s.waits, o.Wait))
	return nil, nil
}

// A broker that shuts down answers waiting workers at once: --drain must not take that for an empty queue.
func TestDrainTakesNoShortWaitForAnEmptyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := false
		empty := &emptySource{waits: time.Second}
		none := func(context.Context) (bool, error) { return false, nil }
		s := &boundedSource{WorkSource: empty, drain: true, places: 2, held: none, away: &outage{w: io.Discard}, stop: func() { stopped = true }}
		for _, test := range []struct {
			waits time.Duration
			most  int
			want  bool
		}{{0, 2, false}, {time.Second, 2, false}, {time.Hour, 1, false}, {time.Hour, 2, true}} {
			empty.waits = test.waits
			if _, err := s.Receive(t.Context(), seb.ReceiveOptions{Max: test.most}); err != nil || stopped != test.want {
				t.Errorf("after %v for %d records: stopped is %v, %v", test.waits, test.most, stopped, err)
			}
		}
	})
}
