package seb

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// SessionKey tells a session from all others, and is the Ed25519 public key by which it
// proves to be that one. A session is one start of a broker: [Open] makes its key pair, and
// the private half never leaves the process. Zero stands for no session.
//
// The log tells which sessions are of its brokers, and which one owns a queue. So brokers
// need no secret in common to believe each other, and a broker on a copy of the bucket is
// not believed, whatever history the copy has.
type SessionKey [32]byte

// session is this start of the broker.
type session struct {
	private ed25519.PrivateKey
	public  format.SessionKey
	naming  singleflight.Group
}

func (s *session) init() error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("make the session's key pair: %w", err)
	}
	s.private, s.public = private, format.SessionKey(public)
	return nil
}

// Session returns the broker's session.
func (b *Broker) Session() SessionKey { return SessionKey(b.session.public) }

// SessionSigner returns what signs in the name of the broker's session: an adapter proves
// with it to other brokers that it speaks for this one.
func (b *Broker) SessionSigner() crypto.Signer { return b.session.private }

// KnowsSession tells whether the log has named a session as one of its brokers. If it is not
// known here the log is synced first, once a second at most for all callers together, so that
// a stranger can't run up a bill.
func (b *Broker) KnowsSession(ctx context.Context, k SessionKey) (_ bool, err error) {
	defer reads(&err)
	if b.knowsSession(k) {
		return true, nil
	}
	if err := b.usable(); err != nil {
		return false, err
	}
	if err := b.syncShared(ctx); err != nil {
		return false, err
	}
	return b.knowsSession(k), nil
}

func (b *Broker) knowsSession(k SessionKey) bool {
	b.live.RLock()
	defer b.live.RUnlock()
	return b.live.State.KnowsSession(format.SessionKey(k))
}

// NameSession has the log name this broker's session, unless it has: other brokers believe
// it from then on. A broker does so before it asks another one for the first time. The
// commit goes on when the caller goes away.
func (b *Broker) NameSession(ctx context.Context) (err error) {
	defer writes(&err)
	if b.knowsSession(b.Session()) {
		return nil
	}
	if err := b.usable(); err != nil {
		return err
	}
	named := b.session.naming.DoChan("", func() (any, error) {
		return nil, b.join(b.life, &request{synced: true, change: func(*state.Draft) ([]format.Entry, *Error) {
			return []format.Entry{&format.SessionNamed{Session: b.session.public}}, nil
		}})
	})
	timer := time.NewTimer(b.opts.AppendTimeout)
	defer timer.Stop()
	select {
	case got := <-named:
		return got.Err
	case <-timer.C:
		return &Error{
			Code: CodeStoreUnavailable, Detail: fmt.Sprintf("could not commit this broker's session within %v", b.opts.AppendTimeout),
			Outcome: Unknown, RetryAfter: time.Second, Err: b.lastStoreError(),
		}
	case <-ctx.Done():
		return canceled(ctx).with(Unknown)
	}
}

// KnowOwner returns when this broker knows the owner of the queue with that epoch, or a later
// one, or has synced the log since the call: all callers share a sync a second.
func (q *Queue) KnowOwner(ctx context.Context, epoch uint64) (err error) {
	defer reads(&err)
	if _, o, err := q.ownedHere(); err == nil && o.epoch >= epoch {
		return nil
	}
	return q.b.syncShared(ctx)
}
