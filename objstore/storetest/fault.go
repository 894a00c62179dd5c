package storetest

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

// Fail answers an error and never executes the request.
func Fail(_ context.Context, request Request, _ Next) (Answer, error) {
	return Answer{}, injected(request, "refused")
}

// LoseReply executes the request and answers an error, whatever its result.
func LoseReply(ctx context.Context, request Request, next Next) (Answer, error) {
	if _, err := next(ctx, request); err != nil {
		return Answer{}, injected(request, "reply lost, which was "+err.Error())
	}
	return Answer{}, injected(request, "reply lost, which was success")
}

// Delay executes the request d after it was made, unless its ctx ends before.
func Delay(d time.Duration) Fault {
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		select {
		case <-time.After(d):
			return next(ctx, request)
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
	}
}

// Hold executes the request once release is closed or gives a value, unless
// its ctx ends before.
func Hold(release <-chan struct{}) Fault {
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		select {
		case <-release:
			return next(ctx, request)
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
	}
}

// HoldReply executes the request and answers once release is closed or gives a
// value, or with an error if ctx ends before.
func HoldReply(release <-chan struct{}) Fault {
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		answer, err := next(ctx, request)
		select {
		case <-release:
			return answer, err
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
	}
}

// Truncate lets a Get answer at most n bytes.
func Truncate(n int) Fault {
	return changeBody(func(body []byte) []byte { return body[:min(n, len(body))] })
}

// FlipByte changes every bit of byte i that a Get answers, counted from the
// end if i is negative; bodies without such a byte stay as they are.
func FlipByte(i int) Fault {
	return changeBody(func(body []byte) []byte {
		at := i
		if at < 0 {
			at += len(body)
		}
		if 0 <= at && at < len(body) {
			body[at] ^= 0xff
		}
		return body
	})
}

func changeBody(change func([]byte) []byte) Fault {
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		answer, err := next(ctx, request)
		if request.Verb == objstore.VerbGet && err == nil {
			answer.Body = change(answer.Body)
		}
		return answer, err
	}
}

// ShiftTime adds what offset returns to the store's time in every answer that
// has one.
func ShiftTime(offset func() time.Duration) Fault {
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		answer, err := next(ctx, request)
		if !answer.Time.IsZero() {
			answer.Time = answer.Time.Add(offset())
		}
		return answer, err
	}
}

// NoTime takes the store's time out of every answer.
func NoTime(ctx context.Context, request Request, next Next) (Answer, error) {
	answer, err := next(ctx, request)
	answer.Time = time.Time{}
	return answer, err
}

// Times applies fault to the first n requests.
func Times(n int, fault Fault) Fault { return between(0, int64(n), fault) }

// After applies fault to all requests but the first n.
func After(n int, fault Fault) Fault { return between(int64(n), 1<<62, fault) }

func between(begin, end int64, fault Fault) Fault {
	var count atomic.Int64
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		if index := count.Add(1) - 1; index < begin || index >= end {
			return next(ctx, request)
		}
		return fault(ctx, request, next)
	}
}

// Late holds requests that their callers have given up: it answers each with an
// error at once, and executes it when the test calls Release.
type Late struct {
	mu   sync.Mutex
	held []func() (Answer, error)
}

// Fault is the [Fault] that holds requests.
func (l *Late) Fault(ctx context.Context, request Request, next Next) (Answer, error) {
	late := request
	// The caller may reuse its bytes once it has its answer.
	late.Parts = [][]byte{bytes.Join(request.Parts, nil)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = append(l.held, func() (Answer, error) { return next(context.WithoutCancel(ctx), late) })
	return Answer{}, injected(request, "timed out, but still under way")
}

// Held returns how many requests wait for Release.
func (l *Late) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

// Release executes all held requests in the order in which they came, and
// returns their results, which no caller gets.
func (l *Late) Release() []error {
	l.mu.Lock()
	held := l.held
	l.held = nil
	l.mu.Unlock()
	var outcomes []error
	for _, execute := range held {
		_, err := execute()
		outcomes = append(outcomes, err)
	}
	return outcomes
}

// Slow returns store with every request executed perRequest after it was made.
// It waits by the clock of the bubble in a testing/synctest test.
func Slow(store objstore.Store, perRequest time.Duration) objstore.Store {
	f := NewFaulty(store)
	f.On("", "", Delay(perRequest))
	return f
}
