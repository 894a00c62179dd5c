package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

// LagGet answers each Get with the content that the bucket had lag ago: newer objects are not found,
// overwritten objects have their old bytes, and deleted objects are still found.
func LagGet(b *Bucket, lag time.Duration) Fault {
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		if request.Verb != objstore.VerbGet {
			return next(ctx, request)
		}
		o, err := b.getAsOf(ctx, now().Add(-lag), request.Key, request.Off, request.N)
		return Answer{Time: o.Time, Body: o.Body, Size: o.Size}, err
	}
}

// LagList answers each List with the content that the bucket had lag ago: without newer objects, and with
// objects that were deleted since.
func LagList(b *Bucket, lag time.Duration) Fault {
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		if request.Verb != objstore.VerbList {
			return next(ctx, request)
		}
		p, err := b.listAsOf(ctx, now().Add(-lag), request.Key, request.After, request.Limit)
		return Answer{Time: p.Time, Keys: p.Keys, More: p.More}, err
	}
}

// changeList returns a fault that applies change to the answers of Lists.
func changeList(change func(*Answer)) Fault {
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		answer, err := next(ctx, request)
		if request.Verb == objstore.VerbList && err == nil {
			change(&answer)
		}
		return answer, err
	}
}

// ShuffleList answers Lists in random order.
func ShuffleList(rng *rand.Rand) Fault {
	d := newDice(rng)
	return changeList(func(a *Answer) { d.shuffle(a.Keys) })
}

// SkipInList leaves n adjacent keys, which begin at a random key, out of every page.
func SkipInList(rng *rand.Rand, n int) Fault {
	d := newDice(rng)
	return changeList(func(a *Answer) {
		if len(a.Keys) > 0 {
			from := d.intN(len(a.Keys))
			a.Keys = slices.Delete(a.Keys, from, min(from+n, len(a.Keys)))
		}
	})
}

// SkipFirstInList leaves the first key of every page out, like a store that loses the key at
// the end of the previous page.
func SkipFirstInList() Fault {
	return changeList(func(a *Answer) { a.Keys = a.Keys[min(1, len(a.Keys)):] })
}

// RepeatInList repeats a random key of every page.
func RepeatInList(rng *rand.Rand) Fault {
	d := newDice(rng)
	return changeList(func(a *Answer) {
		if len(a.Keys) > 0 {
			i := d.intN(len(a.Keys))
			a.Keys = slices.Insert(a.Keys, i, a.Keys[i])
		}
	})
}

// EndListEarly returns at most n keys in a page, and says that the page is the last (More is
// false).
func EndListEarly(n int) Fault {
	return changeList(func(a *Answer) { a.Keys, a.More = a.Keys[:min(n, len(a.Keys))], false })
}

// EndlessList sets More to true in every page, and begins every page with the first key, whatever key the
// caller asks to start after.
func EndlessList(ctx context.Context, request Request, next Next) (Answer, error) {
	if request.Verb != objstore.VerbList {
		return next(ctx, request)
	}
	request.After = ""
	answer, err := next(ctx, request)
	answer.More = true
	return answer, err
}

// Elsewhere executes requests in another store, as if the bucket's name now referred to a copy of the
// bucket.
func Elsewhere(store objstore.Store) Fault {
	return func(ctx context.Context, request Request, _ Next) (Answer, error) {
		return execute(ctx, store, request)
	}
}
