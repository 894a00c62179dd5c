// Package wait waits until a time has passed or a context ends, whichever comes first.
package wait

import (
	"context"
	"time"
)

// For waits until the time d has passed or ctx ends.
func For(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
