package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// answerMin is the least time that a broker gets for its response, even if the time for retries ends earlier.
const answerMin = 10 * time.Second

// inTime calls send with a context that ends retryFor after began, but gives send at least answerMin. If the end of
// this context ends the request, inTime returns an error that names server, and after which no retry follows.
func inTime(ctx context.Context, server string, began time.Time, retryFor time.Duration, send func(ctx context.Context) error) error {
	within := max(retryFor-time.Since(began), answerMin)
	try, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := send(try)
	if e, ok := errors.AsType[*seb.Error](err); ok && e.Code == seb.CodeCanceled && ctx.Err() == nil {
		return &seb.Error{Code: client.CodeUnreachable, Detail: fmt.Sprintf("no response from %s within %v", server, within.Round(time.Second)), Outcome: e.Outcome}
	}
	return err
}

// retryable tells whether a request that failed with err may succeed if it is sent again.
func retryable(err error) bool {
	e, ok := errors.AsType[*seb.Error](err)
	return ok && e.RetryAfter > 0
}

// noSuchHost tells whether err says that the host or the port of a broker's URL does not exist. Most likely it is
// mistyped, and a retry does not help.
func noSuchHost(err error) bool {
	name, ok := errors.AsType[*net.DNSError](err)
	return ok && name.IsNotFound || errors.As(err, new(*net.AddrError))
}

// untilAnswered calls ask, the first request of a command, until a broker answers, or a retry can't help. It reports
// to w, once for each error code, why the command waits.
func untilAnswered(ctx context.Context, w io.Writer, ask func() error) error {
	var pause backoff
	told := map[seb.Code]bool{}
	for {
		err := ask()
		if err == nil || !retryable(err) || noSuchHost(err) {
			return err
		}
		if code := seb.CodeOf(err); !told[code] {
			told[code] = true
			message, hint := said(err)
			report(w, hinted(errors.New(message+"; trying again"), hint))
		}
		if !pause.wait(ctx, err) {
			return err
		}
	}
}

// outage tells on w, once each, when the broker does not serve a queue, and when it does so again.
type outage struct {
	w  io.Writer
	mu sync.Mutex
	on bool // guarded by mu, like vague
	// vague says that all requests so far have ended without an answer: a later error may name the cause.
	vague bool
}

// begins notes that a request failed, and is sent again. It reports the first error of an outage, and the first cause.
func (o *outage) begins(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	vague := seb.CodeOf(err) == seb.CodeCanceled // no answer came within the part of the lease that Extend waits for
	if !o.on || o.vague && !vague {
		message, _ := said(err)
		if vague {
			message = "the broker did not answer in time"
		}
		note(o.w, "seb: %s; trying again\n", oneLine(message))
		o.vague = vague
	}
	o.on = true
}

// ends says that the broker has carried out a request.
func (o *outage) ends() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.on {
		note(o.w, "seb: the broker serves the queue again\n")
	}
	o.on = false
}

// lasts tells whether the outage goes on.
func (o *outage) lasts() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.on
}

// backoff makes the pauses between retries. Each pause is twice as long as the previous pause, up to
// backoffMax. If the broker asks for a longer pause, the pause is as long as the broker asks for.
type backoff struct{ last time.Duration }

// wait pauses after err, and returns false once ctx ends.
func (b *backoff) wait(ctx context.Context, err error) bool {
	b.last = min(max(2*b.last, backoffMin), backoffMax)
	pause := b.last
	if e, ok := errors.AsType[*seb.Error](err); ok {
		pause = max(pause, e.RetryAfter)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// tellWaitMin is the shortest wait that is reported to the user.
const tellWaitMin = 5 * time.Second

// waitNotes tell the user why a command waits if the broker asks for a long wait. Each error code is
// reported once.
type waitNotes struct {
	w        io.Writer
	progress *progress // cleared before a note
	doing    string
	most     time.Duration // how long the command retries in all
	told     map[seb.Code]bool
}

func newWaitNotes(w io.Writer, p *progress, doing string, most time.Duration) *waitNotes {
	return &waitNotes{w, p, doing, most, map[seb.Code]bool{}}
}

// tell reports err with its hint, before the command waits and tries again. It reports nothing if it has reported
// the same code before, or if the broker asked for a short wait, unless the store fails, which may take longer.
func (n *waitNotes) tell(err error) {
	if e, ok := errors.AsType[*seb.Error](err); ok && (e.RetryAfter >= tellWaitMin || e.Code == seb.CodeStoreUnavailable) {
		n.tellNow(err)
	}
}

// tellNow is like tell, but also reports short waits.
func (n *waitNotes) tellNow(err error) { n.once(err, fmt.Sprintf("trying again for up to %v", n.most)) }

// once reports err with its hint, and what the command does now, unless it has reported the same code before.
func (n *waitNotes) once(err error, now string) {
	e, ok := errors.AsType[*seb.Error](err)
	if !ok || n.told[e.Code] {
		return
	}
	n.told[e.Code] = true
	n.progress.clear()
	short := *e
	short.Outcome = "" // unknown only until the retries end: no reason to tell the user about it now
	message, hint := said(&short)
	report(n.w, hinted(fmt.Errorf("%s: %s; %s", n.doing, message, now), hint))
}
