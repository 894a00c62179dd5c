package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// emptyPause is what a worker waits when it got nothing, which happens only when
// others have the last messages.
const emptyPause = 5 * time.Millisecond

// side is a kind of queue that is compared.
type side interface {
	// Fill makes the queue anew, with these messages in it.
	Fill(ctx context.Context, messages [][]byte) error
	// Worker returns a worker. Workers work at the same time, each on its own.
	Worker(ctx context.Context) (worker, error)
	// Describe says what exactly was measured: versions and settings.
	Describe(ctx context.Context) (string, error)
	Close() error
}

// worker is one client of a queue.
type worker interface {
	// Take receives up to so many messages and returns how to name them in Done.
	Take(ctx context.Context, most int) (ids []string, err error)
	// Done finishes what the last Take returned.
	Done(ctx context.Context, ids []string) error
	Close() error
}

// openers make the sides.
var openers = map[string]func(context.Context, options) (side, error){
	"postgres-locked": openLocked,
	"postgres-leased": openLeased,
	"seb":             openSeb,
	"seb-immediate":   openSebImmediate,
}

// sideNames are in the order in which they are measured.
var sideNames = []string{"postgres-locked", "postgres-leased", "seb", "seb-immediate"}

// measured is what came out of one run.
type measured struct {
	rate, filled    int // messages a second
	receive, finish durations
}

type durations []time.Duration

// at returns a percentile.
func (d durations) at(percent int) time.Duration {
	slices.Sort(d)
	return rounded(d[(len(d)-1)*percent/100])
}

// measure fills the queue and has it emptied by workers that take so many
// messages at a time.
func measure(ctx context.Context, s side, o options, batch int) (m measured, err error) {
	messages := makeMessages(o.messages, o.payload)
	began := time.Now()
	if err := s.Fill(ctx, messages); err != nil {
		return m, fmt.Errorf("fill the queue: %w", err)
	}
	m.filled = perSecond(o.messages, time.Since(began))
	var workers []worker
	defer func() {
		for _, w := range workers {
			err = errors.Join(err, w.Close())
		}
	}()
	for range o.workers {
		w, err := s.Worker(ctx)
		if err != nil {
			return m, fmt.Errorf("start worker %d: %w", len(workers), err)
		}
		workers = append(workers, w)
	}
	err = m.empty(ctx, workers, o.messages, batch)
	return m, err
}

// makeMessages returns random text that doesn't compress well.
func makeMessages(count, size int) [][]byte {
	random := rand.NewChaCha8([32]byte{})
	messages := make([][]byte, count)
	for i := range messages {
		b := make([]byte, (size+1)/2)
		_, _ = random.Read(b) // never fails
		messages[i] = []byte(hex.EncodeToString(b))[:size]
	}
	return messages
}

// empty lets the workers work until all messages are done.
func (m *measured) empty(ctx context.Context, workers []worker, messages, batch int) error {
	var done atomic.Int64
	var mu sync.Mutex // guards m
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for _, w := range workers {
		group.Go(func() error {
			var receive, finish durations
			for done.Load() < int64(messages) {
				start := time.Now()
				ids, err := w.Take(ctx, batch)
				if err != nil {
					return fmt.Errorf("receive: %w", err)
				}
				if len(ids) == 0 {
					<-time.After(emptyPause)
					continue
				}
				taken := time.Now()
				if err := w.Done(ctx, ids); err != nil {
					return fmt.Errorf("finish: %w", err)
				}
				receive, finish = append(receive, taken.Sub(start)), append(finish, time.Since(taken))
				if done.Add(int64(len(ids))) == int64(messages) {
					mu.Lock()
					m.rate = perSecond(messages, time.Since(began))
					mu.Unlock()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			m.receive, m.finish = append(m.receive, receive...), append(m.finish, finish...)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if n := done.Load(); n != int64(messages) {
		return fmt.Errorf("%d messages were finished of %d that there are: some went out twice", n, messages)
	}
	return nil
}

func perSecond(n int, took time.Duration) int { return int(float64(n) / took.Seconds()) }
