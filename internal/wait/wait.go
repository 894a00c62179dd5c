// Package wait waits until a time has passed or a context ends, whichever comes first.
package wait

import (
	"context"
	"time"
)

// For waits until the time d has passed or ctx ends.
func For(ctx context.Context, d time.Duration) { ForSignal(ctx, d, nil) }

// ForSignal waits until the time d has passed, ctx ends, or signal has an element, which ForSignal takes.
func ForSignal(ctx context.Context, d time.Duration, signal <-chan struct{}) {
	if d <= 0 { // often, so don't start a timer
		select {
		case <-signal:
		default:
		}
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-signal:
	}
}
