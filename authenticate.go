package seb

import (
	"context"
	"crypto/subtle"
	"errors"
	"time"

	"github.com/simple-event-broker/seb/internal/auth"
	"github.com/simple-event-broker/seb/internal/state"
)

// Credential is what a caller shows to prove who it is: one of KeyID, Secret, Token and
// Names, looked at in this order.
type Credential struct {
	// KeyID is the id of the API key that another broker has authenticated the caller by.
	// An adapter sets it only for a session that [Broker.KnowsSession] knows, and that has
	// proved to be the one.
	KeyID uint64
	// Secret is what [Broker.CreateKey] returned.
	Secret string
	// Token is what [SignRead] returned for Topic.
	Token, Topic string
	// Names are those of a certificate that was verified: the first that is
	// the name of an API key counts.
	Names []string
}

func (c Credential) empty() bool {
	return c.KeyID == 0 && c.Secret == "" && c.Token == "" && len(c.Names) == 0
}

// errNotHere marks the refusal of a key that a look at the log may yet find.
var errNotHere = errors.New("not known to this broker")

// Authenticate returns what the bearer of c may do, or an error with
// [CodeUnauthorized]. In a log that never had an API key everyone may do
// everything, whatever they show; in any other nobody without one, also when none
// is left.
//
// The answer is as of a look at the log that is no older than
// [Options.StaleMax], so a key that another broker revoked is refused after that
// at the latest. While the store can't be reached, keys that were good stay so. A key that
// isn't known here may be new: the broker looks before it refuses it, once a
// second at most whoever asks, so that nobody can run up a bill.
func (b *Broker) Authenticate(ctx context.Context, c Credential) (_ Access, err error) {
	defer writes(&err)
	if err := b.usable(); err != nil {
		return Access{}, err
	}
	a, err := b.authenticate(c)
	if err == nil && !b.fresh() {
		if err := b.syncIfOld(ctx); err != nil {
			return Access{}, err
		}
		a, err = b.authenticate(c) // as things are now, also after a look that came only half of the way
	}
	if errors.Is(err, errNotHere) {
		if err := b.syncShared(ctx); err != nil {
			return Access{}, err
		}
		a, err = b.authenticate(c)
	}
	return a, err
}

// AuthenticateKnown is [Broker.Authenticate] by what this broker knows, however
// old that is. It sends no store request.
func (b *Broker) AuthenticateKnown(c Credential) (_ Access, err error) {
	defer writes(&err)
	return b.authenticate(c)
}

// KeysExist tells whether the log ever had an API key, as far as this broker knows.
func (b *Broker) KeysExist() bool {
	b.live.RLock()
	defer b.live.RUnlock()
	return b.live.State.NextKeyID() > 1
}

func (b *Broker) authenticate(c Credential) (Access, error) {
	b.live.RLock()
	defer b.live.RUnlock()
	var a Access
	var err error
	switch {
	case c.KeyID != 0: // also where no key is known yet: there are some
		a, err = authenticateID(b.live.State, c.KeyID)
	case b.live.State.NextKeyID() == 1:
		return Access{open: true}, nil
	case c.Secret != "":
		a, err = authenticateSecret(b.live.State, c.Secret)
	case c.Token != "":
		a, err = authenticateToken(b.live.State, c.Token, c.Topic)
	case c.empty():
		return Access{}, needsKey()
	default:
		a, err = authenticateNames(b.live.State, c.Names)
	}
	if err != nil {
		return Access{}, err
	}
	if e := a.Key.Expires; !e.IsZero() && (a.Until.IsZero() || e.Before(a.Until)) {
		a.Until = e
	}
	if !a.Until.IsZero() && !b.storeNow().Before(a.Until) {
		return Access{}, expired(a)
	}
	return a, nil
}

// findKey returns a key in force. An id that was given out and isn't there was
// revoked; only one that is still to come may be known to others.
func findKey(s *state.State, id uint64) (*state.Key, error) {
	if k := s.Key(id); k != nil {
		return k, nil
	}
	e := unauthorized("the API key is not known, or was revoked", "check that the key is complete, and that it was created on this Seb")
	if id >= s.NextKeyID() {
		e.Err = errNotHere
	}
	return nil, e
}

// authenticateID is of a caller that another broker has authenticated: what its key may do
// is for this broker's state to say.
func authenticateID(s *state.State, id uint64) (Access, error) {
	k, err := findKey(s, id)
	if err != nil {
		return Access{}, err
	}
	return Access{Key: describeKey(k)}, nil
}

func authenticateSecret(s *state.State, text string) (Access, error) {
	given, ok := auth.ParseSecret(text)
	if !ok {
		return Access{}, malformedKey()
	}
	k, err := findKey(s, given.ID)
	if err != nil {
		return Access{}, err
	}
	hash := given.Hash(k.Salt)
	if subtle.ConstantTimeCompare(hash[:], k.Hash[:]) != 1 {
		return Access{}, unauthorized("the API key is wrong", "check that the key is complete, and that it was created on this Seb")
	}
	return Access{Key: describeKey(k)}, nil
}

func authenticateToken(s *state.State, text, topic string) (Access, error) {
	t, ok := auth.ParseToken(text)
	if !ok || topic == "" {
		return Access{}, unauthorized("the signed URL is malformed", "make a new one with `seb url`; a signed URL can only read records")
	}
	k, err := findKey(s, t.Key)
	if err != nil {
		return Access{}, err
	}
	if !t.SignedBy(k.Public, topic) {
		return Access{}, unauthorized("the signature is wrong", "a signed URL is valid only for the topic that it was made for; make a new one with `seb url`")
	}
	return Access{Key: describeKey(k), Topic: topic, Until: t.Expires}, nil
}

func authenticateNames(s *state.State, names []string) (Access, error) {
	for _, n := range names {
		if k := s.KeyNamed(n); k != nil {
			return Access{Key: describeKey(k)}, nil
		}
	}
	e := unauthorized("no API key has a name that the client certificate has",
		"create a key under the certificate's common name or one of its DNS names")
	e.Err = errNotHere
	return Access{}, e
}

// keyLookInterval is how often unknown keys make a broker look at the log.
const keyLookInterval = time.Second

// keyLooks lets one caller at a time look for a key, or a session.
type keySyncs struct {
	turn chan struct{}
	last time.Time // owned by who has the turn
}

func (k *keySyncs) init() { k.turn = make(chan struct{}, 1) }

// syncShared returns after a sync of the log that began after the call. All callers
// share one per interval, so that nobody who is not known can run up a bill.
func (b *Broker) syncShared(ctx context.Context) error {
	asked := time.Now()
	select {
	case b.keySyncs.turn <- struct{}{}:
	case <-ctx.Done():
		return canceled(ctx)
	}
	defer func() { <-b.keySyncs.turn }()
	if b.tail.provenAfter(asked) {
		return nil
	}
	pause := time.NewTimer(keyLookInterval - time.Since(b.keySyncs.last))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-b.loopDone:
		return errClosed()
	case <-ctx.Done():
		return canceled(ctx)
	}
	b.keySyncs.last = time.Now()
	return b.syncNow(ctx, false)
}
