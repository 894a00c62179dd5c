package storetest

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

// KeepDeleted returns success for every Delete, but deletes nothing.
func KeepDeleted(ctx context.Context, request Request, next Next) (Answer, error) {
	if request.Verb != objstore.VerbDelete {
		return next(ctx, request)
	}
	return Answer{Time: now()}, ctx.Err()
}

// DeleteForAWhile makes a Delete undo itself: after d it creates the object again, unless the key has
// another object by then.
func DeleteForAWhile(b *Bucket, d time.Duration) Fault {
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		body := b.Body(request.Key)
		answer, err := next(ctx, request)
		if request.Verb == objstore.VerbDelete && body != nil {
			time.AfterFunc(d, func() { b.put(request.Key, body, never) })
		}
		return answer, err
	}
}

// DeleteAnother makes a Delete remove a random object whose key begins with prefix, instead of the requested
// object.
func DeleteAnother(rng *rand.Rand, b *Bucket, prefix string) Fault {
	d := newDice(rng)
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		if keys := b.Keys(prefix); request.Verb == objstore.VerbDelete && len(keys) > 0 {
			request.Key = keys[d.intN(len(keys))]
		}
		return next(ctx, request)
	}
}
