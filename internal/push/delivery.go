package push

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Bounds on how long, and how often, a pusher tries to report the outcome of a message (settle) and to
// extend a lease.
const (
	settleMax      = 15 * time.Minute // how long a pusher tries to report an outcome: most outages of a queue are shorter
	settleRetryMin = 100 * time.Millisecond
	settleRetryMax = 5 * time.Second
	extendRetryMin = 100 * time.Millisecond
	extendRetryMax = time.Second     // the interval between calls after the lease has ended
	extendMax      = 5 * time.Second // the timeout of a call after the lease has ended
)

// deliver sends one message to the target and reports the outcome. If the gate has closed since the message
// was received, or the context begin is done, deliver sends nothing and returns the message to the queue.
// When the context work is done, deliver cancels its request to the target. It calls stop if the target is
// gone for good.
func (p *Pusher) deliver(begin, work context.Context, stop context.CancelCauseFunc, m *Message) {
	defer p.gate.settled()
	era, ok := p.gate.enter(begin)
	if !ok {
		m.release()
		p.giveBack(m)
		return
	}
	leased, release := context.WithCancel(work)
	extended := make(chan struct{})
	go func() {
		defer close(extended)
		p.extend(leased, m.Token, m.LeasedUntil)
	}()
	defer func() {
		release()
		<-extended
	}()

	began := time.Now()
	a := p.send(work, m)
	if a.outcome == Gone {
		stop(fmt.Errorf("%w: %s", ErrGone, a.reason)) // stop comes before gate.leave, so that the gate lets no other request through
	}
	closed, counts := p.gate.leave(era, a)
	m.release()
	p.metrics.observe(a.outcome, time.Since(began))
	p.report(a, closed)
	if !counts {
		p.giveBack(m)
		return
	}
	p.settle(work, m, a)
}

// giveBack returns a message that the target did not get: its delivery does not count as an attempt.
func (p *Pusher) giveBack(m *Message) {
	if err := p.queue.Return(m.Token); err != nil {
		p.log.Info("can't put back a message that was not sent; it is delivered again when its lease ends", "partition", m.Partition, "offset", m.Offset, "err", err)
	}
}

// report logs the result of a request. Only results that concern the target as a whole are logged above
// the level Debug.
func (p *Pusher) report(a answer, closed time.Duration) {
	switch a.outcome {
	case Slowed, Unreachable:
		p.log.Info("pausing pushes to a target", append(a.why(), "for", closed)...)
	case Forbidden:
		p.warnForbidden(a.err)
	case Gone:
		p.log.Warn("a queue's records are no longer pushed: the receiver answered that the URL is gone for good; set or resume the push to go on", "why", a.reason)
	default:
		p.log.Debug("pushed a message", append(a.why(), "outcome", string(a.outcome))...)
	}
}

// why returns the attributes of a log line that explain the outcome.
func (a answer) why() (attrs []any) {
	if a.reason != "" {
		attrs = append(attrs, "why", a.reason)
	}
	if a.err != nil {
		attrs = append(attrs, "err", a.err)
	}
	return attrs
}

// warnForbidden logs, at most once in warnEvery, that nothing is sent because an operator's setting
// forbids the address of the URL's host. It logs only the host, since the rest of the URL may hold a secret.
func (p *Pusher) warnForbidden(err error) {
	var forbidden *forbiddenError
	if !errors.As(err, &forbidden) || !p.gate.mayWarn() {
		return
	}
	u, parseErr := parseURL(p.target.URL)
	if parseErr != nil {
		return // impossible: New has checked the URL
	}
	p.log.Warn("a queue's records are not pushed: its URL's host has an address that this broker may not push to; the records wait in the queue",
		"host", u.Hostname(), "address", forbidden.address.Addr(), "why", "it "+forbidden.why, "hint", forbidden.hint)
}

// settle reports the outcome of a message to the queue. If a shutdown ended the request, the target may still
// have received it: settle reports nothing, and the message stays leased until its lease ends.
func (p *Pusher) settle(ctx context.Context, m *Message, a answer) {
	if a.outcome == Abandoned {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleMax)
	defer cancel()
	for wait := settleRetryMin; ; wait = min(2*wait, settleRetryMax) {
		var err error
		if a.outcome == Delivered {
			err = p.queue.Ack(ctx, m.Token)
		} else {
			err = p.queue.Nack(ctx, m.Token, a.after, a.reason)
		}
		if err == nil {
			return
		}
		if errors.Is(err, ErrLost) || !pause(ctx, wait) {
			p.metrics.unsettled()
			p.log.Warn("can't report the outcome of a message to its queue", "partition", m.Partition, "offset", m.Offset, "attempt", m.Attempt, "outcome", a.outcome, "err", err)
			return
		}
	}
}

// extend keeps a message leased until ctx ends: it extends the lease whenever half of the remaining time
// has passed. If calls fail, extend continues after the lease has ended. While the queue can't be reached,
// no other worker gets the record, so a later call may still succeed.
func (p *Pusher) extend(ctx context.Context, token string, until time.Time) {
	lapsed := 0
	lapse := func(now int) {
		if now != lapsed {
			p.gate.lapse(now - lapsed)
			lapsed = now
		}
	}
	defer lapse(0)
	for {
		left := time.Until(until)
		wait := max(left/2, extendRetryMin)
		if left <= 0 {
			lapse(1)
			wait = extendRetryMax
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		patience := time.Until(until)
		if patience <= 0 {
			patience = extendMax
		}
		call, cancel := context.WithTimeout(ctx, patience)
		next, err := p.queue.Extend(call, token)
		cancel()
		switch {
		case err == nil:
			until = next
			lapse(0)
		case errors.Is(err, ErrLost):
			return
		}
	}
}
