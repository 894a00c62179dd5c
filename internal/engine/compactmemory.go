package engine

import (
	"context"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/state"
)

// A job of compaction takes its memory from the budget before it reads anything, and gives it back before it commits. It frees each
// batch of the tail once the segment has it. So a job takes as much memory as its inputs and the rows that describe them.

const (
	// rowMemory bounds the memory in bytes that a job takes for a batch of the tail, or for a range of a segment, in addition to
	// the batch.
	rowMemory = 256
	// rowShare: a job has at most one row for each so many bytes of the budget.
	rowShare = 2 << 10
	// A job reads the batches of other segments in windows. All windows together have an eighth of the bytes of a job, within
	// these bounds for each.
	inputWindowMin, inputWindowMax = 16 << 10, 1 << 20
	// tableMemory is what a job keeps of the table of locations of a segment: a block, and the index.
	tableMemory = 64 << 10
	// jobStale is how long a job may wait for memory before another broker has probably done it, or part of it.
	jobStale = time.Second
)

// bounded returns the bounds of a job for which the budget has some bytes.
func bounded(o state.PlanOptions, memory int64) state.PlanOptions {
	o.Bytes = min(o.Bytes, memory/2)
	o.Rows = min(o.Rows, int(memory/4/rowMemory))
	return o
}

// inputs returns how many other segments a job reads at once.
func inputs(plan *state.Plan) int64 {
	from := map[uint64]struct{}{} // fewer than plan.Inputs if the job is a part of a merge
	for _, r := range plan.Ranges {
		for _, n := range r.Segments {
			from[n.Number] = struct{}{}
		}
	}
	return int64(min(len(from), compactTables))
}

// inputWindow returns the size of the windows in which a job reads so many other segments.
func inputWindow(plan *state.Plan, inputs int64) int64 {
	return min(max(plan.Bytes/8/max(inputs, 1), inputWindowMin), inputWindowMax)
}

// jobMemory returns how many bytes a job takes.
func jobMemory(plan *state.Plan) int64 {
	from := inputs(plan)
	n := plan.Bytes + from*(inputWindow(plan, from)+tableMemory)
	for _, r := range plan.Ranges {
		n += int64(max(len(r.Batches), 1)) * rowMemory
	}
	return n
}

// takeJob takes the memory of a job from the budget. If the budget has less, or if the job had to wait, takeJob returns the job that
// is due then, and which fits; nil if there is no such job.
func (e *Engine) takeJob(ctx context.Context, plan *state.Plan, loads uint64) (*state.Plan, uint64, func(), error) {
	begun := time.Now()
	need := jobMemory(plan)
	// Half of the memory is for batches. A merge can't do with less than all its windows.
	got, err := e.budget.TakeForJob(ctx, need, max(e.budget.JobLeast(), 2*inputs(plan)*(inputWindowMin+tableMemory)))
	if err != nil {
		return nil, 0, nil, err
	}
	release := e.releaseJob(got)
	if got >= need && time.Since(begun) < jobStale {
		return plan, loads, release, nil
	}
	e.View(func(s *state.State) { plan, loads = e.plan(s, bounded(e.planOptions(), got)), e.loads })
	if plan == nil {
		release()
		return nil, 0, nil, nil
	}
	if need = jobMemory(plan); need <= got {
		return plan, loads, release, nil
	}
	// One commit, or one part of another segment, takes more than that. If it takes more than any job may, it has to be done anyway.
	release()
	if got, err = e.budget.TakeForJob(ctx, need, need); err != nil {
		return nil, 0, nil, err
	}
	return plan, loads, e.releaseJob(got), nil
}

func (e *Engine) releaseJob(n int64) func() {
	return sync.OnceFunc(func() { e.budget.Give(budget.Jobs, n) })
}
