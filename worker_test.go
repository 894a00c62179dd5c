package seb_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
)

// workOn starts a worker. stop ends it, and returns the error of Run.
func workOn(t *testing.T, w *seb.Worker) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

func TestSlowWorkerKeepsItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := openQueue(t, 3, seb.QueueUpdate{})
		handled := 0
		stop := workOn(t, &seb.Worker{Source: q, Lease: 10 * time.Second, Handle: func(_ context.Context, m seb.Message) error {
			time.Sleep(2 * time.Minute)
			handled++
			return nil
		}})
		time.Sleep(time.Minute)
		wantHanded(t, mustReceive(t, q, 10, 0), "[1#1 2#1]")
		wantHanded(t, mustReceive(t, q, 10, 25*time.Second), "[]") // the handler's record does not go out again
		time.Sleep(3 * time.Minute)
		if err := stop(); err != nil || handled < 1 {
			t.Fatalf("%d handled, %v", handled, err)
		}
	})
}

func TestWorkerTakesOnlyWhatItHasPlacesFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := openQueue(t, 100, seb.QueueUpdate{})
		var mu sync.Mutex
		now, most, all := 0, 0, 0
		stop := workOn(t, &seb.Worker{Source: q, Concurrency: 7, Handle: func(context.Context, seb.Message) error {
			mu.Lock()
			now++
			most, all = max(most, now), all+1
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		}})
		time.Sleep(time.Second)
		if info, err := q.Describe(t.Context()); err != nil || info.Leased > 7 {
			t.Fatalf("%+v, %v", info, err)
		}
		time.Sleep(time.Minute)
		if err := stop(); err != nil || most != 7 || all != 100 {
			t.Fatalf("%d at a time, %d in all, %v", most, all, err)
		}
		wantLeft(t, q, 0)
	})
}

func TestRecordOfAWorkerThatStoppedExtendingGoesToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := openQueue(t, 1, seb.QueueUpdate{})
		silent := &silentSource{q, make(chan struct{})}
		var cause error
		stop := workOn(t, &seb.Worker{Source: silent, Lease: 10 * time.Second, Handle: func(ctx context.Context, _ seb.Message) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil
		}})
		time.Sleep(time.Second)
		began := time.Now()
		ms := mustReceive(t, q, 1, time.Minute)
		wantHanded(t, ms, "[0#2]")
		if late := time.Since(began); late > 10*time.Second {
			t.Fatalf("after %v", late)
		}
		mustAck(t, q, ms...)
		close(silent.cut)
		time.Sleep(time.Minute)
		if err := stop(); err != nil || seb.CodeOf(cause) != seb.CodeLeaseLost {
			t.Fatalf("the handler was ended by %v; %v", cause, err)
		}
		wantLeft(t, q, 0)
	})
}

// silentSource is a source that does not answer Extend until the test lets it.
type silentSource struct {
	*seb.Queue
	cut chan struct{}
}

func (s *silentSource) Extend(ctx context.Context, lease time.Duration, tokens ...string) (time.Time, error) {
	<-s.cut
	return s.Queue.Extend(ctx, lease, tokens...)
}

func TestHandlerThatFailsHasItsRecordTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := openQueue(t, 2, seb.QueueUpdate{MaxAttempts: ptr(3), BackoffMin: ptr(time.Minute), BackoffMax: ptr(time.Minute)})
		var at []time.Duration
		began := time.Now()
		stop := workOn(t, &seb.Worker{Source: q, Handle: func(_ context.Context, m seb.Message) error {
			if m.Offset == 1 {
				return nil
			}
			at = append(at, time.Since(began))
			if m.Attempt == 2 {
				return &seb.RetryIn{Delay: time.Hour, Err: errors.New("later")}
			}
			return errors.New("no")
		}})
		time.Sleep(3 * time.Hour)
		if err := stop(); err != nil || len(at) != 3 || at[1] < 30*time.Second || at[1] > time.Minute+time.Second || at[2]-at[1] < time.Hour {
			t.Fatalf("tried at %v, %v", at, err)
		}
		dead, _, _, err := q.Dead(t.Context(), seb.DeadOptions{})
		if err != nil || len(dead) != 1 || dead[0].Reason != "no" {
			t.Fatalf("%+v, %v", dead, err)
		}
	})
}

// A handler may end its goroutine, for example by t.FailNow.
func TestHandlerThatEndsItsGoroutineLeavesItsRecordToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := openQueue(t, 1, seb.QueueUpdate{})
		stop := workOn(t, &seb.Worker{Source: q, Lease: 10 * time.Second, Handle: func(context.Context, seb.Message) error {
			runtime.Goexit()
			return nil
		}})
		time.Sleep(time.Second)
		_ = stop()
		wantHanded(t, mustReceive(t, q, 1, time.Minute), "[0#2]")
	})
}

func TestWorkerEndsWithItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := openQueue(t, 1, seb.QueueUpdate{})
		ended := make(chan error)
		go func() {
			w := &seb.Worker{Source: q, Handle: func(context.Context, seb.Message) error { return nil }}
			ended <- w.Run(t.Context())
		}()
		time.Sleep(time.Second)
		if err := q.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantCode(t, <-ended, seb.CodeQueueNotFound)
	})
}

// The store fails while a worker waits, and again while it works: once for a moment, and once for longer
// than leases last. The worker goes on by itself when the store answers again.
func TestWorkerOutlivesAnOutageOfTheStore(t *testing.T) {
	for _, outage := range []time.Duration{3 * time.Second, 5 * time.Minute} {
		for _, work := range []time.Duration{0, 20 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				_, faulty := newFaulty()
				b, q := openQueueOn(t, faulty, 2, seb.QueueUpdate{})
				done := map[seb.Offset]int{}
				stop := workOn(t, &seb.Worker{Source: q, Handle: func(_ context.Context, m seb.Message) error {
					time.Sleep(work)
					done[m.Offset]++
					return nil
				}})
				time.Sleep(30 * time.Second)
				faulty.SetDown(true)
				time.Sleep(outage)
				faulty.SetDown(false)
				time.Sleep(time.Second)
				appendTo(t, b, 0, 2)
				time.Sleep(2 * time.Minute)
				wantLeft(t, q, 0)
				if err := stop(); err != nil || len(done) != 4 || done[3] != 1 {
					t.Errorf("an outage of %v, work of %v: done is %v, %v", outage, work, done, err)
				}
			})
		}
	}
}

// A handler may compute a delay from a time that it was given, which may have passed or be far away.
// The record is put back nevertheless, with its reason.
func TestRetryInOfAnyTimePutsBack(t *testing.T) {
	for delay, want := range map[time.Duration]time.Duration{-time.Minute: 0, 1 << 62: 366 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			_, q := openQueue(t, 1, seb.QueueUpdate{BackoffMin: ptr(time.Minute)})
			began := time.Now()
			var at []time.Duration
			stop := workOn(t, &seb.Worker{Source: q, Handle: func(_ context.Context, m seb.Message) error {
				at = append(at, time.Since(began))
				if m.Attempt == 1 {
					return &seb.RetryIn{Delay: delay, Err: errors.New("later")}
				}
				return nil
			}})
			time.Sleep(time.Second)
			if info, err := q.Describe(t.Context()); err != nil || info.Leased != 0 || (info.Delayed != 0) != (want != 0) {
				t.Errorf("%v: %+v, %v", delay, info, err)
			}
			if err := stop(); err != nil || (len(at) == 2) != (want == 0) {
				t.Errorf("%v: tried at %v, %v", delay, at, err)
			}
			if left := seb.NotBefore(q)[0]; want != 0 && (left > want || left < want-time.Minute) {
				t.Errorf("%v: put back for %v", delay, left)
			}
		})
	}
}

// unreachable is a source whose broker stops answering after it has handed out records.
type unreachable struct{ seb.WorkSource }

func (unreachable) Ack(ctx context.Context, _ ...string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &seb.Error{Code: seb.CodeStoreUnavailable, Detail: "connection refused", Outcome: seb.NotCommitted, RetryAfter: time.Second}
}

func TestWorkerSaysWhyAnOutcomeDidNotReachTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := openQueue(t, 1, seb.QueueUpdate{})
		var said strings.Builder
		stop := workOn(t, &seb.Worker{
			Source: unreachable{q}, Lease: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(&said, nil)),
			Handle: func(context.Context, seb.Message) error { return nil },
		})
		time.Sleep(9 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		if len(lines) < 2 || !strings.Contains(lines[0], "; trying again") {
			t.Errorf("it said at first\n%s", lines[0])
		}
		if last := lines[len(lines)-1]; !strings.Contains(last, "may go to a worker again") || !strings.Contains(last, "connection refused") {
			t.Errorf("it said in the end\n%s", last)
		}
	})
}
