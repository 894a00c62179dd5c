package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

// Fail returns an error and does not execute the request.
func Fail(_ context.Context, request Request, _ Next) (Answer, error) {
	return Answer{}, injected(request, "refused")
}

// LoseReply executes the request and returns an error, whatever the result.
func LoseReply(ctx context.Context, request Request, next Next) (Answer, error) {
	if _, err := next(ctx, request); err != nil {
		return Answer{}, injected(request, "reply lost, which was "+err.Error())
	}
	return Answer{}, injected(request, "reply lost, which was success")
}

// Delay executes the request after d, or returns an error if ctx ends before that.
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

// Hold executes the request once release is closed or sends a value. It returns an error if ctx
// ends before that.
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

// HoldReply executes the request at once, and returns its result once release is closed or sends a
// value. It returns an error if ctx ends before that.
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

// Truncate makes a Get return only the first n bytes of its range.
func Truncate(n int) Fault {
	return changeBody(func(body []byte) []byte { return body[:min(n, len(body))] })
}

// FlipByte inverts every bit of byte i in the bytes that a Get returns. A negative i counts from the
// end. A body without a byte i stays unchanged.
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

// ShiftTime adds the result of offset to the store's time in every answer that has a
// time.
func ShiftTime(offset func() time.Duration) Fault {
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		answer, err := next(ctx, request)
		if !answer.Time.IsZero() {
			answer.Time = answer.Time.Add(offset())
		}
		return answer, err
	}
}

// NoTime removes the store's time from every answer.
func NoTime(ctx context.Context, request Request, next Next) (Answer, error) {
	answer, err := next(ctx, request)
	answer.Time = time.Time{}
	return answer, err
}

// Times applies fault to the first n requests.
func Times(n int, fault Fault) Fault { return between(0, int64(n), fault) }

// After applies fault to all requests after the first n.
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

// Late executes requests after their callers have given up. It answers each request at once with an error,
// and executes the request when the test calls Release.
type Late struct {
	mu   sync.Mutex
	held []func() (Answer, error)
}

// Fault is the [Fault] that holds requests.
func (l *Late) Fault(ctx context.Context, request Request, next Next) (Answer, error) {
	late := request
	// The caller may reuse the memory of the parts once it has an answer.
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

// Release executes all held requests in the order in which they came, and returns the result of each: an
// error or nil. The callers of these requests have got an error long before.
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

// Slow returns a wrapper of store that waits for the time perRequest before it executes a request. In a test
// with testing/synctest this time is virtual.
func Slow(store objstore.Store, perRequest time.Duration) objstore.Store {
	f := NewFaulty(store)
	f.On("", "", Delay(perRequest))
	return f
}

// Full refuses to create objects that do not exist, as a store without room does, and executes all other
// requests.
func Full(ctx context.Context, request Request, next Next) (Answer, error) {
	if request.Verb != objstore.VerbCreate {
		return next(ctx, request)
	}
	if _, err := next(ctx, Request{Verb: objstore.VerbGet, Key: request.Key, N: 1}); !errors.Is(err, objstore.ErrNotFound) {
		return next(ctx, request)
	}
	return Answer{}, fmt.Errorf("create %s: %w", request.Key, &objstore.Failure{
		Detail: "no space left on device", Hint: "make room on the disk of the test", Full: true, Err: fmt.Errorf("%w: %w", objstore.ErrFull, ErrInjected),
	})
}
