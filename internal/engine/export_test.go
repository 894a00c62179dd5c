package engine

import (
	"context"
	"errors"

	"github.com/simple-event-broker/seb/internal/collect"
)

// Collect deletes what may be deleted now. It returns an error if a job that a commit has begun is still at it.
func (e *Engine) Collect(ctx context.Context) (collect.Result, error) {
	c := &e.collector
	if err := e.Usable(); err != nil {
		return collect.Result{}, err
	}
	if !c.busy.CompareAndSwap(false, true) {
		return collect.Result{}, errCollecting
	}
	defer c.busy.Store(false)
	plan := e.planCollection()
	if plan == nil {
		return collect.Result{}, nil
	}
	r, err := e.deleteDead(ctx, plan)
	if err != nil {
		e.collectFailed(err)
	}
	return r, err
}

var errCollecting = errors.New("the broker is deleting dead objects already")

// Ahead returns for how many readers the engine knows where they go on, how many bytes are read ahead for them, and how many requests
// for that are under way.
func (e *Engine) Ahead() (readers int, bytes int64, requests int) {
	e.ahead.mu.Lock()
	defer e.ahead.mu.Unlock()
	return len(e.ahead.readers), e.ahead.bytes, e.ahead.requests
}

// CachedEntries returns how many batches and parts of tables are in memory.
func (e *Engine) CachedEntries() int { return e.cache.Stats().MemoryEntries }
