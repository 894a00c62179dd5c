package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
)

// Sometimes applies fault to each request with probability p.
func Sometimes(rng *rand.Rand, p float64, fault Fault) Fault {
	d := newDice(rng)
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		if d.hits(p) {
			return fault(ctx, request, next)
		}
		return next(ctx, request)
	}
}

// dice is a random number generator that is safe for concurrent use.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice(rng *rand.Rand) *dice {
	return &dice{rng: rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))}
}

// hits returns true with probability p.
func (d *dice) hits(p float64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.Float64() < p
}

// intN returns a random number from 0 to n-1; 0 if n is 0.
func (d *dice) intN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(max(n, 1))
}

// shuffle puts keys in a random order that is not the sorted one, if there are two or more keys.
func (d *dice) shuffle(keys []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	if len(keys) > 1 && slices.IsSorted(keys) {
		keys[0], keys[1] = keys[1], keys[0]
	}
}
