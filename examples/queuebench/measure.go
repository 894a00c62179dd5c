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

// emptyPause is what a worker waits when it got nothing, which happens only when
// others have the last messages.
const emptyPause = 5 * time.Millisecond

// side is a kind of queue that is compared.
type side interface {
	// Fill creates the queue again, with these messages.
	Fill(ctx context.Context, messages [][]byte) error
	// Worker returns a worker. Workers work at the same time, each on its own.
	Worker(ctx context.Context) (worker, error)
	// Describe says what exactly was measured: versions and settings.
	Describe(ctx context.Context) (string, error)
	// Close ends it. Its files stay until Remove.
	Close() error
	// Remove deletes its files. ext4 makes a new file the slower the more were deleted
	// beside it in the last minutes, so this has to wait until all has been measured.
	Remove() error
}

// worker is one client of a queue.
type worker interface {
	// Take receives up to so many messages and returns how to name them in Done. It
	// returns how many of those before it has finished, too, if Done leaves that to it.
	Take(ctx context.Context, most int) (ids []string, finished int, err error)
	// Done finishes what the last Take returned, or leaves it to the next one.
	Done(ctx context.Context, ids []string) (finished int, err error)
	Close() error
}

// openers make the sides.
var openers = map[string]func(context.Context, options) (side, error){
	"postgres-locked": openLocked,
	"postgres-leased": openLeased,
	"seb":             openSeb,
	"seb-immediate":   openSebImmediate,
	"seb-one-request": openSebOneRequest,
}

// sideNames are in the order in which they are measured.
var sideNames = []string{"postgres-locked", "postgres-leased", "seb", "seb-immediate", "seb-one-request"}

// measured is what came out of one run.
type measured struct {
	rate, filled    int // messages a second
	receive, finish durations
}

type durations []time.Duration

// at returns a percentile, or "-" if nothing was measured.
func (d durations) at(percent int) string {
	if len(d) == 0 {
		return "-"
	}
	slices.Sort(d)
	return rounded(d[(len(d)-1)*percent/100]).String()
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
	err = m.empty(ctx, workers, o, batch)
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
		return fmt.Errorf("%d messages were finished of %d that there are: some went out twice", done, o.messages)
	}
	return nil
}

// work is one worker's, which takes messages once in a turn, until count says that all is over. It returns how long it took
// to receive and to finish, where there was something.
func work(ctx context.Context, w worker, batch int, turn time.Duration, count func(finished int) (over bool)) (receive, finish durations, _ error) {
	next := time.Now().Add(time.Duration(rand.Int64N(int64(turn) + 1))) // not all at once
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
