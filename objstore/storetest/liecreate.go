package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

// The faults of this file are Creates that break the promises of [objstore.Store]: a "lie" is such a wrong
// Create. A fault executes each Create itself, in the bucket b, and passes all other requests to the store.
// With [Sometimes] only some Creates are wrong. A test that calls [Faulty.On] in the middle of its run makes
// the store wrong from that moment on, like a gateway after an upgrade.

// create returns a fault that calls lie instead of the store's Create.
func create(b *Bucket, lie func(ctx context.Context, request Request, body []byte) error) Fault {
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		if request.Verb != objstore.VerbCreate {
			return next(ctx, request)
		}
		if err := begin(ctx, request.Verb, request.Key); err != nil {
			return Answer{}, err
		}
		err := lie(ctx, request, joined(request.Parts))
		return Answer{Time: now()}, err
	}
}

func exists(request Request) error {
	return fmt.Errorf("create %s: %w", request.Key, objstore.ErrExists)
}

// Overwrite makes a Create replace an existing object and return success.
func Overwrite(b *Bucket) Fault {
	return create(b, func(_ context.Context, request Request, body []byte) error {
		b.Put(request.Key, body)
		return nil
	})
}

// OverwriteUnsaid makes a Create replace an existing object, but return that the object exists.
func OverwriteUnsaid(b *Bucket) Fault {
	return create(b, func(_ context.Context, request Request, body []byte) error {
		taken := !b.put(request.Key, body, never)
		if taken {
			b.Put(request.Key, body)
			return exists(request)
		}
		return nil
	})
}

// OverwriteRacing makes a Create replace an object that was created less than window ago, and return
// success, like a store that checks conditions against an index that lags.
func OverwriteRacing(b *Bucket, window time.Duration) Fault {
	return create(b, func(_ context.Context, request Request, body []byte) error {
		if !b.put(request.Key, body, func(there version) bool { return now().Sub(there.at) < window }) {
			return exists(request)
		}
		return nil
	})
}

// AllWin makes every Create return success, but only the first Create of a key writes its bytes.
func AllWin(b *Bucket) Fault {
	return create(b, func(_ context.Context, request Request, body []byte) error {
		b.put(request.Key, body, never)
		return nil
	})
}

// Interleave makes a Create overwrite a random part of an existing object with bytes of the new object, and
// return success.
func Interleave(rng *rand.Rand, b *Bucket) Fault {
	d := newDice(rng)
	return create(b, func(_ context.Context, request Request, body []byte) error {
		if there := b.Body(request.Key); there != nil {
			mixed := joined([][]byte{there})
			from := d.intN(len(mixed))
			copy(mixed[from:], body[min(from, len(body)):min(len(body), from+1+d.intN(len(mixed)-from))])
			body = mixed
		}
		b.Put(request.Key, body)
		return nil
	})
}

// partial returns the beginning of body, as if only a part was written. If zeros is true, it adds zeros up
// to the length of body.
func (d *dice) partial(body []byte, zeros bool) []byte {
	n := d.intN(len(body))
	if zeros {
		part := make([]byte, len(body))
		copy(part, body[:n])
		return part
	}
	return body[:n]
}

// Torn makes a Create write only the beginning of the object at first, followed by zeros if zeros is true.
// After d the Create writes the whole object and returns. If ctx ends before that, only the beginning is
// left.
func Torn(rng *rand.Rand, b *Bucket, d time.Duration, zeros bool) Fault {
	dice := newDice(rng)
	return create(b, func(ctx context.Context, request Request, body []byte) error {
		if !b.put(request.Key, dice.partial(body, zeros), never) {
			return exists(request)
		}
		select {
		case <-time.After(d):
			b.Put(request.Key, body)
			return nil
		case <-ctx.Done():
			return injected(request, "cut off: "+ctx.Err().Error())
		}
	})
}

// LeavePart makes a Create write only the beginning of the object, followed by zeros if zeros is true, and
// return an error. Nothing completes the object later.
func LeavePart(rng *rand.Rand, b *Bucket, zeros bool) Fault {
	dice := newDice(rng)
	return create(b, func(_ context.Context, request Request, body []byte) error {
		if !b.put(request.Key, dice.partial(body, zeros), never) {
			return exists(request)
		}
		return injected(request, "failed half way")
	})
}
