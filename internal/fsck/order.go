package fsck

import (
	"context"
	"iter"
	"sync"
)

// inOrder calls work for each job, several at once, and passes the results to done, one by one in
// the order of the jobs. When all calls of work have returned, inOrder returns the first error of done, or
// the error of ctx.
func inOrder[J, R any](ctx context.Context, jobs iter.Seq[J], work func(context.Context, J) R, done func(R) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	pending := make(chan chan R, workers-1) // minus 1, since the loop below waits for one more job's result
	all.Go(func() {
		defer close(pending)
		for job := range jobs {
			result := make(chan R, 1)
			select {
			case pending <- result:
			case <-ctx.Done():
				return
			}
			all.Go(func() { result <- work(ctx, job) })
		}
	})
	for result := range pending {
		if err := done(<-result); err != nil {
			return err
		}
	}
	return ctx.Err()
}
