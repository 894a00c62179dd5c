package engine

import (
	"context"
	"errors"
	"time"
)

type arrivalKey struct{}

// WithArrival returns a context for a request. The function arrived returns when the request came. The
// engine gives up its work for the request once [Options].AppendTimeout has passed since then.
func WithArrival(ctx context.Context, arrived func() time.Time) context.Context {
	return context.WithValue(ctx, arrivalKey{}, arrived)
}

// arriving is a context that knows when its request came.
type arriving struct {
	context.Context //nolint:containedctx // it is a context itself
	at              time.Time
}

// Value implements [context.Context].
func (a *arriving) Value(key any) any {
	if key == (arrivalKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// Arriving returns a context which says that r comes now. If ctx already says when the request came,
// Arriving returns ctx. The new context is a field of r, which saves an allocation.
func (r *Request) Arriving(ctx context.Context) context.Context {
	if _, ok := arrivalIn(ctx); ok {
		return ctx
	}
	r.arriving = arriving{ctx, time.Now()}
	return &r.arriving
}

// arrivalIn returns when the request of ctx came; ok is false if ctx does not say when.
func arrivalIn(ctx context.Context) (at time.Time, ok bool) {
	switch a := ctx.Value(arrivalKey{}).(type) {
	case *arriving:
		return a.at, true
	case func() time.Time:
		return a(), true
	}
	return at, false
}

// arrivalOf returns when the request of ctx came. If ctx does not say when, arrivalOf returns the current
// time.
func arrivalOf(ctx context.Context) time.Time {
	if at, ok := arrivalIn(ctx); ok {
		return at
	}
	return time.Now()
}

// UntilLate returns a context that ends with ctx, or earlier if the request of ctx is late. A request is
// late once [Options].AppendTimeout has passed since it came; then ErrOf returns a *LateError. If ctx does
// not say when its request came, UntilLate returns ctx.
func (e *Engine) UntilLate(ctx context.Context) (context.Context, context.CancelFunc) {
	at, ok := arrivalIn(ctx)
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, at.Add(e.opts.AppendTimeout), e.late())
}

// ErrOf takes a context that UntilLate has returned. It returns why that context has ended.
func ErrOf(ctx context.Context) error {
	if late, ok := errors.AsType[*LateError](context.Cause(ctx)); ok {
		return late
	}
	return ctx.Err()
}

func (e *Engine) late() *LateError {
	return &LateError{Within: e.opts.AppendTimeout, Err: e.StoreErr()}
}
