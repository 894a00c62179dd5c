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
