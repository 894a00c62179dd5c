package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// answerMin is how long a broker has for its response at least, although the time for retries passes before.
const answerMin = 10 * time.Second

// inTime calls send with a context that ends when retryFor has passed since began, but not before send had answerMin.
// If that ends the request, the broker at server has not responded, and it is too late for a retry.
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
	short.Outcome = "" // the command will find out
	message, hint := said(&short)
	report(n.w, hinted(fmt.Errorf("%s: %s; %s", n.doing, message, now), hint))
}
