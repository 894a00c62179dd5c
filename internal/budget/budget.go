// Package budget decides how much of a broker's memory each caller may use, and which callers must
// wait. It only counts bytes: a caller takes bytes from the budget before it allocates memory, and
// gives the bytes back when it no longer needs the memory.
package budget

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// waitMax is how long a caller waits for room before it gets a [FullError].
const waitMax = 5 * time.Second

// Budget hands out a broker's memory. The cache uses the memory that is not handed out, and shrinks as soon
// as a caller takes some of that memory.
//
// A client that sends or reads slowly makes a broker hold memory for a long time. Such memory comes
// from shares: see [Reservation]. The shares, and what requests need in addition while they run (the
// class [More]), fill at most 15/16 of the budget. So there is room for batches whatever the load, and
// requests that wait for a commit can finish and give back their memory.
type Budget struct {
	limit  int64
	resize func(rest int64)

	mu      sync.Mutex
	used    int64
	held    [classCount]int64     // part of used, by class; does not include the bytes of shares
	urgent  int64                 // bytes that a job has waited for so long that others leave them free
	waiting [classCount][]*waiter // by class, in order of arrival
	shares  [ShareCount]share
}

// Class is the purpose for which a caller takes memory. It decides how far the caller may fill the budget.
// Callers of the same class get memory in order of arrival.
type Class int

// The classes.
const (
	Batches  Class = iota // records on their way into a commit; may fill the whole budget
	Fetches               // data that is being read from the store; may hold a quarter of the budget
	More                  // more memory for a request that holds some already; may fill the budget to 15/16, not counting Batches and Fetches
	Lists                 // the same in large pieces, such as for a list of records; may hold half of the budget, and fill it to 13/16, not counting Batches and Fetches
	Pushed                // records on their way to push targets; may fill the budget to 12/16
	Adapters              // the first memory of a request; may fill the budget to one half, not counting Batches and Fetches
	Jobs                  // work in the background: see TakeForJob
	classCount
)

// FullError says why a caller gets no memory: no room came while the caller waited, the caller asked for more
// than it can ever have, or the budget revoked the caller's reservation.
type FullError struct {
	Detail string // what is full, and its size
	Limit  int64  // size of the budget or the share, in bytes
}

func (e *FullError) Error() string { return e.Detail }

// waiter is a caller that waits for room.
type waiter struct {
	n     int64
	ready chan struct{}
}

// New returns a budget of limit bytes. Whenever the number of bytes that are not handed out changes, the
// budget calls resize with that number. resize must not call the budget, which holds its lock meanwhile.
func New(limit int64, resize func(rest int64)) *Budget {
	b := &Budget{limit: limit, resize: resize}
	for i := range b.shares {
		b.shares[i].setUp(Share(i), limit)
	}
	return b
}

// of returns n/16 of the budget.
func (b *Budget) of(n int64) int64 { return b.limit / 16 * n }

// max returns how many bytes a class may have while no other class and no share has any bytes.
func (b *Budget) max(c Class) int64 {
	switch c {
	case Adapters, Lists:
		return b.limit / 2
	case More:
		return b.of(15)
	case Pushed, Jobs:
		return b.of(12)
	default:
		return b.limit
	}
}

// hasRoomLocked tells whether a class may take n bytes now.
func (b *Budget) hasRoomLocked(c Class, n int64) bool {
	if c == Jobs {
		return b.hasRoomForJobLocked(n)
	}
	if b.used+b.urgent+n > b.limit {
		return false
	}
	clients := b.clientsLocked()
	fits := clients+b.held[Jobs]+n <= b.of(15)
	switch c {
	case Adapters:
		return fits && !b.atOwnLimitLocked(c, n)
	case More:
		return fits && clients+n <= b.max(c)
	case Lists:
		return fits && clients+n <= b.of(13) && !b.atOwnLimitLocked(c, n)
	case Pushed:
		return b.used+n <= b.max(c)
	default:
		return !b.atOwnLimitLocked(c, n)
	}
}

// Take takes n bytes. It waits up to 5 s for room, then returns a [*FullError]. If ctx ends first,
// it returns the context's error.
func (b *Budget) Take(ctx context.Context, c Class, n int64) error {
	return b.takeWithin(ctx, c, n, waitMax)
}

// takeWithin is [Budget.Take] that waits up to most.
func (b *Budget) takeWithin(ctx context.Context, c Class, n int64, most time.Duration) error {
	if n > b.max(c) {
		return b.refusal(n, c)
	}
	b.mu.Lock()
	if len(b.waiting[c]) == 0 && b.hasRoomLocked(c, n) {
		b.takeLocked(c, n)
		b.resize(b.limit - b.used)
		b.mu.Unlock()
		return nil
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	b.waiting[c] = append(b.waiting[c], w)
	b.mu.Unlock()

	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-w.ready:
		return nil
	case <-timer.C:
		return b.leave(c, w, b.refusal(n, c))
	case <-ctx.Done():
		return b.leave(c, w, ctx.Err())
	}
}

func (b *Budget) takeLocked(c Class, n int64) {
	b.used += n
	b.held[c] += n
}

// refusal says which part of the budget has no room.
func (b *Budget) refusal(n int64, c Class) error {
	most := b.max(c)
	what := "the memory budget"
	if most < b.limit {
		what = "the part of the memory that requests of this kind may take"
	}
	return &FullError{Detail: fmt.Sprintf("no room for %d bytes in %s (at most %d of %d bytes)", n, what, most, b.limit), Limit: b.limit}
}

// leave removes w from the waiters of class c and returns err. If w got its memory meanwhile, leave returns
// nil.
func (b *Budget) leave(c Class, w *waiter, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, x := range b.waiting[c] {
		if x == w {
			b.waiting[c] = append(b.waiting[c][:i], b.waiting[c][i+1:]...)
			b.serveLocked() // there may be room for the next waiter, if it needs fewer bytes than w
			return err
		}
	}
	return nil
}

// Give gives back n bytes that were taken for class c.
func (b *Budget) Give(c Class, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.held[c] -= n
	b.serveLocked()
}

func (b *Budget) serveLocked() {
	for c := range Jobs {
		b.serveClassLocked(c)
	}
	for i := range b.shares {
		b.serveShareLocked(&b.shares[i])
	}
	b.serveClassLocked(Jobs) // what is left
	b.resize(b.limit - b.used)
}

func (b *Budget) serveClassLocked(c Class) {
	for len(b.waiting[c]) > 0 && b.hasRoomLocked(c, b.waiting[c][0].n) {
		w := b.waiting[c][0]
		b.waiting[c] = b.waiting[c][1:]
		b.takeLocked(c, w.n)
		close(w.ready)
	}
}

// Hold is [Budget.Take]. The first call of release gives the bytes back; further calls do nothing.
func (b *Budget) Hold(ctx context.Context, c Class, n int64) (release func(), err error) {
	if err := b.Take(ctx, c, n); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { b.Give(c, n) }), nil
}

// InUse returns how many bytes are taken, including those of shares.
func (b *Budget) InUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Limit returns how many bytes the budget has.
func (b *Budget) Limit() int64 { return b.limit }
