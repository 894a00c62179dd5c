package push

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// These bound how long a gate closes if the target names no time. The time doubles, with jitter,
// until a request succeeds.
const (
	closedMin = time.Second
	closedMax = 5 * time.Minute
)

// warnEvery is the least time between two log messages about a target's forbidden address.
const warnEvery = time.Hour

// settlingFactor bounds how many messages may be received and not settled: this many times the
// requests that may be under way. Settling a message takes a commit, and the next messages are sent
// meanwhile.
const settlingFactor = 16

// gate limits the requests to one target. It lets at most max requests through at a time and none
// during a pause. After a pause it lets one through, then two, and so on. If several requests that
// entered before the gate closed get answers that close it, these count as one closing.
type gate struct {
	max int

	mu       sync.Mutex
	limit    int    // how many requests may be under way now
	taken    int    // number of messages received whose requests have not ended
	inFlight int    // requests under way
	held     int    // messages received and not settled
	lapsed   int    // number of held messages whose lease has ended, as far as the pusher knows
	blocked  string // why nothing may be sent to the target's address; "" if it may
	until    time.Time
	closings int           // number of closings in a row, without a success between them
	era      int           // counts the closings; requests remember the era in which they entered
	warned   time.Time     // when blocked was last logged
	changed  chan struct{} // closed and replaced when any of the above changes
	onClose  context.CancelFunc
}

func newGate(limit int) *gate {
	return &gate{max: limit, limit: limit, changed: make(chan struct{})}
}

// room waits until messages may be received, and returns how many may be received.
func (g *gate) room(ctx context.Context) (n int, err error) {
	err = g.wait(ctx, func() bool {
		n = min(g.limit-g.taken, g.max*settlingFactor-g.held)
		return n > 0 && g.lapsed == 0
	})
	return n, err
}

// receiving makes the gate call giveUp if the gate closes, or if a lease ends, before the returned
// function is called. The caller calls that function with the number of received messages.
func (g *gate) receiving(giveUp context.CancelFunc) (received func(n int)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().Before(g.until) || g.lapsed > 0 {
		giveUp()
	}
	g.onClose = giveUp
	return func(n int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.onClose = nil
		g.taken += n
		g.held += n
	}
}

// enter lets a received message through. It returns false if ctx has ended, or the gate has
// closed or narrowed since the message was received: then the caller returns the message.
func (g *gate) enter(ctx context.Context) (era int, ok bool) {
	g.change(func() {
		if ok = ctx.Err() == nil && !time.Now().Before(g.until) && g.inFlight < g.limit; !ok {
			g.taken--
			return
		}
		g.inFlight++
		era = g.era
	})
	return era, ok
}

// leave ends a request that entered in the given era. It returns how long the gate stays closed because
// of the answer.
func (g *gate) leave(era int, a answer) (closed time.Duration) {
	g.change(func() {
		g.taken--
		g.inFlight--
		switch a.outcome {
		case Forbidden:
			g.blocked = a.reason
		case Abandoned: // an abandoned request says nothing about the target
		default:
			g.blocked = ""
		}
		switch a.outcome {
		case Delivered:
			if era == g.era {
				g.closings = 0
				g.limit = min(g.limit+1, g.max)
			}
		case Slowed, Unreachable, Forbidden:
			g.close(era, a.after)
		case TimedOut, Broken:
			g.limit = max(g.limit-1, 1) // the target may be overloaded
		default: // the target works, and refuses this message
		}
		closed = max(time.Until(g.until), 0)
	})
	return closed
}

func (g *gate) close(era int, after time.Duration) {
	wait := after + rand.N(after/8+1) // not sooner than the target asked
	if after == 0 && era == g.era {
		wait = closedMin << min(g.closings, 20)
		wait = min(wait, closedMax)
		wait = wait/2 + rand.N(wait/2+1)
	}
	if until := time.Now().Add(wait); until.After(g.until) {
		g.until = until
	}
	if era == g.era { // other requests of this era count as part of the same closing
		g.era++
		g.closings++
		g.limit = 1
	}
	if g.onClose != nil {
		g.onClose()
	}
}

// lapse changes the number of held messages whose lease has ended. While there are such messages, the
// pusher receives nothing: the queue might hand out the same messages a second time.
func (g *gate) lapse(by int) {
	g.change(func() {
		g.lapsed += by
		if g.lapsed > 0 && g.onClose != nil {
			g.onClose()
		}
	})
}

// mayWarn reports whether to log that the target's address is not allowed: at most once in warnEvery.
func (g *gate) mayWarn() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.warned.IsZero() && time.Since(g.warned) < warnEvery {
		return false
	}
	g.warned = time.Now()
	return true
}

// settled counts a received message as settled.
func (g *gate) settled() {
	g.change(func() { g.held-- })
}

func (g *gate) change(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	close(g.changed)
	g.changed = make(chan struct{})
}

// wait returns when the gate is open and try has returned true. It calls try under the lock.
func (g *gate) wait(ctx context.Context, try func() bool) error {
	for {
		g.mu.Lock()
		changed, closed := g.changed, time.Until(g.until)
		done := ctx.Err() == nil && closed <= 0 && try()
		g.mu.Unlock()
		if done {
			return nil
		}
		var open <-chan time.Time
		if closed > 0 {
			open = time.After(closed)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-open:
		}
	}
}

// Status is the state of a target.
type Status struct {
	InFlight    int       // requests under way
	Limit       int       // how many requests may be under way
	Held        int       // messages received and not settled
	SlowedUntil time.Time // earliest time of the next request; zero = now
	Blocked     string    // why the broker may not send to the target's address; "" if it may
}

func (g *gate) status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Status{InFlight: g.inFlight, Limit: g.limit, Held: g.held, Blocked: g.blocked}
	if time.Now().Before(g.until) {
		s.SlowedUntil = g.until
	}
	return s
}
