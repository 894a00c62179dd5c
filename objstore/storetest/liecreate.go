package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

// The faults of this file are wrong answers of a store to Creates. Each replaces the
// store for the Creates that it gets, and passes all other requests on. b is the
// bucket beneath the faults. [Sometimes] makes a fault occasional, and Faulty.On
// lets it begin at some time, as when a gateway is upgraded.

// create returns a fault that calls a function instead of Create.
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

// Overwrite ignores the condition: a Create replaces the object, and answers
// success.
func Overwrite(b *Bucket) Fault {
	return create(b, func(_ context.Context, request Request, body []byte) error {
		b.Put(request.Key, body)
		return nil
	})
}

// OverwriteUnsaid replaces the object, and answers that it exists.
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

// OverwriteRacing replaces what was created less than window ago, and answers
// success: a store that checks conditions against an index that lags.
func OverwriteRacing(b *Bucket, window time.Duration) Fault {
	return create(b, func(_ context.Context, request Request, body []byte) error {
		if !b.put(request.Key, body, func(there version) bool { return now().Sub(there.at) < window }) {
			return exists(request)
		}
		return nil
	})
}

// AllWin answers success to every Create; the first one's bytes stay.
func AllWin(b *Bucket) Fault {
	return create(b, func(_ context.Context, request Request, body []byte) error {
		b.put(request.Key, body, never)
		return nil
	})
}

// Interleave overwrites a random part of the object with the bytes of a Create, and
// answers success.
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

// partial returns a body that is only partly written: a part of it, or its full
// length with zeros after the part.
func (d *dice) partial(body []byte, zeros bool) []byte {
	n := d.intN(len(body))
	if zeros {
		part := make([]byte, len(body))
		copy(part, body[:n])
		return part
	}
	return body[:n]
}

// Torn shows a part of the object, or zeros behind it, from the moment when a
// Create arrives, and all of it when it answers, which is d later. If its
// caller leaves before, the part stays.
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

// LeavePart writes a part of the object, or zeros behind it, and answers an
// error. The part is never completed.
func LeavePart(rng *rand.Rand, b *Bucket, zeros bool) Fault {
	dice := newDice(rng)
	return create(b, func(_ context.Context, request Request, body []byte) error {
		if !b.put(request.Key, dice.partial(body, zeros), never) {
			return exists(request)
		}
		return injected(request, "failed half way")
	})
}
