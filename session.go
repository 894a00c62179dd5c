package seb

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/mesh"
)

// SessionKey identifies a session. It is the Ed25519 public key with which the session proves its identity. A session is one start
// of a broker: [Open] makes its key pair, and the private key never leaves the process. Zero stands for no session.
//
// The log names the sessions of its brokers, and for each queue the session of the owner. A broker trusts only sessions that its
// log or its bucket names. So brokers of one bucket need no shared secret, and do not trust a broker on a copy of the bucket.
type SessionKey [32]byte

// session has the key pair of this start of the broker.
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

// SessionSigner returns a signer with the private key of the broker's session. An adapter uses it to prove to other brokers that it
// acts for this broker.
func (b *Broker) SessionSigner() crypto.Signer { return b.session.private }

// KnowsSession reports whether the session is that of a broker: the log names it, or the object whose key is introduction does
// ([Peers.Introduce]; "" if there is no such object). If this broker does not know the session, it reads that object, or syncs. All
// callers share at most one such request a second, so that other programs can't cause many. If nothing introduces the session, it
// may be that of a new broker: this broker leaves it a free slot of the log, but at most one every 5 s.
func (b *Broker) KnowsSession(ctx context.Context, k SessionKey, introduction string) (_ bool, err error) {
	defer reads(&err)
	return b.engine.FindSession(ctx, format.SessionKey(k), introduction)
}

// NameSession commits this broker's session to the log, unless the log has the session already. Other brokers trust the session
// from then on. An adapter calls NameSession before its first request to another broker. If ctx ends, the commit goes on, and the
// error has the outcome [Unknown].
func (b *Broker) NameSession(ctx context.Context) (err error) {
	defer writes(&err)
	if b.engine.Knows(b.session.public) {
		return nil
	}
	if err := b.engine.Usable(); err != nil {
		return err
	}
	named := b.session.naming.DoChan("", func() (any, error) {
		return nil, b.engine.Commit(b.engine.Life(), &engine.Request{Synced: true, Change: change.NameSession{Session: b.session.public}})
	})
	timer := time.NewTimer(b.opts.AppendTimeout)
	defer timer.Stop()
	select {
	case got := <-named:
		return got.Err
	case <-timer.C:
		return &Error{
			Code: CodeStoreUnavailable, Detail: fmt.Sprintf("the store did not confirm, within %v, the entry that names this broker in the log", b.opts.AppendTimeout),
			Outcome: Unknown, RetryAfter: time.Second, Err: b.engine.StoreErr(),
		}
	case <-ctx.Done():
		return canceled(ctx.Err()).with(Unknown)
	}
}

// SessionID names a session in the log: the first 16 bytes of the SHA-256 of its [SessionKey].
type SessionID = format.SessionID

// ID returns the session's id.
func (k SessionKey) ID() SessionID { return format.SessionKey(k).ID() }

// PeerConn carries messages between two brokers of a log, in order. The adapter verifies the session of the other side.
type PeerConn = mesh.Conn

// PeerOptions say how a broker connects to other brokers of the log: see [Peers.Open].
type PeerOptions = mesh.Options

// Peers are the connections of a broker to the other brokers of the log: see [Broker.Peers].
type Peers struct{ broker *Broker }

// Peers returns the broker's connections to other brokers. [Broker.Close] ends them.
func (b *Broker) Peers() Peers { return Peers{b} }

// Open lets the broker connect to the other brokers that write to the log, and send them its commits. So these need not read the
// commits from the store. An adapter calls Open once.
func (p Peers) Open(opts PeerOptions) { p.broker.engine.Mesh().Open(opts) }

// Introduce returns the key of an object in the bucket that names this broker's session, and stores it if need be; "" if the log
// names the session. An adapter tells the key to a broker that it connects to: see [Broker.KnowsSession].
func (p Peers) Introduce(ctx context.Context) (key string, err error) {
	defer reads(&err)
	return p.broker.engine.Introduce(ctx, p.broker.session.public)
}

// PeerInfo is what a broker knows of another broker of the log.
type PeerInfo = mesh.Peer

// List returns the other brokers that this one has a connection to, or has read commits of, since its own start, by session. It
// takes up to a second, and causes no request to the store.
func (p Peers) List(ctx context.Context) []PeerInfo { return p.broker.engine.Mesh().Peers(ctx) }

// Serve uses a connection that another session has asked for. It returns when the connection has ended. The broker logs why.
func (p Peers) Serve(conn PeerConn, session SessionKey) {
	p.broker.engine.Mesh().Serve(conn, session.ID())
}

// KnowOwner returns at once if this broker knows the queue's owner of the given epoch, or of a later epoch. Otherwise KnowOwner
// syncs. All callers share at most one such sync a second.
func (q *Queue) KnowOwner(ctx context.Context, epoch Epoch) (err error) {
	defer reads(&err)
	if _, o, err := q.ownedHere(); err == nil && o.Epoch >= epoch {
		return nil
	}
	return q.b.engine.SyncRarely(ctx)
}
