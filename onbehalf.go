package seb

import (
	"context"
	"time"

	"github.com/simple-event-broker/seb/internal/auth"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

type accessKey struct{}

// WithAccess returns a context for requests of a caller with the given access. A change that is
// requested with this context, or with one derived from it, happens only if the access is still
// valid when the broker builds the commit: the API key exists and has not expired, or no key is
// needed because the log still has never had one. Otherwise the change fails with
// [CodeUnauthorized] and the outcome [NotCommitted]. If the context of a change has no access, the
// program itself requests the change, and the change is always allowed.
//
// An adapter calls WithAccess in one place: right after [Broker.Authenticate].
func WithAccess(ctx context.Context, a Access) context.Context {
	return context.WithValue(ctx, accessKey{}, a.caller())
}

// WithArrival returns a context for a write. The function arrived returns the time when the client
// requested the write: [Options.AppendTimeout] counts from that time. An adapter passes the context
// to [Broker.Authenticate] and then to the write, so that the timeout includes both. The broker may
// call arrived until the write has returned.
func WithArrival(ctx context.Context, arrived func() time.Time) context.Context {
	return engine.WithArrival(ctx, arrived)
}

// caller is the part of an [Access] that decides whether the access is still valid. It is small,
// because every waiting request keeps one.
type caller struct {
	key    KeyID     // id of the caller's API key; 0 if the caller has none
	until  time.Time // when the access expires; zero means never
	open   bool      // the caller has no key, and needs none until the log has its first key
	admin  bool      // the caller has the scope admin, or needs none
	signed bool      // the caller has a signed URL, which expires before the API key that signed the URL
}

func (a Access) caller() caller {
	return caller{key: a.Key.ID, until: a.Until, open: a.open, admin: a.admin(), signed: a.Topic != "" && !a.Until.Equal(a.Key.Expires)}
}

// callerOf returns the caller that [WithAccess] has put into ctx; ok is false if ctx has no caller.
func callerOf(ctx context.Context) (c caller, ok bool) {
	c, ok = ctx.Value(accessKey{}).(caller)
	return c, ok
}

// CheckAccess returns an error with [CodeUnauthorized] if an access that [Broker.Authenticate] returned
// is no longer valid. An adapter calls CheckAccess when time has passed since Authenticate, for
// example because a request body came slowly. Like the answer of Authenticate, the answer rests on a
// sync that is no older than [Options.StaleMax]; while the store can't be reached, it rests on what
// the broker knows.
func (b *Broker) CheckAccess(ctx context.Context, a Access) (err error) {
	defer writes(&err)
	if err := b.engine.Usable(); err != nil {
		return err
	}
	if err := a.holds(b.engine); err != nil {
		return err
	}
	if b.engine.Fresh() {
		return nil
	}
	if err := b.engine.SyncIfOld(ctx); err != nil {
		return err
	}
	return a.holds(b.engine)
}

// holds returns an error if the access is no longer valid in the state. It does not sync.
func (a Access) holds(e *engine.Engine) (err error) {
	e.View(func(s *state.State) { err = a.caller().May(s, e.StoreNow()) })
	return err
}

// callersOf returns the caller that [WithAccess] has put into ctx; an empty list if ctx has no caller.
func callersOf(ctx context.Context) []engine.Caller {
	if c, ok := callerOf(ctx); ok {
		return []engine.Caller{c}
	}
	return nil
}

// May implements engine.Caller. It need not check scopes and topics again: a key never changes
// until it is revoked.
func (c caller) May(in engine.Keyring, now time.Time) error {
	switch {
	case c.open && in.NextKeyID() == 1:
		return nil
	case c.open:
		return needsKey()
	case !in.HasKey(c.key):
		return unauthorized("the API key was revoked", "use another API key")
	case !c.until.IsZero() && !now.Before(c.until):
		return expiredAt(c.signed, c.until)
	}
	return nil
}

// Who implements engine.Caller.
func (c caller) Who() (format.KeyID, bool, time.Time) { return c.key, c.open, c.until }

// While returns a context for work that goes on long after the caller was authenticated. The
// context ends when ctx ends, when the access expires, or when this broker learns that the access's
// API key was revoked. In the last two cases the context's cause is an [Error] with
// [CodeUnauthorized]. The caller calls leave when the work is done.
func (b *Broker) While(ctx context.Context, a Access) (_ context.Context, leave context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	remove := b.accesses.Add(a.Key.ID, end)
	if err := a.holds(b.engine); err != nil {
		end(err)
	}
	cancel := func() {}
	if !a.Until.IsZero() {
		ctx, cancel = context.WithTimeoutCause(ctx, a.Until.Sub(b.engine.StoreNow()), expired(a))
	}
	return ctx, func() {
		remove()
		cancel()
		end(nil)
	}
}

// accessWatches has the contexts that [Broker.While] returned; key 0 stands for accesses without a key. When an
// API key is revoked, the contexts of its accesses end.
type accessWatches struct{ auth.Watches[KeyID] }

// Applying implements engine.Observer.
func (w *accessWatches) Applying([]format.Entry, state.Moment) {}

// Applied implements engine.Observer.
func (w *accessWatches) Applied(s *state.State, entries []format.Entry, _ state.Moment) {
	for _, e := range entries {
		switch e.(type) {
		case *format.KeyCreated, *format.KeyRevoked:
			w.Loaded(s)
			return
		}
	}
}

// Loaded implements engine.Observer.
func (w *accessWatches) Loaded(s *state.State) {
	w.End(func(key KeyID) error {
		// The field until stays zero: when an access expires, the deadline of the watched context ends that context.
		return caller{key: key, open: key == 0}.May(s, time.Time{})
	})
}
