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
// What clients may hold for as long as they send or read slowly comes from shares: see
// share. All of these together, and what requests need in addition while they are worked
// on, leave a part to batches, so that memory comes free again whatever the load.
type budget struct {
	limit  int64
	resize func(cacheMax int64) // told how much is left for the cache

	mu      sync.Mutex
	used    int64
	held    [classCount]int64         // of used, by class; that of shares apart
	waiting [classCount][]*budgetWait // by class, in order of arrival
	shares  [shareCount]share
}

// budgetClass says how far a caller may fill the budget.
type budgetClass int

const (
	forBatches  budgetClass = iota // records on their way into a commit: all of it
	forFetches                     // what is read from the store at a time: a quarter
	forMore                        // what a request needs that holds memory already
	forPushed                      // records under way to a target, which are bounded apart
	forAdapters                    // a request's first: half
	classCount
)

type budgetWait struct {
	n     int64
	ready chan struct{}
}

// newBudget returns a budget with shares.
func newBudget(limit int64, resize func(cacheMax int64)) *budget {
	b := &budget{limit: limit, resize: resize}
	for i := range b.shares {
		b.shares[i].setUp(Share(i), limit)
	}
	return b
}

// of returns n/16 of the budget.
func (b *budget) of(n int64) int64 { return b.limit / 16 * n }

// max returns what a class may have when nothing else is taken.
func (b *budget) max(c budgetClass) int64 {
	switch c {
	case forAdapters:
		return b.limit / 2
	case forMore:
		return b.of(15)
	case forPushed:
		return b.of(12)
	default:
		return b.limit
	}
}

// hasRoomLocked tells whether a class may take n bytes now.
func (b *budget) hasRoomLocked(c budgetClass, n int64) bool {
	if b.used+n > b.limit {
		return false
	}
	switch clients := b.used - b.held[forBatches] - b.held[forFetches]; c {
	case forAdapters, forMore:
		return clients+n <= b.max(c)
	case forPushed:
		return b.used+n <= b.max(c)
	case forFetches: // one batch may be larger than what several may take together
		return b.held[c] == 0 || b.held[c]+n <= b.of(4)
	default:
		return true
	}
}

// take waits for n bytes for as long as memoryWaitMax and ctx last.
func (b *budget) take(ctx context.Context, c budgetClass, n int64) error {
	if n > b.max(c) {
		return b.refusal(n, c)
	}
	b.mu.Lock()
	if len(b.waiting[c]) == 0 && b.hasRoomLocked(c, n) {
		b.takeLocked(c, n)
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
		return b.leave(c, w, b.refusal(n, c))
	case <-ctx.Done():
		return b.leave(c, w, canceled(ctx))
	}
}

func (b *budget) takeLocked(c budgetClass, n int64) {
	b.used += n
	b.held[c] += n
}

// refusal says which part of the budget has no room.
func (b *budget) refusal(n int64, c budgetClass) error {
	most := b.max(c)
	what := "the memory budget"
	if most < b.limit {
		what = "the part of the memory budget that requests may take"
	}
	return overMemory(fmt.Sprintf("no room for %d bytes within %s, %d of %d bytes", n, what, most, b.limit), b.limit)
}

// leave takes w out of the queue; it returns err, or nil if w was served meanwhile.
func (b *budget) leave(c budgetClass, w *budgetWait, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, x := range b.waiting[c] {
		if x == w {
			b.waiting[c] = append(b.waiting[c][:i], b.waiting[c][i+1:]...)
			b.serveLocked() // those behind may be smaller
			return err
		}
	}
	return nil
}

func (b *budget) give(c budgetClass, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.held[c] -= n
	b.serveLocked()
}

func (b *budget) serveLocked() {
	for c := range b.waiting {
		for len(b.waiting[c]) > 0 && b.hasRoomLocked(budgetClass(c), b.waiting[c][0].n) {
			w := b.waiting[c][0]
			b.waiting[c] = b.waiting[c][1:]
			b.takeLocked(budgetClass(c), w.n)
			close(w.ready)
		}
	}
	for i := range b.shares {
		b.serveShareLocked(&b.shares[i])
	}
	b.resize(b.limit - b.used)
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Reserve takes n bytes of the memory budget for an adapter's own buffers, which no
// client can make it hold for long. For what a client sends or reads see
// [Broker.NewReservation]. It waits some seconds for room, then returns
// CodeOverMemoryBudget. release gives the bytes back; only its first call counts.
func (b *Broker) Reserve(ctx context.Context, n int64) (release func(), err error) {
	defer writes(&err)
	return b.reserve(ctx, forAdapters, n)
}

// ReserveMore is [Broker.Reserve] for a request that holds a reservation
// already. It may take memory that Reserve may not, so that requests which
// have begun can end, and don't wait for each other's memory.
func (b *Broker) ReserveMore(ctx context.Context, n int64) (release func(), err error) {
	defer writes(&err)
	return b.reserve(ctx, forMore, n)
}

func (b *Broker) reserve(ctx context.Context, c budgetClass, n int64) (release func(), err error) {
	if err := b.budget.take(ctx, c, n); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { b.budget.give(c, n) }), nil
}
