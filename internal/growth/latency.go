package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// latencies holds how long the requests of a load took, and how many failed.
type latencies struct {
	took   []time.Duration
	failed int
	first  error // the first failure
	over   time.Duration
}

// load runs workers, each of which calls do again and again until the time during has passed. do gets the
// number of the worker, and the number of calls that this worker has made before.
func load(ctx context.Context, workers int, during time.Duration, do func(ctx context.Context, worker, call int) error) latencies {
	var mu sync.Mutex
	var all latencies
	var wg sync.WaitGroup
	began := time.Now()
	for worker := range workers {
		wg.Go(func() {
			for call := 0; time.Since(began) < during && ctx.Err() == nil; call++ {
				sent := time.Now()
				err := do(ctx, worker, call)
				took := time.Since(sent)
				mu.Lock()
				if err == nil {
					all.took = append(all.took, took)
				} else {
					all.failed++
					if all.first == nil {
						all.first = err
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	all.over = time.Since(began)
	slices.Sort(all.took)
	return all
}

// each calls do with every i from 0 to n-1, from several goroutines. It stops when a call fails.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	const workers = 32
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := worker; i < n && ctx.Err() == nil; i += workers {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (l latencies) at(share float64) time.Duration {
	if len(l.took) == 0 {
		return 0
	}
	return l.took[min(len(l.took)-1, int(share*float64(len(l.took))))]
}

// and returns the latencies of l and of more together.
func (l latencies) and(more latencies) latencies {
	took := slices.Concat(l.took, more.took)
	slices.Sort(took)
	return latencies{took: took, failed: l.failed + more.failed, first: cmp.Or(l.first, more.first), over: l.over + more.over}
}

func (l latencies) rate() float64 { return float64(len(l.took)) / l.over.Seconds() }

// figures returns the median, the 99th percentile and the rate as texts, and the failures if there were any.
func (l latencies) figures() []string {
	figures := []string{
		fmt.Sprintf("p50 %.1f ms", float64(l.at(0.50))/1e6),
		fmt.Sprintf("p99 %.1f ms", float64(l.at(0.99))/1e6),
		fmt.Sprintf("%.0f/s", l.rate()),
	}
	if l.failed > 0 {
		figures = append(figures, fmt.Sprintf("%d failed: %.200v", l.failed, l.first))
	}
	return figures
}
