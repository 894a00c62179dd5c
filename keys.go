package seb

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/auth"
	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// Key is an API key without its secret.
type Key struct {
	// ID is unique among all keys that the log ever had.
	ID KeyID
	// Name is unique among the keys that are not revoked.
	Name string
	// Scopes are the permissions of the key, in the topics that Topics name.
	Scopes Scopes
	// Topics are patterns: names of topics, or prefixes of names followed by "*".
	Topics  []string
	Created time.Time
	// Expires is when the key stops being valid, by the store's clock; zero means never.
	Expires time.Time
}

// KeyOptions are the options of [Broker.CreateKey].
type KeyOptions struct {
	Name   string
	Scopes Scopes
	// Topics are patterns, as in [Key]; an empty list means all topics, as "*" does.
	Topics []string
	// Expires must be in the future; zero means never.
	Expires time.Time
}

const keyNameBytesMax = 128

// CreateKey creates an API key and returns its secret. The secret is stored nowhere and
// can't be shown again. The first key of a log must have [ScopeAdmin] for all topics: from
// then on every request needs a key, and some caller must be able to create more keys. CreateKey
// fails with CodeKeyExists if another key has the name. If the error has the outcome [Unknown],
// the key may exist although its secret is lost: then revoke the key.
func (b *Broker) CreateKey(ctx context.Context, opts KeyOptions) (_ Key, _ string, err error) {
	defer writes(&err)
	if len(opts.Topics) == 0 {
		opts.Topics = []string{"*"}
	}
	if err := opts.check(b.engine.StoreNow()); err != nil {
		return Key{}, "", err
	}
	s, entry := auth.NewSecret(), opts.entry()
	rand.Read(entry.Salt[:])
	entry.Hash, entry.Public = s.Hash(entry.Salt), s.Public()
	entries, err := b.change(ctx, change.CreateKey{
		Key: entry, AdminForAll: opts.Scopes&ScopeAdmin != 0 && slices.Contains(opts.Topics, "*"), KeysMax: b.opts.Limits.Keys,
	})
	if err != nil {
		return Key{}, "", err
	}
	k, _ := entryOf[*format.KeyCreated](entries)
	s.ID = uint64(k.ID)
	var created Key
	b.engine.View(func(in *state.State) {
		if k := in.Key(KeyID(s.ID)); k != nil {
			created = describeKey(k)
		}
	})
	if created.ID == 0 {
		return Key{}, "", maybeCommitted(change.KeyNotFound(KeyID(s.ID))) // the key was created, and was revoked since
	}
	return created, s.Text(), nil
}

func (o KeyOptions) check(now time.Time) error {
	hint := ""
	bad := func(format string, args ...any) error {
		e := refused(CodeInvalidRequest, format, args...)
		e.Hint = hint
		return e
	}
	hint = fmt.Sprintf("use 1 to %d of a-z, A-Z, 0-9, ., _, - and @", keyNameBytesMax)
	if o.Name == "" || len(o.Name) > keyNameBytesMax || strings.Trim(o.Name, keyNameBytes) != "" {
		return bad("invalid API key name %q", o.Name)
	}
	hint = "scopes are read, write, metrics and admin, which includes the others"
	if o.Scopes == 0 || o.Scopes&^scopesAll != 0 {
		return bad("the API key has no scope, or an unknown one")
	}
	hint = "a pattern is a topic's name, a prefix and *, such as orders.*, or * for all topics"
	if len(o.Topics) > state.KeyTopicsMax {
		return bad("the key has %d topic patterns; at most %d are allowed", len(o.Topics), state.KeyTopicsMax)
	}
	for _, t := range o.Topics {
		if t != "*" && change.CheckTopicName(strings.TrimSuffix(t, "*")) != nil && !isDots(t) {
			return bad("invalid topic pattern %q", t)
		}
	}
	hint = ""
	if !o.Expires.IsZero() && !o.Expires.After(now) {
		return bad("the key would expire at %s, which has passed", o.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}

const keyNameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@"

// isDots tells whether a pattern's prefix is "." or "..". These are not valid names of topics, but valid
// names may begin with them.
func isDots(pattern string) bool { return pattern == ".*" || pattern == "..*" }

func (o KeyOptions) entry() format.KeyCreated {
	k := format.KeyCreated{Scopes: uint16(o.Scopes), Name: o.Name, Topics: slices.Clone(o.Topics)}
	if !o.Expires.IsZero() {
		k.Expires = o.Expires.UnixMicro()
	}
	return k
}

// Keys iterates over the API keys that are not revoked, sorted by id. It begins with the first key
// whose id is larger than the given id. It reserves the memory of each key from Options.Memory
// while the loop body runs. An error ends the iteration, and comes with a zero Key.
func (b *Broker) Keys(ctx context.Context, after KeyID) iter.Seq2[Key, error] {
	l := listing[KeyID, Key]{
		next: func(s *state.State, after KeyID) []KeyID { return s.KeysAfter(after, listStep) },
		bytes: func(s *state.State, id KeyID) (int64, bool) {
			k := s.Key(id)
			if k == nil {
				return 0, false
			}
			return int64(len(k.Topics)) * int64(unsafe.Sizeof("")), true
		},
		describe: func(s *state.State, id KeyID) Key { return describeKey(s.Key(id)) },
	}
	return reading(l.list(ctx, b, after, func(KeyID) bool { return true }, nil))
}

// RevokeKey revokes an API key for good and returns the key; it fails with CodeKeyNotFound if
// there is no such key. This broker refuses the key at once. Other brokers refuse it after their
// [Options.StaleMax] at the latest, unless they can't reach the store. Once the last key with
// [ScopeAdmin] was revoked, no caller of an adapter can create keys: every request still needs a
// key, as before.
func (b *Broker) RevokeKey(ctx context.Context, id KeyID) (_ Key, err error) {
	defer writes(&err)
	x := &change.RevokeKey{ID: id}
	if _, err := b.change(ctx, x); err != nil || x.Key.ID == 0 {
		return Key{}, err
	}
	return describeKey(&x.Key), nil
}

func describeKey(k *state.Key) Key {
	d := Key{
		ID: k.ID, Name: k.Name, Scopes: Scopes(k.Scopes), Topics: slices.Clone(k.Topics),
		Created: time.UnixMicro(k.Created).UTC(),
	}
	if k.Expires != 0 {
		d.Expires = time.UnixMicro(k.Expires).UTC()
	}
	return d
}
