package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

// The faults of this file answer Creates wrongly. Each executes Creates itself, instead of the
// store, and passes all other requests on. b is the bucket below the faults. [Sometimes]
// makes a fault occasional. A test that calls [Faulty.On] late makes a fault begin at that time, as
// after the upgrade of a gateway.

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

// Overwrite ignores the condition: a Create replaces an existing object, and returns
// success.
func Overwrite(b *Bucket) Fault {
	return create(b, func(_ context.Context, request Request, body []byte) error {
		b.Put(request.Key, body)
		return nil
	})
}

// OverwriteUnsaid replaces an existing object, but returns that the object exists.
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

// OverwriteRacing replaces an object that was created less than window ago, and returns
// success, like a store that checks conditions against an index that lags.
func OverwriteRacing(b *Bucket, window time.Duration) Fault {
	return create(b, func(_ context.Context, request Request, body []byte) error {
		if !b.put(request.Key, body, func(there version) bool { return now().Sub(there.at) < window }) {
			return exists(request)
		}
		return nil
	})
}

// AllWin returns success for every Create, but only the first Create of a key writes its bytes.
func AllWin(b *Bucket) Fault {
	return create(b, func(_ context.Context, request Request, body []byte) error {
		b.put(request.Key, body, never)
		return nil
	})
}

// Interleave overwrites a random part of an existing object with the bytes of a Create, and
// returns success.
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

// partial returns the beginning of body, as if only a part was written. If zeros is set, zeros
// follow it up to body's length.
func (d *dice) partial(body []byte, zeros bool) []byte {
	n := d.intN(len(body))
	if zeros {
		part := make([]byte, len(body))
		copy(part, body[:n])
		return part
	}
	return body[:n]
}

// Torn writes only the beginning of the object, followed by zeros if zeros is set, when a Create
// arrives. After d it writes the whole object and returns. If ctx ends before that, only the
// beginning is left.
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

// LeavePart writes only the beginning of the object, followed by zeros if zeros is set, and returns
// an error. Nothing completes the object later.
func LeavePart(rng *rand.Rand, b *Bucket, zeros bool) Fault {
	dice := newDice(rng)
	return create(b, func(_ context.Context, request Request, body []byte) error {
		if !b.put(request.Key, dice.partial(body, zeros), never) {
			return exists(request)
		}
		return injected(request, "failed half way")
	})
}
