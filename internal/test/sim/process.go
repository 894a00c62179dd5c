package sim

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/objstore/storetest"
)

// process is the [storetest.Fault] through which all requests of a process go. A stopped process sends and
// gets nothing until it runs again. A dead process never sends or gets anything.
func (l *link) process(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
	l.whileStopped()
	if l.dead() {
		return storetest.Answer{}, errCut
	}
	// Copy the parts: the caller may reuse their memory once it has an answer, and the store may execute the
	// request after that.
	r.Parts = [][]byte{bytes.Join(r.Parts, nil)}
	type reply struct {
		answer storetest.Answer
		err    error
	}
	replies := make(chan reply, 1)
	l.sim.flights.Go(func() {
		a, err := next(ctx, r)
		replies <- reply{a, err}
	})
	var got *reply
	select {
	case x := <-replies:
		got = &x
	case <-ctx.Done():
	case <-l.cut:
	}
	l.whileStopped()
	select {
	case x := <-replies: // the answer came while the process was stopped
		got = &x
	default:
	}
	switch {
	case l.dead():
		return storetest.Answer{}, fmt.Errorf("%s %s: %w", r.Verb, r.Key, errCut)
	case got == nil:
		return storetest.Answer{}, fmt.Errorf("%s %s: %w", r.Verb, r.Key, ctx.Err())
	}
	return got.answer, got.err
}

// sever ends the process: from now on, the process sends and gets nothing.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		return
	}
	l.isCut = true
	close(l.cut)
	if l.front != nil {
		l.front.close()
	}
}

func (l *link) dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isCut
}

// whileStopped waits until the process runs or is dead.
func (l *link) whileStopped() {
	for {
		l.mu.Lock()
		d, changed := time.Until(l.stopped), l.changed
		l.mu.Unlock()
		if d <= 0 {
			return
		}
		select {
		case <-time.After(d):
		case <-changed:
		case <-l.cut:
			return
		}
	}
}

// stop stops the process for d, as SIGSTOP does: the process sends nothing during d, and gets answers only
// after d. If d is 0, the process runs again.
func (l *link) stop(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = time.Now().Add(d)
	close(l.changed)
	l.changed = make(chan struct{})
}

// crashIn makes the process die at its nth request from now.
func (l *link) crashIn(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crashAt = l.sent + n
}
