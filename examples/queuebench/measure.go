package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// emptyPause is how long a worker waits after it got no messages. A worker gets none only
// when other workers have the last messages.
const emptyPause = 5 * time.Millisecond

// side is a kind of queue that is compared.
type side interface {
	// Fill creates the queue again, with the given messages.
	Fill(ctx context.Context, messages [][]byte) error
	// Worker returns a worker. Workers run at the same time.
	Worker(ctx context.Context) (worker, error)
	// Describe returns the versions and settings of what is measured.
	Describe(ctx context.Context) (string, error)
	// Close ends the side. The files of the side stay until Remove.
	Close() error
	// Remove deletes the files of the side. Call Remove after all measurements: ext4 creates
	// files more slowly after many files were deleted in the same directory.
	Remove() error
}

// worker is one client of a queue.
type worker interface {
	// Take receives up to most messages, and returns their ids for Done. finished is how many earlier
	// messages this Take has finished: those that Done has left for it.
	Take(ctx context.Context, most int) (ids []string, finished int, err error)
	// Done finishes the messages of the last Take, and returns their number. A worker that receives and
	// finishes with one request returns 0, and its next Take finishes the messages.
	Done(ctx context.Context, ids []string) (finished int, err error)
	Close() error
}

// openers open the sides, by name.
var openers = map[string]func(context.Context, options) (side, error){
	"postgres-locked": openLocked,
	"postgres-leased": openLeased,
	"seb":             openSeb,
	"seb-immediate":   openSebImmediate,
	"seb-one-request": openSebOneRequest,
}

// sideNames are the names of all sides, in the order in which they are measured.
var sideNames = []string{"postgres-locked", "postgres-leased", "seb", "seb-immediate", "seb-one-request"}

// measured is the result of one run.
type measured struct {
	rate, filled    int // messages per second: those that workers have finished, and those that Fill has added
	receive, finish durations
}

type durations []time.Duration

// at returns a percentile as text, "-" if there are no durations.
func (d durations) at(percent int) string {
	if len(d) == 0 {
		return "-"
	}
	slices.Sort(d)
	return rounded(d[(len(d)-1)*percent/100]).String()
}

// measure fills the queue and makes workers empty it. Each worker takes up to batch
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
	err = m.empty(ctx, workers, o, batch)
	return m, err
}

// makeMessages returns messages of random text that doesn't compress well.
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

// empty makes the workers work until all messages are done.
func (m *measured) empty(ctx context.Context, workers []worker, o options, batch int) error {
	var mu sync.Mutex // guards m and done
	done := 0
	began := time.Now()
	count := func(finished int) (over bool) {
		mu.Lock()
		defer mu.Unlock()
		if done += finished; done == o.messages && finished > 0 {
			m.rate = perSecond(o.messages, time.Since(began))
		}
		return done >= o.messages
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, w := range workers {
		group.Go(func() error {
			receive, finish, err := work(ctx, w, batch, o.turn(batch), count)
			mu.Lock()
			defer mu.Unlock()
			m.receive, m.finish = append(m.receive, receive...), append(m.finish, finish...)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if done != o.messages {
		return fmt.Errorf("workers finished %d messages, but there are only %d: some went out twice", done, o.messages)
	}
	return nil
}

// work makes a worker take and finish messages, one batch in each turn, until count says that all messages
// are done. It returns the durations of the calls that received messages, and of the calls that finished some.
func work(ctx context.Context, w worker, batch int, turn time.Duration, count func(finished int) (over bool)) (receive, finish durations, _ error) {
	next := time.Now().Add(time.Duration(rand.Int64N(int64(turn) + 1))) // so that workers don't begin all at once
	for over := false; !over; next = next.Add(turn) {
		<-time.After(time.Until(next))
		start := time.Now()
		ids, finished, err := w.Take(ctx, batch)
		if err != nil {
			return nil, nil, fmt.Errorf("receive: %w", err)
		}
		over = count(finished)
		if len(ids) == 0 {
			<-time.After(emptyPause)
			continue
		}
		taken := time.Now()
		if finished, err = w.Done(ctx, ids); err != nil {
			return nil, nil, fmt.Errorf("finish: %w", err)
		}
		if receive = append(receive, taken.Sub(start)); finished > 0 {
			finish = append(finish, time.Since(taken))
		}
		over = count(finished)
	}
	return receive, finish, nil
}

func perSecond(n int, took time.Duration) int { return int(float64(n) / took.Seconds()) }
