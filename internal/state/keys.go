package state

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// The scopes of an API key, as bits. Admin includes the other scopes.
const (
	ScopeRead uint16 = 1 << iota
	ScopeWrite
	ScopeAdmin
	ScopeMetrics

	scopesAll = ScopeRead | ScopeWrite | ScopeAdmin | ScopeMetrics
)

// Bounds on API keys. A log that exceeds them is damaged. Without bounds, a damaged number
// could make a broker allocate all memory. The limits for requests are at most as high.
const (
	KeysMax            = 10_000
	KeyTopicsMax       = 1000
	KeyNameBytesMax    = 255
	KeyPatternBytesMax = 255
)

// Key is an API key without its secret. A Key never changes.
type Key struct {
	ID      format.KeyID
	Created int64 // the log's time in microseconds
	Expires int64 // microseconds since 1970; 0 means never
	Scopes  uint16
	Salt    [16]byte
	Hash    [32]byte
	Public  [32]byte
	Name    string
	Topics  []string
}

func (k *Key) ref() (id format.KeyID, name scopedName) { return k.ID, scopedName{name: k.Name} }

// Keys returns the API keys that are not revoked, sorted by id.
func (s *State) Keys() []*Key { return s.keys.after(&Key{}, len(s.keys.byID)) }

// KeysAfter returns the ids of API keys that are not revoked, in ascending order, from the first id after
// the given one. It returns at most the given number of ids; the cost depends on this number alone.
func (s *State) KeysAfter(id format.KeyID, most int) (ids []format.KeyID) {
	for _, k := range s.keys.after(&Key{ID: id}, most) {
		ids = append(ids, k.ID)
	}
	return ids
}

// Key returns the API key of that id, or nil.
func (s *State) Key(id format.KeyID) *Key { return s.keys.byID[id] }

// HasKey reports whether there is an API key of that id.
func (s *State) HasKey(id format.KeyID) bool { return s.keys.byID[id] != nil }

// KeyNamed returns the API key of that name, or nil.
func (s *State) KeyNamed(name string) *Key { return s.keys.byName[scopedName{name: name}] }

// NextKeyID returns the id that the next API key gets. It is 1 if no key was ever created: then
// requests need no key.
func (s *State) NextKeyID() format.KeyID { return s.keys.next }

func keyOf(x *format.KeyCreated, now int64) *Key {
	return &Key{
		ID: x.ID, Created: now, Expires: x.Expires, Scopes: x.Scopes,
		Salt: x.Salt, Hash: x.Hash, Public: x.Public, Name: x.Name, Topics: x.Topics,
	}
}

func (s *State) putKey(k *Key) {
	s.keys.put(k)
	s.memory += k.memory()
}

func (s *State) dropKey(k *Key) {
	s.memory -= k.memory()
	s.keys.drop(k)
}

func (k *Key) memory() int64 {
	n := int64(unsafe.Sizeof(*k)) + indexMemory + int64(len(k.Name))
	for _, t := range k.Topics {
		n += int64(unsafe.Sizeof(t)) + int64(len(t))
	}
	return n
}

// sound reports whether a key has a valid form.
func (k *Key) sound() bool {
	ok := k.Name != "" && len(k.Name) <= KeyNameBytesMax && k.Expires >= 0
	ok = ok && k.Scopes != 0 && k.Scopes&^scopesAll == 0 && len(k.Topics) > 0 && len(k.Topics) <= KeyTopicsMax
	for _, t := range k.Topics {
		ok = ok && t != "" && len(t) <= KeyPatternBytesMax
	}
	return ok
}

// NextKeyID returns the id that the next API key must have.
func (d *Draft) NextKeyID() format.KeyID { return d.keys.next }

// KeyCount returns the number of API keys after the commit.
func (d *Draft) KeyCount() int { return d.keys.count }

// KeyID returns the id of the API key of that name; ok reports whether it exists.
func (d *Draft) KeyID(name string) (id format.KeyID, ok bool) {
	return d.keys.idOf(scopedName{name: name})
}

// HasKey reports whether there is an API key of that id.
func (d *Draft) HasKey(id format.KeyID) bool {
	return d.keys.find(id, func(k *Key) *Key { return k }) != nil
}

// Key returns the API key of that id as it was before the commit; nil if it did not exist then.
func (d *Draft) Key(id format.KeyID) *Key { return d.s.Key(id) }

func (d *Draft) takeKey(x *format.KeyCreated) error {
	k := keyOf(x, d.time)
	if !k.sound() {
		return fmt.Errorf("%w: API key %q can't be created", ErrNonsense, x.Name)
	}
	return d.keys.create(x.ID, scopedName{name: x.Name}, k)
}

func (d *Draft) takeRevocation(x *format.KeyRevoked) error {
	if !d.HasKey(x.ID) {
		return fmt.Errorf("%w: API key %d can't be revoked, since it does not exist", ErrNonsense, x.ID)
	}
	d.keys.drop(x.ID)
	return nil
}

func appendKeys(b []byte, next uint64, list []*Key) []byte {
	b = binary.AppendUvarint(b, next)
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, k := range list {
		b = binary.AppendUvarint(b, uint64(k.ID))
		b = binary.AppendUvarint(b, uint64(k.Created))
		b = binary.AppendUvarint(b, uint64(k.Expires))
		b = binary.AppendUvarint(b, uint64(k.Scopes))
		b = append(append(append(b, k.Salt[:]...), k.Hash[:]...), k.Public[:]...)
		b = binary.AppendUvarint(b, uint64(len(k.Name)))
		b = append(b, k.Name...)
		b = binary.AppendUvarint(b, uint64(len(k.Topics)))
		for _, t := range k.Topics {
			b = binary.AppendUvarint(b, uint64(len(t)))
			b = append(b, t...)
		}
	}
	return b
}

func decodeKey(r *reader) *Key {
	k := &Key{ID: format.KeyID(r.uvarint()), Created: r.int64(), Expires: r.int64(), Scopes: uint16(r.max(1<<16 - 1))}
	copy(k.Salt[:], r.bytes(len(k.Salt)))
	copy(k.Hash[:], r.bytes(len(k.Hash)))
	copy(k.Public[:], r.bytes(len(k.Public)))
	k.Name = r.text()
	for range r.count(2) {
		k.Topics = append(k.Topics, r.text())
	}
	if r.err == nil && !k.sound() {
		r.fail("the entry of API key %d, %q, is invalid", k.ID, k.Name)
	}
	return k
}
