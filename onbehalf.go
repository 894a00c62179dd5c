package seb

import (
	"context"
	"time"
)

type accessKey struct{}

// WithAccess returns a context for what the bearer of a asks for. Everything that a
// [Broker] is asked to change with this context, or one made from it, happens only if a
// still holds when the broker builds the commit: a's API key exists and has not expired, or
// the log still has no key at all. Otherwise the change fails with [CodeUnauthorized] and
// the outcome [NotCommitted]. Without an access in its context a change is the program's
// own, and always allowed.
//
// An adapter calls it in one place: right after [Broker.Authenticate].
func WithAccess(ctx context.Context, a Access) context.Context {
	return context.WithValue(ctx, accessKey{}, a)
}

// accessOf returns the access that [WithAccess] has put into ctx; nil if there is none.
func accessOf(ctx context.Context) *Access {
	if a, ok := ctx.Value(accessKey{}).(Access); ok {
		return &a
	}
	return nil
}

// CheckAccess returns an error with [CodeUnauthorized] if a, which [Broker.Authenticate]
// gave, holds no longer. An adapter asks when the caller may have kept it waiting since, as
// with a body that came slowly. How current the answer is, and what it is while the store
// can't be reached, is as with [Broker.Authenticate].
func (b *Broker) CheckAccess(ctx context.Context, a Access) error {
	if err := b.usable(); err != nil {
		return err
	}
	if err := b.holdsNow(a); err != nil {
		return err
	}
	if b.fresh() {
		return nil
	}
	if err := b.freshen(ctx); err != nil {
		return notSent(err)
	}
	return b.holdsNow(a)
}

func (b *Broker) holdsNow(a Access) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if e := a.holds(b.state, time.Now()); e != nil {
		return e
	}
	return nil
}

// keyring is what an access is held against: the state, or the draft of a commit.
type keyring interface {
	NextKeyID() uint64
	HasKey(id uint64) bool
}

// holds returns why a has ended: keys never change until they are revoked, so whatever a
// allowed at first it allows until then.
func (a Access) holds(in keyring, now time.Time) *Error {
	switch {
	case a.open && in.NextKeyID() == 1:
		return nil
	case a.open:
		return needsKey()
	case !in.HasKey(a.Key.ID):
		return unauthorized("the API key was revoked", "get a new one")
	case !a.Until.IsZero() && !now.Before(a.Until):
		return expired(a)
	}
	return nil
}
