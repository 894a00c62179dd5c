package push

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// fakeBroker has the pushed queues that a test gives it, and records what its supervisor does.
type fakeBroker struct {
	mu       sync.Mutex
	queues   map[format.QueueID]Pushed
	hasWork  bool
	follows  bool
	takeErr  error
	did      []string
	followed int // calls of Follow that have not ended
}

func (b *fakeBroker) set(qs ...Pushed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queues = map[format.QueueID]Pushed{}
	for _, q := range qs {
		b.queues[q.ID] = q
	}
}

func (b *fakeBroker) do(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.did = append(b.did, what)
}

// wantDone checks what the supervisor has done since the previous call.
func (b *fakeBroker) wantDone(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.did, want) {
		t.Errorf("the supervisor did %q, want %q", b.did, want)
	}
	b.did = nil
}

func (b *fakeBroker) Pushed() map[format.QueueID]Pushed {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.queues)
}

func (b *fakeBroker) HasWork(Pushed) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hasWork
}

func (b *fakeBroker) TakeOver(context.Context, Pushed) error {
	b.do("take over")
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.takeErr
}

func (b *fakeBroker) Show(context.Context, Pushed) error {
	b.do("show")
	return nil
}

func (b *fakeBroker) Stop(_ context.Context, _ Pushed, why string) error {
	b.do("stop: " + why)
	return nil
}

func (b *fakeBroker) Follow() (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.followed++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.followed--
	}
}

func (b *fakeBroker) Follows() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.follows
}

// supervised runs a supervisor in a bubble until the test ends.
func supervised(t *testing.T, f func(t *testing.T, b *fakeBroker, s *Supervisor)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBroker{follows: true}
		s := NewSupervisor(b, SupervisorOptions{Silence: 30 * time.Second, Shows: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- s.Run(ctx, func(q Pushed) (Queue, Options) {
				b.do("open " + q.Target.URL)
				return newQueue(), Options{Topic: q.Topic, TopicID: "1", Queue: q.Name}
			})
		}()
		synctest.Wait()
		f(t, b, s)
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if b.followed != 0 {
			t.Errorf("%d calls of Follow were not left", b.followed)
		}
	})
}

func pushedTo(url string) Pushed {
	return Pushed{ID: 1, Topic: "t", Name: "work", Target: Target{URL: url, Secret: NewSecret()}, Owned: true, Here: true, Epoch: 1}
}

func TestSupervisorPushesWhatThisBrokerOwns(t *testing.T) {
	supervised(t, func(t *testing.T, b *fakeBroker, s *Supervisor) {
		q := pushedTo("https://example.com/a")
		b.set(q)
		s.Notify()
		b.wantDone(t, "open https://example.com/a")
		s.Notify()
		b.wantDone(t)
		q.Target.URL = "https://example.com/b"
		b.set(q)
		s.Notify()
		b.wantDone(t, "open https://example.com/b")
		q.Epoch++
		b.set(q)
		s.Notify()
		b.wantDone(t, "open https://example.com/b")
		b.set()
		s.Notify()
		b.wantDone(t)
		if b.followed != 0 {
			t.Error("the log is followed although no queue is pushed")
		}
	})
}

func TestSupervisorTakesOverWhatNobodyOwns(t *testing.T) {
	supervised(t, func(t *testing.T, b *fakeBroker, s *Supervisor) {
		b.takeErr = errors.New("the store is away")
		q := pushedTo("https://example.com/")
		q.Owned, q.Here = false, false
		b.set(q)
		s.Notify()
		b.wantDone(t, "take over")
		time.Sleep(superviseAgain)
		b.wantDone(t, "take over")
	})
}

func TestSupervisorWatchesOwnersThatHaveWork(t *testing.T) {
	supervised(t, func(t *testing.T, b *fakeBroker, s *Supervisor) {
		q := pushedTo("https://example.com/")
		q.Here, q.Seen = false, time.Now()
		b.set(q)
		s.Notify()
		time.Sleep(time.Minute)
		b.wantDone(t) // no queue has work
		b.mu.Lock()
		b.hasWork, b.follows = true, false
		b.mu.Unlock()
		time.Sleep(time.Minute)
		b.wantDone(t) // the log was not read, so the owner's silence means nothing
		b.mu.Lock()
		b.follows = true
		b.mu.Unlock()
		time.Sleep(tick)
		b.wantDone(t, "take over")
		q.Seen = time.Now()
		b.set(q)
		time.Sleep(30 * time.Second)
		b.wantDone(t) // the owner has shown itself
	})
}

func TestSupervisorShowsItself(t *testing.T) {
	supervised(t, func(t *testing.T, b *fakeBroker, s *Supervisor) {
		b.mu.Lock()
		b.hasWork = true
		b.mu.Unlock()
		q := pushedTo("https://example.com/")
		q.Seen = time.Now()
		b.set(q)
		s.Notify()
		b.wantDone(t, "open https://example.com/")
		time.Sleep(2*tick + time.Second)
		b.wantDone(t, "show")
	})
}

func TestSupervisorRunsOnce(t *testing.T) {
	supervised(t, func(t *testing.T, _ *fakeBroker, s *Supervisor) {
		if err := s.Run(t.Context(), nil); !errors.Is(err, ErrRunning) {
			t.Errorf("the second call of Run returned %v", err)
		}
	})
}
