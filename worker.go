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

// WorkSource hands out records to be worked on: a [Queue], or a client of one.
type WorkSource interface {
	Receive(ctx context.Context, o ReceiveOptions) ([]Message, error)
	Ack(ctx context.Context, tokens ...string) error
	Nack(ctx context.Context, o NackOptions, tokens ...string) error
	Extend(ctx context.Context, lease time.Duration, tokens ...string) (time.Time, error)
}

// Worker works on the records of a queue. While a handler runs its lease is extended, so a
// slow one keeps its record, and the record of a worker that is killed is with another
// within one lease.
type Worker struct {
	Source WorkSource
	// Handle does the work of one record. nil acknowledges it; an error puts it back with the
	// error's text as the reason, for as long as a [RetryIn] among its causes says, else as the
	// queue's backoff does. ctx ends with the cause CodeLeaseLost when the record goes to another
	// worker: what is done from then on does not count. It does not end with the worker's.
	// A panic is not caught: it ends the process.
	Handle func(ctx context.Context, m Message) error
	// Concurrency is how many handlers run at a time. Default 1.
	Concurrency int
	// Lease is for how long a record stays with a worker that is killed. Default 30 s.
	Lease time.Duration
	// Logger is told what the worker can't return. Default: discarded.
	Logger *slog.Logger
}

// RetryIn puts a record back for a time of the handler's choice: see [Worker]. Of a time that
// has passed already that is none, and it is 366 days at most.
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
	workerExtends  = QueueLeaseDefault / 3 // or sooner: after its broker was lost a record has no more than the queue's lease
	workerRetryMin = 100 * time.Millisecond
	workerRetryMax = 5 * time.Second
)

// Run works until ctx ends, waits for the handlers under way, and returns nil; or it
// returns why it can't go on, such as that the queue was deleted. It asks for records only
// as handlers are free.
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
			<-places // which nobody needs yet
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

// free waits for a place and takes all that are; none when ctx has ended.
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

// passes tells whether what failed may go well later.
func passes(err error) bool {
	var e *Error
	return !errors.As(err, &e) || e.RetryAfter > 0 || e.Code == CodeQueueElsewhere || e.Code == CodeStoreUnavailable
}

// handle has one record worked on, and answers for it.
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
	defer release() // also of a handler that ends its goroutine, and so never returns
	err := w.Handle(work, m)
	lost := context.Cause(work)
	release()
	if lost != nil {
		w.Logger.Warn("a record went to another worker before its handler was done", "offset", m.Offset, "partition", m.Partition, "attempt", m.Attempt)
		return
	}
	w.answer(ctx, m, err)
}

// keep extends the lease until the work is done.
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
			// It may still be ours: who takes it is told of by the next answer.
			w.Logger.Warn("a lease was not extended; trying again", "err", err, "left", time.Until(ends).Round(time.Millisecond))
			pause = min(w.Lease/10, time.Second)
		}
	}
}

// answer says what became of a record, again and again until that is known.
func (w *Worker) answer(ctx context.Context, m Message, failure error) {
	ctx, cancel := context.WithTimeout(ctx, w.Lease)
	defer cancel()
	for pause := workerRetryMin; ; pause = min(2*pause, workerRetryMax) {
		err := w.say(ctx, m, failure)
		if err == nil {
			return
		}
		if !passes(err) && OutcomeOf(err) != Unknown || ctx.Err() != nil {
			w.Logger.Warn("could not tell the queue the outcome of a record", "offset", m.Offset, "partition", m.Partition, "attempt", m.Attempt, "err", err)
			return
		}
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
