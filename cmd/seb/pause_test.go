//go:build unix

package main

import (
	"math"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/test/s3test"
)

const (
	pauseMin = 50 * time.Millisecond
	pauseMax = 2 * time.Second
)

// anyPause returns a random duration; each order of magnitude is equally likely.
func anyPause() time.Duration {
	return time.Duration(float64(pauseMin) * math.Pow(float64(pauseMax/pauseMin), rand.Float64()))
}

// Two brokers share a store. One is suspended at any moment, for any time, while the other goes on. Then it
// continues with its unfinished requests, or is killed. Both serve the same log all the time.
func TestStoppedAndContinued(t *testing.T) {
	onStores(t, func(t *testing.T, env []string, store string) {
		args := []string{"--store", store, "--linger", "5ms", "--checkpoint-commits", "20"}
		brokers := []*process{serve(t, env, args...), serve(t, env, args...)}
		targets := []*target{newTarget(t, brokers[0].url), newTarget(t, brokers[1].url)}
		load := &load{each: 3, mix: mixedRecords}
		load.start(t, targets...)
		again := func(i int) {
			brokers[i].killed(t)
			brokers[i] = restart(t, brokers[i], env, args...)
			targets[i].move(t, brokers[i].url)
		}
		for range crashCycles(t, 4) {
			still := rand.IntN(2)
			other := 1 - still
			load.more(t, targets[still], 1+rand.IntN(20), brokers...)
			brokers[still].signal(t, syscall.SIGSTOP)
			end := time.Now().Add(anyPause())
			load.more(t, targets[other], 1, brokers...)
			switch rand.IntN(5) {
			case 0: // while the first is suspended
				again(other)
				load.more(t, targets[other], 1, brokers...)
			case 1: // it never continues
				<-time.After(time.Until(end))
				again(still)
			}
			<-time.After(time.Until(end))
			brokers[still].signal(t, syscall.SIGCONT)
			load.more(t, targets[still], 1, brokers...)
		}
		load.verify(t)
		for _, b := range brokers {
			b.stopped(t)
		}
	})
}

// The S3 server is suspended, or killed and restarted, under brokers with a short --append-timeout. They
// report the right outcome of every append, and recover.
func TestS3ServerStoppedAndKilledUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while, as on a directory")
	}
	t.Parallel()
	server := s3test.Start(t)
	args := []string{"--store", server.URL, "--linger", "5ms", "--checkpoint-commits", "20", "--append-timeout", "500ms"}
	env := s3test.Env()
	brokers := []*process{serve(t, env, args...), serve(t, env, args...)}
	targets := []*target{newTarget(t, brokers[0].url), newTarget(t, brokers[1].url)}
	load := &load{each: 3, mix: mixedRecords}
	load.start(t, targets...)
	for range crashCycles(t, 4) {
		load.more(t, targets[0], 1+rand.IntN(20), brokers...)
		pause := time.After(anyPause())
		if rand.IntN(2) == 0 {
			server.Signal(syscall.SIGSTOP)
			<-pause
			server.Signal(syscall.SIGCONT)
		} else {
			server.Kill()
			<-pause
			server.Restart()
		}
		for i := range targets {
			load.more(t, targets[i], 1, brokers...)
		}
	}
	load.verify(t)
	for _, b := range brokers {
		b.stopped(t)
	}
}

// signal sends a signal to a process that runs.
func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("send %v to serve: %v\n%s", s, err, p.stderr)
	}
}
