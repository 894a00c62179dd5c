package budget

import (
	"context"
	"errors"
	"time"
)

// A job in the background, such as compaction, gives way to everything that somebody waits for: it gets memory that is free while
// nobody else waits. It waits for all that it would like, then goes on with what there is. If even the least that it can work with
// is not free for long, the budget gives it that before others.

const (
	// jobWait is how long a job waits for as much as it would like to have.
	jobWait = 10 * time.Second
	// jobPatience is how long it then waits for the least that it can work with.
	jobPatience = 20 * time.Second
	// jobRoom is the part of the budget, in sixteenths, that a job may fill: callers find some room when the job has begun.
	jobRoom = 14
)

// JobLeast returns how many bytes a job gets in the end, whatever else the budget is used for.
func (b *Budget) JobLeast() int64 { return b.limit / 32 }

// JobMost returns the most bytes that a job can get.
func (b *Budget) JobMost() int64 { return b.max(Jobs) }

// TakeForJob takes up to want bytes, and at least least bytes, for a job; the caller gives them back with the class [Jobs]. If least
// is at most [Budget.JobLeast], it returns an error only if ctx ends; otherwise it returns a [*FullError] if so much is not free for
// long. A job takes memory once, before it begins: while it has some, it must not wait for more of this class.
func (b *Budget) TakeForJob(ctx context.Context, want, least int64) (got int64, err error) {
	want = min(want, b.JobMost())
	least = min(least, want)
	err = b.takeWithin(ctx, Jobs, want, jobWait)
	if !isFull(err) {
		return want, err
	}
	if n := b.takeFree(want, least); n > 0 {
		return n, nil
	}
	err = b.takeWithin(ctx, Jobs, least, jobPatience)
	if !isFull(err) || least > b.JobLeast() {
		return least, err
	}
	return least, b.takeFirst(ctx, least)
}

func isFull(err error) bool {
	_, full := errors.AsType[*FullError](err)
	return full
}

// takeFree takes what a job may have now, up to want bytes; it returns 0 if that is less than least.
func (b *Budget) takeFree(want, least int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(want, b.of(jobRoom)-b.used)
	if n < least || n <= 0 || len(b.waiting[Jobs]) > 0 || !b.hasRoomForJobLocked(n) {
		return 0
	}
	b.takeLocked(Jobs, n)
	b.resize(b.limit - b.used)
	return n
}

// takeFirst takes n bytes before all others: they leave this many bytes free until then.
func (b *Budget) takeFirst(ctx context.Context, n int64) error {
	b.mu.Lock()
	b.urgent += n
	w := &waiter{n: n, ready: make(chan struct{})}
	b.waiting[Jobs] = append(b.waiting[Jobs], w)
	b.serveLocked()
	b.mu.Unlock()
	var err error
	select {
	case <-w.ready:
	case <-ctx.Done():
		err = b.leave(Jobs, w, ctx.Err())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.urgent -= n
	b.serveLocked()
	return err
}

// hasRoomForJobLocked tells whether a job may take n bytes now.
func (b *Budget) hasRoomForJobLocked(n int64) bool {
	if b.urgent > 0 {
		return b.used+n <= b.limit
	}
	return b.used+n <= b.of(jobRoom) && !b.othersWaitLocked()
}

// othersWaitLocked tells whether somebody who comes before jobs waits for free memory. A caller at a limit of its own waits for
// memory that others of its kind give back, which no job takes.
func (b *Budget) othersWaitLocked() bool {
	for c := range Jobs {
		if len(b.waiting[c]) > 0 && !b.atOwnLimitLocked(c, b.waiting[c][0].n) {
			return true
		}
	}
	for i := range b.shares {
		if s := &b.shares[i]; len(s.waiting) > 0 {
			if r := s.next(); r != nil && s.used+r.wants <= s.limit {
				return true
			}
		}
	}
	return false
}

// atOwnLimitLocked tells whether a class has so much that it could not take n bytes more however much memory was free.
func (b *Budget) atOwnLimitLocked(c Class, n int64) bool {
	switch c {
	case Adapters:
		return b.clientsLocked()+n > b.max(c)
	case Lists:
		return b.held[c]+n > b.max(c)
	case Fetches: // a fetch may exceed the class's quarter if no other fetch is under way
		return b.held[c] > 0 && b.held[c]+n > b.of(4)
	case Batches, More, Pushed, Jobs, classCount: // they have no such limit
	}
	return false
}

// clientsLocked returns how many bytes clients have, without those that pass through.
func (b *Budget) clientsLocked() int64 {
	return b.used - b.held[Batches] - b.held[Fetches] - b.held[Jobs]
}
