package seb

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// memoryWaitMax is how long a request waits for room before it is refused.
const memoryWaitMax = 5 * time.Second

// budget hands out the broker's memory. What is not handed out belongs to the
// cache, which gives way at once.
//
// Adapters' buffers may take at most half, and what those who hold some need
// beside it three quarters, so that there is always room for who is nearer to
// the end of a request and memory comes free again whatever the load.
type budget struct {
	limit  int64
	resize func(cacheMax int64) // told how much is left for the cache

	mu      sync.Mutex
	used    int64
	waiting [3][]*budgetWait // by class, in order of arrival
}

// budgetClass says how far up a taker may fill the budget.
type budgetClass int

const (
	forBatches  budgetClass = iota // records on their way into a commit: all of it
	forMore                        // what a request needs that holds memory already: three quarters
	forAdapters                    // a request's first: half
)

type budgetWait struct {
	n     int64
	ready chan struct{}
}

func (b *budget) max(c budgetClass) int64 {
	switch c {
	case forAdapters:
		return b.limit / 2
	case forMore:
		return b.limit / 4 * 3
	default:
		return b.limit
	}
}

// take waits for n bytes for as long as memoryWaitMax and ctx last.
func (b *budget) take(ctx context.Context, c budgetClass, n int64) error {
	if n > b.max(c) {
		return b.refusal(n)
	}
	b.mu.Lock()
	if len(b.waiting[c]) == 0 && b.used+n <= b.max(c) {
		b.used += n
		b.resize(b.limit - b.used)
		b.mu.Unlock()
		return nil
	}
	w := &budgetWait{n: n, ready: make(chan struct{})}
	b.waiting[c] = append(b.waiting[c], w)
	b.mu.Unlock()

	timer := time.NewTimer(memoryWaitMax)
	defer timer.Stop()
	select {
	case <-w.ready:
		return nil
	case <-timer.C:
		return b.leave(c, w, b.refusal(n))
	case <-ctx.Done():
		return b.leave(c, w, canceled(ctx, NotCommitted))
	}
}

func (b *budget) refusal(n int64) error {
	return &Error{
		Code:       CodeOverMemoryBudget,
		Detail:     fmt.Sprintf("no room for %d bytes within the memory budget of %d", n, b.limit),
		Hint:       "try again later, send less at a time, or give the broker more --memory",
		Outcome:    NotCommitted,
		RetryAfter: time.Second,
		Limit:      b.limit,
	}
}

// leave takes w out of the queue; it returns err, or nil if w was served meanwhile.
func (b *budget) leave(c budgetClass, w *budgetWait, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, x := range b.waiting[c] {
		if x == w {
			b.waiting[c] = append(b.waiting[c][:i], b.waiting[c][i+1:]...)
			b.serveLocked() // those behind may be smaller
			b.resize(b.limit - b.used)
			return err
		}
	}
	return nil
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.serveLocked()
	b.resize(b.limit - b.used)
}

func (b *budget) serveLocked() {
	for c := range b.waiting {
		for len(b.waiting[c]) > 0 && b.used+b.waiting[c][0].n <= b.max(budgetClass(c)) {
			w := b.waiting[c][0]
			b.waiting[c] = b.waiting[c][1:]
			b.used += w.n
			close(w.ready)
		}
	}
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Reserve takes n bytes of the memory budget for an adapter's own buffers, such
// as a request's body before it is read or a response while it is written. It
// waits some seconds for room, then returns CodeOverMemoryBudget. release gives
// the bytes back; only its first call counts.
func (b *Broker) Reserve(ctx context.Context, n int64) (release func(), err error) {
	return b.reserve(ctx, forAdapters, n)
}

// ReserveMore is [Broker.Reserve] for a request that holds a reservation
// already. It finds room where Reserve has none left, so that requests which
// have begun can end, and don't wait for each other's memory.
func (b *Broker) ReserveMore(ctx context.Context, n int64) (release func(), err error) {
	return b.reserve(ctx, forMore, n)
}

func (b *Broker) reserve(ctx context.Context, c budgetClass, n int64) (release func(), err error) {
	if err := b.budget.take(ctx, c, n); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { b.budget.give(n) }), nil
}
