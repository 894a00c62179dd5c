package seb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/state"
)

// dispatcher returns the queue's dispatcher. most is how many records the caller wants. If another
// broker owns the queue, dispatcher fails with CodeQueueElsewhere. If no broker owns it, this broker
// takes the queue over. dispatcher syncs before it refuses a queue that this broker does not know.
func (q *Queue) dispatcher(ctx context.Context, most int) (*dispatch.Dispatcher, error) {
	for synced := false; ; {
		d, owner, err := q.ownedHere()
		if code := CodeOf(err); !synced && (code == CodeTopicNotFound || code == CodeQueueNotFound) {
			if err := q.b.engine.Sync(ctx); err != nil {
				return nil, err
			}
			synced = true
			continue
		}
		if err != nil || d != nil {
			return d, err
		}
		if q.b.shutdown.Load() {
			return nil, engine.ErrClosed // after a shutdown began, the log does not learn which records this broker hands out: the next owner could not know them
		}
		if err := publicOwner(q.b.dispatchers.MayTake(owner, false), owner); err != nil {
			return nil, err
		}
		if err := q.takeOver(ctx, owner, false, most); err != nil {
			return nil, err
		}
	}
}

// ownedHere returns the queue's owner, and the queue's dispatcher; d is nil if this broker is not the owner.
func (q *Queue) ownedHere() (d *dispatch.Dispatcher, o dispatch.Owner, err error) {
	err = q.view(func(_ *state.State, _ *state.Topic, found *state.Queue) { d, o = q.b.dispatchers.Owner(found) })
	return d, o, err
}

// TakeOver makes this broker the queue's owner in place of the owner of the given epoch. The caller
// calls TakeOver when that owner did not answer a request. If the queue has another owner by now,
// TakeOver does nothing.
func (q *Queue) TakeOver(ctx context.Context, epoch Epoch) (err error) {
	defer reads(&err)
	if err := q.check(); err != nil {
		return err
	}
	d, o, err := q.ownedHere()
	if err != nil || d != nil || o.Epoch != epoch {
		return err // the queue was deleted, or has a new owner by now
	}
	if err := publicOwner(q.b.dispatchers.MayTake(o, true), o); err != nil {
		return err
	}
	return q.takeOver(ctx, o, true, 0)
}

// Owner syncs and returns the address and the epoch of the queue's owner. The address is "" if
// the queue has no owner or the owner has no address.
func (q *Queue) Owner(ctx context.Context) (address string, epoch Epoch, err error) {
	defer reads(&err)
	if err := cmp.Or(q.check(), q.b.engine.Sync(ctx)); err != nil {
		return "", 0, err
	}
	_, o, err := q.ownedHere()
	if err != nil || !o.Owned {
		return "", o.Epoch, err
	}
	return o.Address, o.Epoch, nil
}

// takeOver makes this broker the owner in place of o, unless the queue has another owner by now.
// If ctx ends or the store takes too long, takeOver returns, but the takeover goes on. deaf tells
// whether o did not answer a request; most is how many records the caller wants.
func (q *Queue) takeOver(ctx context.Context, o dispatch.Owner, deaf bool, most int) error {
	timed, cancel := context.WithTimeout(ctx, q.b.opts.AppendTimeout)
	defer cancel()
	err := q.b.dispatchers.TakeOver(timed, o, deaf, most)
	switch {
	case err == nil:
		return q.exists() // the queue may have been deleted meanwhile
	case errors.Is(err, dispatch.ErrClosed):
		return engine.ErrClosed
	case !errors.Is(err, dispatch.ErrUndecided):
		if failed, ok := errors.AsType[*dispatch.CommitError](err); ok {
			return failed.Err
		}
		return err
	case ctx.Err() != nil:
		return canceled(ctx.Err()).with(Unknown)
	default:
		return &Error{
			Code: CodeStoreUnavailable, Detail: fmt.Sprintf("this broker could not take over the queue: the store did not confirm the change within %v", q.b.opts.AppendTimeout),
			Outcome: Unknown, RetryAfter: time.Second, Err: q.b.engine.StoreErr(),
		}
	}
}

// publicOwner returns err unless err says that another broker owns the queue. In that case it returns
// an error with CodeQueueElsewhere. If this broker can ask the owner o, the error has o's address.
func publicOwner(err error, o dispatch.Owner) error {
	elsewhere, ok := errors.AsType[*dispatch.ElsewhereError](err)
	if !ok {
		return err
	}
	e := refused(CodeQueueElsewhere, "%v", elsewhere)
	e.Address, e.Session, e.Epoch = o.Address, SessionKey(o.Session), o.Epoch
	if elsewhere.Mute {
		e.Address, e.Session, e.RetryAfter = "", SessionKey{}, time.Second
		e.Hint = "try again after Retry-After seconds, or ask the other brokers; so that brokers forward requests to the queue's owner, give each broker an address that the others reach (seb serve --advertise)"
	}
	return e
}
