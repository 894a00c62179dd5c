package change

import (
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// CreateKey creates an API key.
type CreateKey struct {
	Key         format.KeyCreated // the key to create, without an id
	AdminForAll bool              // the key has the scope admin, for all topics
	KeysMax     int               // how many keys the log may have
}

// Apply implements engine.Change.
func (x CreateKey) Apply(d *state.Draft) ([]format.Entry, error) {
	if id, taken := d.KeyID(x.Key.Name); taken {
		return nil, refused(CodeKeyExists, "choose another name, or revoke that key first",
			"API key %q already exists, with id %d", x.Key.Name, id)
	}
	if d.KeyCount() >= x.KeysMax {
		r := limited(CodeTooManyKeys, x.KeysMax, "there are %d API keys, which is the maximum", d.KeyCount())
		r.Hint = "revoke keys that are no longer needed"
		return nil, r
	}
	if d.NextKeyID() == 1 && !x.AdminForAll {
		return nil, refused(CodeInvalidRequest,
			"once a key exists, every request needs one, even to create another key: create an admin key first",
			"the first API key must have the scope admin, for all topics")
	}
	// If the commit loses its slot, Apply runs again, while the entry that the first call returned may
	// still be in use. x is a copy, so setting the id does not change that entry.
	x.Key.ID = d.NextKeyID()
	return []format.Entry{&x.Key}, nil
}

// RevokeKey revokes an API key.
type RevokeKey struct {
	ID format.KeyID

	// Key is a result: the revoked key. Key is zero if an earlier entry of the same commit created the key.
	Key state.Key
}

// Apply implements engine.Change.
func (x *RevokeKey) Apply(d *state.Draft) ([]format.Entry, error) {
	x.Key = state.Key{}
	if !d.HasKey(x.ID) {
		return nil, KeyNotFound(x.ID)
	}
	if k := d.Key(x.ID); k != nil {
		x.Key = *k
	}
	return []format.Entry{&format.KeyRevoked{ID: x.ID}}, nil
}
