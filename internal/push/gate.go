package push

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Bounds on how long a gate stays closed (the pusher sends nothing) if the target names no time. Without a
// successful request in between, the gate stays closed about twice as long as the previous time.
const (
	closedMin = time.Second
	closedMax = 5 * time.Minute
)

// warnEvery is the least time between two log messages about a target's forbidden address.
const warnEvery = time.Hour

// settlingFactor bounds how many received messages may be unsettled (their outcomes are not committed yet):
// settlingFactor times the requests that may be under way. The factor is above 1 because a pusher sends the
// next messages while the outcomes of earlier ones are being committed.
const settlingFactor = 16

// gate limits the requests to one target. At most max requests are under way at a time. A closed gate lets
// no request through. When the gate opens again, one request may be under way, after a success two, and so
// on, up to max. If several requests began before the gate closed, and each of their answers would close
// the gate, these answers count as one closing.
type gate struct {
	max int

	mu       sync.Mutex
	limit    int       // how many requests may be under way at present: 1 to max
	taken    int       // number of messages received whose requests have not ended
	inFlight int       // requests under way
	held     int       // messages received and not settled
	lapsed   int       // number of held messages whose lease has ended, as far as the pusher knows
	blocked  string    // why nothing may be sent to the target's address; "" if sending is allowed
	failing  string    // why the latest request failed; "" if it succeeded
	since    time.Time // when the first request after the latest success failed; zero if failing is ""
	until    time.Time
	closings int           // number of closings in a row, without a success between them
	era      int           // counts the closings; each request remembers the era in which it began
	warned   time.Time     // when blocked was last logged
	changed  chan struct{} // closed and replaced when a field above changes
	onClose  context.CancelFunc
}

func newGate(limit int) *gate {
	return &gate{max: limit, limit: limit, changed: make(chan struct{})}
}

// room waits until the pusher may receive messages, and returns how many it may receive.
func (g *gate) room(ctx context.Context) (n int, err error) {
	err = g.wait(ctx, func() bool {
		n = min(g.limit-g.taken, g.max*settlingFactor-g.held)
		return n > 0 && g.lapsed == 0
	})
	return n, err
}

// receiving notes that the pusher is about to call [Queue.Receive]. If the gate is closed or closes during that
// call, or if the lease of an unsettled message ends, the gate calls giveUp. When Receive has returned, the
// pusher calls received with the number of messages.
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

// enter begins the request for a received message. It returns false if ctx has ended, or if the gate has
// closed or lowered its limit since the message was received. Then the caller returns the message to the
// queue.
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

// leave ends a request that began in the given era. It returns how long the gate is still closed, and whether
// the request counts as an attempt. A request to a forbidden address does not count. A request without a connection
// counts only if it closes the gate for the first time since a success: later ones say nothing about their messages.
func (g *gate) leave(era int, a answer) (closed time.Duration, counts bool) {
	g.change(func() {
		counts = a.outcome != Forbidden && (a.outcome != Unreachable || era == g.era && g.closings == 0)
		g.taken--
		g.inFlight--
		g.judge(a)
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
	return closed, counts
}

// judge notes what the answer to a request says about the target.
func (g *gate) judge(a answer) {
	if a.outcome == Abandoned { // it says nothing about the target
		return
	}
	g.blocked = ""
	if a.outcome == Forbidden {
		g.blocked = a.reason
	}
	g.failing = a.reason // "" if the outcome is Delivered
	switch {
	case a.outcome == Delivered:
		g.since = time.Time{}
	case g.since.IsZero():
		g.since = time.Now()
	}
}

func (g *gate) close(era int, after time.Duration) {
	wait := after + rand.N(after/8+1) // at least the time that the target asked for
	if after == 0 && era == g.era {
		wait = closedMin << min(g.closings, 20)
		wait = min(wait, closedMax)
		wait = wait/2 + rand.N(wait/2+1)
	}
	if until := time.Now().Add(wait); until.After(g.until) {
		g.until = until
	}
	if era == g.era { // answers to other requests of this era don't count as further closings
		g.era++
		g.closings++
		g.limit = 1
	}
	if g.onClose != nil {
		g.onClose()
	}
}

// lapse changes the number of unsettled messages whose lease has ended. While there are such messages, the
// pusher receives nothing: the queue might hand out the same messages a second time.
func (g *gate) lapse(by int) {
	g.change(func() {
		g.lapsed += by
		if g.lapsed > 0 && g.onClose != nil {
			g.onClose()
		}
	})
}

// mayWarn reports whether the caller may log that the target's address is not allowed: it returns true at most
// once in warnEvery.
func (g *gate) mayWarn() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.warned.IsZero() && time.Since(g.warned) < warnEvery {
		return false
	}
	g.warned = time.Now()
	return true
}

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

// wait returns nil when the gate is open and try has returned true. It calls try under the lock. It returns an
// error if ctx ends.
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
	Blocked     string    // why the broker may not send to the target's address; "" if the broker may

	Failing      string    // why the latest request failed; "" if it succeeded, or if there was none
	FailingSince time.Time // when the first request after the latest success failed; zero if Failing is ""
}

func (g *gate) status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Status{InFlight: g.inFlight, Limit: g.limit, Held: g.held, Blocked: g.blocked, Failing: g.failing, FailingSince: g.since}
	if time.Now().Before(g.until) {
		s.SlowedUntil = g.until
	}
	return s
}
