package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb"
)

// drainWait is how long nothing must come, and nobody be at work, for a queue to be
// taken for empty. It is longer than a broker may not know what another has appended.
const drainWait = 1500 * time.Millisecond

// boundedSource ends a worker when it has had so many records, or when there are none left,
// and counts what became of them.
type boundedSource struct {
	seb.WorkSource
	limit int64 // 0: none
	drain bool
	// places is how many records are worked on at most: a worker that asks for that many is idle.
	places int
	stop   func()

	received, done, back atomic.Int64
}

// Receive hands out no more than the limit.
func (s *boundedSource) Receive(ctx context.Context, o seb.ReceiveOptions) ([]seb.Message, error) {
	idle := o.Max == s.places
	if s.limit > 0 {
		left := s.limit - s.received.Load()
		if left <= 0 {
			s.stop()
			return nil, nil
		}
		o.Max = int(min(int64(o.Max), left))
	}
	if s.drain {
		o.Wait = drainWait
	}
	began := time.Now()
	messages, err := s.WorkSource.Receive(ctx, o)
	if err != nil {
		return nil, err
	}
	// A broker that is about to end answers sooner, and may know less than the next one. Its
	// clock may run a little faster than this one.
	if s.drain && idle && len(messages) == 0 && time.Since(began) >= drainWait*9/10 {
		s.stop()
	}
	s.received.Add(int64(len(messages)))
	return messages, nil
}

// Ack counts what is done.
func (s *boundedSource) Ack(ctx context.Context, tokens ...string) error {
	err := s.WorkSource.Ack(ctx, tokens...)
	if err == nil {
		s.done.Add(int64(len(tokens)))
	}
	return err
}

// Nack counts what is put back.
func (s *boundedSource) Nack(ctx context.Context, o seb.NackOptions, tokens ...string) error {
	err := s.WorkSource.Nack(ctx, o, tokens...)
	if err == nil {
		s.back.Add(int64(len(tokens)))
	}
	return err
}
