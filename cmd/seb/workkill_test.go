package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	killWorkers     = 2
	killConcurrency = 3
	killLease       = 2 * time.Second
	killAppendsMax  = 20 // acknowledged appends before a kill, at most
)

// deed is a command that writes down which attempt of which record it worked on.
const deed = `read x; echo "$x $SEB_MESSAGE_OFFSET $SEB_MESSAGE_ATTEMPT" >>done`

// jobs appends records to work on, and keeps the answers.
type jobs struct {
	acked atomic.Int64

	mu    sync.Mutex
	known map[string]bool // by value: whether it was acknowledged; else it may be in the log or not
}

// append appends one record after the other until ctx ends, each of them once.
func (j *jobs) append(ctx context.Context, t *testing.T, url string) {
	c, err := serverFlag{Server: url}.client()
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	for i := 0; ctx.Err() == nil; i++ {
		value := strconv.Itoa(i)
		_, err := c.Append(context.WithoutCancel(ctx), "orders", []seb.Record{{Value: []byte(value)}})
		outcome := seb.OutcomeOf(err)
		if err == nil || outcome == seb.Unknown {
			j.mu.Lock()
			j.known[value] = err == nil
			j.mu.Unlock()
		}
		if err == nil {
			j.acked.Add(1)
			continue
		}
		if !retryable(err) {
			t.Errorf("append %s: %v", value, err)
			return
		}
		<-time.After(pollPause)
	}
}

// Brokers and workers are killed at any moment, under load. A command works on every acknowledged record.
// If it works on a record twice, the second time is a later attempt, and there are at most as many of these
// as records were with workers when something was killed.
func TestKillNineOfWorkers(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while, and what is killed is no part of this process")
	}
	onStores(t, func(t *testing.T, env []string, store string) {
		dir := t.TempDir()
		args := []string{"--store", store, "--linger", "5ms", "--http", "127.0.0.1:" + freePort(t)}
		broker := serve(t, env, args...)
		runSeb(t, nil, "topic", "create", "orders", "--server", broker.url).want(t, exitOK)
		runSeb(t, nil, "queue", "create", "orders", "mail", "--lease", killLease.String(), "--max-attempts", "1000", "--server", broker.url).want(t, exitOK)
		start := func() *process {
			w := work(t, dir, broker.url, "--concurrency", strconv.Itoa(killConcurrency), "--exec", deed)
			if _, ok := w.stderr.lineAfter("working on queue ", w.done); !ok {
				t.Fatalf("a worker did not start:\n%s", w.stderr)
			}
			return w
		}
		workers := make([]*process, killWorkers)
		for i := range workers {
			workers[i] = start()
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		j := &jobs{known: map[string]bool{}}
		var appending sync.WaitGroup
		appending.Go(func() { j.append(ctx, t, broker.url) })
		t.Cleanup(func() { cancel(); appending.Wait() })
		out := 0 // records that were with workers when something was killed, at most
		for range crashCycles(t, 6) {
			grown(t, &j.acked, 1+rand.IntN(killAppendsMax), "appends are acknowledged", broker)
			<-time.After(rand.N(killDelayMax))
			if rand.IntN(2) == 0 {
				i := rand.IntN(killWorkers)
				workers[i].killed(t)
				workers[i] = start()
				out += killConcurrency
				continue
			}
			broker.killed(t)
			out += killWorkers * killConcurrency
			broker = serve(t, env, args...)
		}
		cancel()
		appending.Wait()
		until(t, "the end of all work", func() bool { return queueLeft(t, broker.url) == 0 }, append(workers, broker)...)
		j.verify(t, fileLines(t, filepath.Join(dir, "done")), out)
		broker.stopped(t)
	})
}

// verify compares what was done with what was acknowledged.
func (j *jobs) verify(t *testing.T, deeds []string, out int) {
	t.Helper()
	done, deliveries := map[string]int{}, map[string]bool{}
	twice := 0
	for _, line := range deeds {
		var value, offset, attempt string
		if _, err := fmt.Sscan(line, &value, &offset, &attempt); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if deliveries[offset+" "+attempt] {
			t.Errorf("attempt %s of offset %s was made twice", attempt, offset)
		}
		deliveries[offset+" "+attempt] = true
		if done[value]++; done[value] > 1 {
			twice++
		}
		if _, sent := j.known[value]; !sent {
			t.Errorf("%q was done, and is of nobody who appended", line)
		}
	}
	missing := []string{}
	for value, acked := range j.known {
		if acked && done[value] == 0 {
			missing = append(missing, value)
		}
	}
	if len(missing) > 0 {
		t.Errorf("%d of %d records were never worked on: %s", len(missing), j.acked.Load(), strings.Join(missing, " "))
	}
	if twice > out {
		t.Errorf("%d times a record was worked on again, and at most %d were out when something was killed", twice, out)
	}
	t.Logf("%d records, %d done again; at most %d were out when something was killed", j.acked.Load(), twice, out)
}
