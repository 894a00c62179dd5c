package seb

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// pushPermitsPerCPU is how many requests to targets a broker has begun, for each CPU that
	// it may use, and not yet had an answer to: enough to keep the CPUs busy, so few that what
	// the API does hardly has to wait behind them.
	pushPermitsPerCPU = 4
	// pushPermitMax is how long a request has a permit at most. It is several times what a
	// request takes whose target answers at once; a target that takes longer waits without one,
	// and so does not hold up the other targets.
	pushPermitMax = 2 * time.Millisecond
)

// pushPermits bounds the requests to targets that a broker's pushers have just begun, of
// all queues together. A pusher takes a permit for each message that it receives. Pushers
// that wait for permits get them in turn; since each of them waits once at a time, and gets
// its share of what is free, queues that have as much to push get as many.
type pushPermits struct {
	all int

	mu      sync.Mutex
	free    int
	waiting []*permitWait // in order of arrival
}

type permitWait struct {
	most, got int
	ready     chan struct{} // closed when got is set
}

func newPushPermits() *pushPermits {
	n := pushPermitsPerCPU * runtime.GOMAXPROCS(0)
	return &pushPermits{all: n, free: n}
}

// take waits for permits, and returns how many it took: 1 to most.
func (p *pushPermits) take(ctx context.Context, most int) (int, error) {
	w := &permitWait{most: most, ready: make(chan struct{})}
	p.mu.Lock()
	p.waiting = append(p.waiting, w)
	p.serveLocked()
	p.mu.Unlock()
	select {
	case <-w.ready:
		return w.got, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(x *permitWait) bool { return x == w })
	p.free += w.got // it may have been served meanwhile
	p.serveLocked()
	return 0, canceled(ctx, "")
}

func (p *pushPermits) give(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += n
	p.serveLocked()
}

func (p *pushPermits) serveLocked() {
	for p.free > 0 && len(p.waiting) > 0 {
		w := p.waiting[0]
		w.got = min(w.most, max(1, p.free/len(p.waiting)))
		p.free -= w.got
		p.waiting = p.waiting[1:]
		close(w.ready)
	}
}

// one returns what gives one of the permits back that were taken, which it does by itself
// after pushPermitMax. Only its first call counts.
func (p *pushPermits) one() (giveBack func()) {
	give := sync.OnceFunc(func() { p.give(1) })
	timer := time.AfterFunc(pushPermitMax, give)
	return func() {
		timer.Stop()
		give()
	}
}
