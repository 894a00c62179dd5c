package seb

import (
	"context"
	"crypto/subtle"
	"errors"
	"github.com/simple-event-broker/seb/internal/change"
	"time"

	"github.com/simple-event-broker/seb/internal/auth"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/state"
)

// Credential is what a caller presents to prove its identity. The broker uses the first of
// KeyID, Secret, Token and Names that is set, and ignores the others.
type Credential struct {
	// KeyID is the id of the API key by which another broker has authenticated the caller.
	// An adapter sets KeyID only if the other broker has proved which session it is, and
	// [Broker.KnowsSession] returns true for that session.
	KeyID KeyID
	// Secret is the secret that [Broker.CreateKey] returned.
	Secret string
	// Token is the token that [SignRead] returned for Topic.
	Token, Topic string
	// Names are the names in a verified client certificate. The broker uses the first of them that
	// is also the name of an API key, and gives the caller the access of that key.
	Names []string
}

func (c Credential) empty() bool {
	return c.KeyID == 0 && c.Secret == "" && c.Token == "" && len(c.Names) == 0
}

// errNotHere marks the refusal of an API key that this broker may find after a sync.
var errNotHere = errors.New("this broker does not know the API key")

// Authenticate returns what a caller with the credential c may do, or an error with
// [CodeUnauthorized]. In a log that never had an API key every caller may do everything, with any
// credential except a KeyID, which names a key. In any other log no caller may do anything without
// a key, even after the last key was revoked.
//
// The answer rests on a sync that is no older than [Options.StaleMax], so a key that another broker
// revoked is refused after that time at the latest. While the store can't be reached, keys that
// were valid stay valid. A key that this broker does not know may be new, so the broker syncs
// before it refuses the key. All callers share at most one such sync a second, so that callers
// without a valid key can't cause many store requests.
func (b *Broker) Authenticate(ctx context.Context, c Credential) (_ Access, err error) {
	defer writes(&err)
	if err := b.engine.Usable(); err != nil {
		return Access{}, err
	}
	a, err := authenticate(b.engine, c)
	if err == nil && !b.engine.Fresh() {
		if err := b.engine.SyncIfOld(ctx); err != nil {
			return Access{}, err
		}
		a, err = authenticate(b.engine, c) // decide again by what this broker knows now: the whole log, or a part of it if the store failed
	}
	if errors.Is(err, errNotHere) {
		if err := b.engine.SyncRarely(ctx); err != nil {
			return Access{}, err
		}
		a, err = authenticate(b.engine, c)
	}
	return a, err
}

// AuthenticateKnown is [Broker.Authenticate] without a sync: it decides by what this broker
// knows, and sends no store request.
func (b *Broker) AuthenticateKnown(c Credential) (_ Access, err error) {
	defer writes(&err)
	return authenticate(b.engine, c)
}

// KeysExist tells whether the log ever had an API key, as far as this broker knows.
func (b *Broker) KeysExist() (exist bool) {
	b.engine.View(func(s *state.State) { exist = s.NextKeyID() > 1 })
	return exist
}

// authenticate is [Broker.Authenticate] without a sync.
func authenticate(e *engine.Engine, c Credential) (a Access, err error) {
	e.View(func(s *state.State) { a, err = authenticateIn(s, c, e.StoreNow()) })
	return a, err
}

func authenticateIn(s *state.State, c Credential, now time.Time) (a Access, err error) {
	switch {
	case c.KeyID != 0: // comes first: another broker knows the key c.KeyID, but this broker may not know any key yet
		a, err = authenticateID(s, c.KeyID)
	case s.NextKeyID() == 1:
		return Access{open: true}, nil
	case c.Secret != "":
		a, err = authenticateSecret(s, c.Secret)
	case c.Token != "":
		a, err = authenticateToken(s, c.Token, c.Topic)
	case c.empty():
		return Access{}, needsKey()
	default:
		a, err = authenticateNames(s, c.Names)
	}
	if err != nil {
		return Access{}, err
	}
	if e := a.Key.Expires; !e.IsZero() && (a.Until.IsZero() || e.Before(a.Until)) {
		a.Until = e
	}
	if !a.Until.IsZero() && !now.Before(a.Until) {
		return Access{}, expired(a)
	}
	return a, nil
}

// findKey returns the API key with that id, or an error if the state does not have the key. Ids are
// assigned in order. So if the id is lower than the next id to assign, the key was revoked. If not,
// another broker may have created the key, and this broker does not know the key yet.
func findKey(s *state.State, id KeyID) (*state.Key, error) {
	if k := s.Key(id); k != nil {
		return k, nil
	}
	e := unauthorized("the API key is not known, or was revoked", "check that the key is complete, and that it was created on this Seb")
	if id >= s.NextKeyID() {
		e.Err = errNotHere
	}
	return nil, e
}

// authenticateID authenticates a caller that another broker has authenticated: this broker's
// state decides what the key may do.
func authenticateID(s *state.State, id KeyID) (Access, error) {
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
	k, err := findKey(s, KeyID(given.ID))
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
	k, err := findKey(s, KeyID(t.Key))
	if err != nil {
		e := unauthorized("the API key that signed this URL was revoked or is unknown", "get a new URL")
		e.Err = errors.Unwrap(err) // tells whether a sync may find the key
		return Access{}, e
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
	e := unauthorized("no API key is named like this client certificate",
		"create a key under the certificate's common name or one of its DNS names")
	e.Err = errNotHere
	return Access{}, e
}

// SignRead returns a token for [Credential].Token. Whoever has the token may read the topic
// until the given time, as long as the API key permits it. SignRead needs no broker.
func SignRead(apiKey, topic string, expires time.Time) (_ string, err error) {
	defer reads(&err)
	s, ok := auth.ParseSecret(apiKey)
	if !ok {
		return "", malformedKey()
	}
	if err := change.CheckTopicName(topic); err != nil {
		return "", err
	}
	if expires.IsZero() {
		return "", refused(CodeInvalidRequest, "a signed URL needs an expiry time")
	}
	return s.Sign(topic, expires), nil
}
