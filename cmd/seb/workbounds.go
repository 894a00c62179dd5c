package main

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb"
)

// drainWait is how long an idle worker waits for a record before --drain takes the queue for empty. A broker
// may need 1 s, the default --stale-max, to learn what other brokers appended; drainWait is longer than that.
const drainWait = 1500 * time.Millisecond

// boundedSource ends a worker after limit records, or, with drain, when no record is ready. It counts the
// records that were received, done, put back and parked as dead letters.
type boundedSource struct {
	seb.WorkSource
	limit int64 // 0: no limit
	drain bool
	// places is how many records the worker handles at a time. A worker that asks for this many handles none:
	// it is idle.
	places int
	// attempts is the queue's maximum when the worker began. If somebody changes it meanwhile, the worker may
	// count a record as dead that was put back, or the other way round.
	attempts int
	held     func(context.Context) (bool, error) // whether the broker holds records back that it hands out later
	stop     func()
	away     *outage // of the broker

	received, done, back, dead atomic.Int64
}

// lastMark ends the token of a record's last attempt, as the worker gets it: when the worker puts the record
// back, the source has only the token.
const lastMark = " (last)"

// Receive returns at most as many records as the limit allows.
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
	switch {
	case s.drain:
		o.Wait = drainWait
	case s.away.lasts():
		o.Wait = 0 // the broker's answer, which comes at once, ends the outage
	}
	began := time.Now()
	messages, err := s.WorkSource.Receive(ctx, o)
	if err != nil {
		return nil, err
	}
	s.away.ends()
	// The queue counts as empty only if the broker has waited for all of drainWait. A broker that shuts down
	// answers earlier, and may not know all records that the next broker knows. The factor 9/10 allows for a
	// broker whose clock runs a little faster than that of this machine.
	if s.drain && idle && len(messages) == 0 && time.Since(began) >= drainWait*9/10 {
		held, err := s.held(ctx)
		if err != nil {
			return nil, err
		}
		if !held {
			s.stop()
		}
	}
	s.received.Add(int64(len(messages)))
	for i := range messages {
		if messages[i].Attempt >= s.attempts {
			messages[i].Token += lastMark
		}
	}
	return messages, nil
}

// withoutMarks returns the tokens as the queue knows them, and how many of them are of last attempts.
func withoutMarks(marked []string) (tokens []string, last int) {
	for _, token := range marked {
		token, marked := strings.CutSuffix(token, lastMark)
		if marked {
			last++
		}
		tokens = append(tokens, token)
	}
	return tokens, last
}

// Ack acknowledges records, and counts them as done.
func (s *boundedSource) Ack(ctx context.Context, tokens ...string) error {
	tokens, _ = withoutMarks(tokens)
	err := s.WorkSource.Ack(ctx, tokens...)
	if err == nil {
		s.done.Add(int64(len(tokens)))
	}
	return err
}

// Nack puts records back, and counts them. Records of a last attempt count as dead.
func (s *boundedSource) Nack(ctx context.Context, o seb.NackOptions, tokens ...string) error {
	tokens, last := withoutMarks(tokens)
	err := s.WorkSource.Nack(ctx, o, tokens...)
	if err == nil {
		s.back.Add(int64(len(tokens) - last))
		s.dead.Add(int64(last))
	}
	return err
}

// Extend extends leases.
func (s *boundedSource) Extend(ctx context.Context, lease time.Duration, tokens ...string) (time.Time, error) {
	tokens, _ = withoutMarks(tokens)
	until, err := s.WorkSource.Extend(ctx, lease, tokens...)
	if err == nil {
		s.away.ends()
	}
	return until, err
}
