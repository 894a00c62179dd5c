package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

// LagGet answers Gets from what the bucket held lag ago: 404 for what is newer,
// the older version of what was overwritten, and what was deleted since.
func LagGet(b *Bucket, lag time.Duration) Fault {
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		if request.Verb != objstore.VerbGet {
			return next(ctx, request)
		}
		o, err := b.getAsOf(ctx, now().Add(-lag), request.Key, request.Off, request.N)
		return Answer{Time: o.Time, Body: o.Body, Size: o.Size}, err
	}
}

// LagList answers Lists from what the bucket held lag ago: without what is
// newer, and with what was deleted since.
func LagList(b *Bucket, lag time.Duration) Fault {
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		if request.Verb != objstore.VerbList {
			return next(ctx, request)
		}
		p, err := b.listAsOf(ctx, now().Add(-lag), request.Key, request.After, request.Limit)
		return Answer{Time: p.Time, Keys: p.Keys, More: p.More}, err
	}
}

// changeList makes a fault of a change to the answers of Lists.
func changeList(change func(*Answer)) Fault {
	return func(ctx context.Context, request Request, next Next) (Answer, error) {
		answer, err := next(ctx, request)
		if request.Verb == objstore.VerbList && err == nil {
			change(&answer)
		}
		return answer, err
	}
}

// ShuffleList answers Lists in no order.
func ShuffleList(rng *rand.Rand) Fault {
	d := newDice(rng)
	return changeList(func(a *Answer) { d.shuffle(a.Keys) })
}

// SkipInList leaves n keys that stand together out of every page, from a random
// one on.
func SkipInList(rng *rand.Rand, n int) Fault {
	d := newDice(rng)
	return changeList(func(a *Answer) {
		if len(a.Keys) > 0 {
			from := d.intN(len(a.Keys))
			a.Keys = slices.Delete(a.Keys, from, min(from+n, len(a.Keys)))
		}
	})
}

// SkipFirstInList leaves the first key of every page out, as a store does that
// loses the key at which a page was cut.
func SkipFirstInList() Fault {
	return changeList(func(a *Answer) { a.Keys = a.Keys[min(1, len(a.Keys)):] })
}

// RepeatInList has every page hold a random one of its keys twice.
func RepeatInList(rng *rand.Rand) Fault {
	d := newDice(rng)
	return changeList(func(a *Answer) {
		if len(a.Keys) > 0 {
			i := d.intN(len(a.Keys))
			a.Keys = slices.Insert(a.Keys, i, a.Keys[i])
		}
	})
}

// EndListEarly answers at most n keys and says that there are no more.
func EndListEarly(n int) Fault {
	return changeList(func(a *Answer) { a.Keys, a.More = a.Keys[:min(n, len(a.Keys))], false })
}

// EndlessList says that every page has a next one, and begins each at the start
// again, whatever it is to come after.
func EndlessList(ctx context.Context, request Request, next Next) (Answer, error) {
	if request.Verb != objstore.VerbList {
		return next(ctx, request)
	}
	request.After = ""
	answer, err := next(ctx, request)
	answer.More = true
	return answer, err
}

// Elsewhere executes requests on another store, as when a name comes to point
// at a copy of the bucket.
func Elsewhere(store objstore.Store) Fault {
	return func(ctx context.Context, request Request, _ Next) (Answer, error) {
		return execute(ctx, store, request)
	}
}
