package seb

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/internal/wait"
)

// WorkSource hands out records to workers: a [Queue], or a client of a queue.
type WorkSource interface {
	Receive(ctx context.Context, o ReceiveOptions) ([]Message, error)
	Ack(ctx context.Context, tokens ...string) error
	Nack(ctx context.Context, o NackOptions, tokens ...string) error
	Extend(ctx context.Context, lease time.Duration, tokens ...string) (time.Time, error)
}

// Worker processes the records of a queue. While a handler runs, the worker extends the lease
// of the handler's record, so a slow handler keeps the record. If a worker is killed, other
// workers get the records of that worker within one lease.
type Worker struct {
	Source WorkSource
	// Handle processes one record. If it returns nil, the worker acknowledges the record. If it
	// returns an error, the worker puts the record back, with the error's text as the reason. The
	// record then waits for the delay of a [RetryIn] in the error's chain; without a RetryIn, for
	// the queue's backoff. If the record goes to another worker, ctx ends with the cause
	// CodeLeaseLost, and the worker ignores what Handle returns. ctx does not end when the context
	// of Run ends. A panic ends the process.
	Handle func(ctx context.Context, m Message) error
	// Concurrency is how many handlers run at a time. Default 1.
	Concurrency int
	// Lease is how long a record stays with a worker that is killed. Default 30 s, whatever the queue's lease is.
	Lease time.Duration
	// Logger receives errors that the worker can't return. Default: discarded.
	Logger *slog.Logger
}

// RetryIn is an error with which a handler chooses the delay until the next attempt: see
// [Worker]. Delay is clamped to 0..366 days.
type RetryIn struct {
	Delay time.Duration
	Err   error
}

// Error returns the text of the cause.
func (e *RetryIn) Error() string {
	if e.Err == nil {
		return "the handler asked for a retry"
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *RetryIn) Unwrap() error { return e.Err }

const (
	workerWait     = 20 * time.Second
	workerExtends  = QueueLeaseDefault / 3 // longest time between extensions: a new owner of the queue does not know of earlier extensions, and gives each worker only the queue's lease
	workerRetryMin = 100 * time.Millisecond
	workerRetryMax = 5 * time.Second
)

// Run processes records until ctx ends, waits for the handlers under way, and returns nil.
// Run returns an error if it can't go on, for example because the queue was deleted. Run receives
// only as many records as handlers are free.
func (w *Worker) Run(ctx context.Context) error {
	c := *w
	def(&c.Concurrency, 1)
	def(&c.Lease, QueueLeaseDefault)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Concurrency < 0 || c.Source == nil || c.Handle == nil {
		return refused(CodeInvalidRequest, "a worker needs a source, a handler and a concurrency of at least 1")
	}
	if err := checkLease(c.Lease); err != nil {
		return err
	}
	return c.run(ctx)
}

func (w *Worker) run(ctx context.Context) error {
	var (
		handlers sync.WaitGroup
		places   = make(chan struct{}, w.Concurrency)
		pause    = workerRetryMin
	)
	defer handlers.Wait()
	for {
		free := w.free(ctx, places)
		if free == 0 {
			return nil
		}
		ms, err := w.Source.Receive(ctx, ReceiveOptions{Max: min(free, receiveMax), Wait: workerWait, Lease: w.Lease})
		for range free - len(ms) {
			<-places // release places for which no record came
		}
		switch {
		case err == nil:
			pause = workerRetryMin
		case ctx.Err() != nil:
			return nil
		case !passes(err):
			return err
		default:
			w.Logger.Warn("could not receive records; trying again", "err", err)
			wait.For(ctx, pause/2+rand.N(pause/2))
			pause = min(2*pause, workerRetryMax)
		}
		for _, m := range ms {
			handlers.Go(func() {
				defer func() { <-places }()
				w.handle(ctx, m)
			})
		}
	}
}

// free waits for a free place and takes all free places; it returns 0 when ctx has ended.
func (w *Worker) free(ctx context.Context, places chan struct{}) (n int) {
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for n = 1; ; n++ {
		select {
		case places <- struct{}{}:
		default:
			if ctx.Err() != nil {
				return 0
			}
			return n
		}
	}
}

// passes reports whether a call that failed with err may succeed later.
func passes(err error) bool {
	var e *Error
	return !errors.As(err, &e) || e.RetryAfter > 0 || e.Code == CodeQueueElsewhere || e.Code == CodeStoreUnavailable
}

// handle calls the handler for one record, and answers the queue with the handler's result.
func (w *Worker) handle(ctx context.Context, m Message) {
	ctx = context.WithoutCancel(ctx)
	work, lose := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		w.keep(work, m, lose)
	}()
	release := func() {
		lose(context.Canceled)
		<-kept
	}
	defer release() // deferred for a handler that never returns because it calls runtime.Goexit
	err := w.Handle(work, m)
	lost := context.Cause(work)
	release()
	if lost != nil {
		w.Logger.Warn("a record went to another worker before its handler was done", "offset", m.Offset, "partition", m.Partition, "attempt", m.Attempt)
		return
	}
	w.answer(ctx, m, err)
}

// keep extends the lease until the work is done or the lease is lost.
func (w *Worker) keep(work context.Context, m Message, lose context.CancelCauseFunc) {
	ends := time.Now().Add(w.Lease)
	every := min(w.Lease/3, workerExtends)
	for pause := every; ; {
		if wait.For(work, pause); work.Err() != nil {
			return
		}
		_, err := w.Source.Extend(work, w.Lease, m.Token)
		switch {
		case err == nil:
			ends, pause = time.Now().Add(w.Lease), every
		case work.Err() != nil:
			return
		case CodeOf(err) == CodeLeaseLost:
			lose(err)
			return
		default:
			// This worker may still have the record. If the lease is lost, a later Extend returns CodeLeaseLost.
			w.Logger.Warn("a lease was not extended; trying again", "err", err, "left", time.Until(ends).Round(time.Millisecond))
			pause = min(w.Lease/10, time.Second)
		}
	}
}

// answer acknowledges a record, or puts it back if the handler returned an error. It retries until the
// source has confirmed the answer, a retry can't help, or the time w.Lease has passed.
func (w *Worker) answer(ctx context.Context, m Message, failure error) {
	ctx, cancel := context.WithTimeout(ctx, w.Lease)
	defer cancel()
	warn := func(what string, err error) {
		w.Logger.Warn(what, "offset", m.Offset, "partition", m.Partition, "attempt", m.Attempt, "err", err)
	}
	var cause error
	for pause := workerRetryMin; ; pause = min(2*pause, workerRetryMax) {
		err := w.say(ctx, m, failure)
		if err == nil {
			return
		}
		if cause == nil || ctx.Err() == nil {
			cause = err // an error that comes because the time is over says nothing of the cause
		}
		if !passes(err) && OutcomeOf(err) != Unknown || ctx.Err() != nil {
			warn("could not tell the queue the outcome of a record, which may go to a worker again", cause)
			return
		}
		warn("could not tell the queue the outcome of a record; trying again", err)
		wait.For(ctx, pause)
	}
}

func (w *Worker) say(ctx context.Context, m Message, failure error) error {
	if failure == nil {
		return w.Source.Ack(ctx, m.Token)
	}
	o := NackOptions{Reason: strings.ToValidUTF8(failure.Error()[:min(len(failure.Error()), state.ReasonBytesMax)], "")}
	if in := (*RetryIn)(nil); errors.As(failure, &in) {
		o.Delay = new(min(max(0, in.Delay), delayMax))
	}
	return w.Source.Nack(ctx, o, m.Token)
}
