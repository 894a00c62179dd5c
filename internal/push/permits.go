package push

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// permitsPerCPU is how many permits there are for each CPU that the broker may use. That is enough to
	// keep the CPUs busy with pushes, and few enough that requests of the API hardly wait for a CPU.
	permitsPerCPU = 4
	// permitMax is the longest time for which a request keeps its permit. A request to a target that
	// answers at once takes a fraction of permitMax. A request to a slower target gives its permit back
	// after permitMax and waits without one, so that requests to other targets can begin.
	permitMax = 2 * time.Millisecond
)

// Permits bound how many requests to targets a broker begins at about the same time, for all queues
// together. A pusher takes a permit for each message that it receives. The permit is free again when
// the pusher no longer needs the message, and at the latest permitMax after the message was received.
//
// Pushers that wait are served in order of arrival. A pusher gets at most the free permits divided by
// the number of waiting pushers, but at least one permit. For example, if 8 permits are free and 4
// pushers wait, each of the 4 gets at most 2 permits.
type Permits struct {
	all int

	mu      sync.Mutex
	free    int
	waiting []*permitWait // in order of arrival
}

type permitWait struct {
	most, got int
	ready     chan struct{} // closed when got is set
}

// NewPermits returns permits for the CPUs that the process may use.
func NewPermits() *Permits {
	n := permitsPerCPU * runtime.GOMAXPROCS(0)
	return &Permits{all: n, free: n}
}

// Take waits for permits, and returns how many it got: 1 to most.
func (p *Permits) Take(ctx context.Context, most int) (int, error) {
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
	p.free += w.got // serveLocked may have given w permits since the select
	p.serveLocked()
	return 0, ctx.Err()
}

// Give gives n permits back.
func (p *Permits) Give(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += n
	p.serveLocked()
}

func (p *Permits) serveLocked() {
	for p.free > 0 && len(p.waiting) > 0 {
		w := p.waiting[0]
		w.got = min(w.most, max(1, p.free/len(p.waiting)))
		p.free -= w.got
		p.waiting = p.waiting[1:]
		close(w.ready)
	}
}

// One makes sure that one taken permit is given back after permitMax. The returned function gives the permit
// back earlier. The permit is given back only once.
func (p *Permits) One() (giveBack func()) {
	give := sync.OnceFunc(func() { p.Give(1) })
	timer := time.AfterFunc(permitMax, give)
	return func() {
		timer.Stop()
		give()
	}
}

// Free returns how many permits are free, and how many there are.
func (p *Permits) Free() (free, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free, p.all
}
