package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// The scopes of an API key, as bits. Admin includes the others.
const (
	ScopeRead uint16 = 1 << iota
	ScopeWrite
	ScopeAdmin
	ScopeMetrics

	scopesAll = ScopeRead | ScopeWrite | ScopeAdmin | ScopeMetrics
)

// Bounds on API keys in any log, so that damaged numbers can't take all memory.
// Brokers set lower ones.
const (
	KeysMax            = 10_000
	KeyTopicsMax       = 1000
	KeyNameBytesMax    = 255
	KeyPatternBytesMax = 255
)

// Key is an API key: everything about it but its secret. It never changes.
type Key struct {
	ID      uint64
	Created int64 // fold's time in microseconds
	Expires int64 // microseconds since 1970; 0 means never
	Scopes  uint16
	Salt    [16]byte
	Hash    [32]byte
	Public  [32]byte
	Name    string
	Topics  []string
}

// keys are the API keys in force. Ids are never reused, so an id below next
// without a key is that of a revoked one. A log in which no API key was ever created, whose next
// id is 1, is open to everybody; one whose keys are all revoked is not.
type keys struct {
	next   uint64
	byID   map[uint64]*Key
	byName map[string]*Key
	ids    sorted[uint64]
	most   struct{ ids, names int } // that the maps held: see shrunkMap
}

func newKeys() keys { return keys{next: 1, byID: map[uint64]*Key{}, byName: map[string]*Key{}} }

func (k keys) clone() keys { return keys{next: k.next, byID: maps.Clone(k.byID)} }

func (k keys) sorted() []*Key {
	return slices.SortedFunc(maps.Values(k.byID), func(a, b *Key) int { return cmp.Compare(a.ID, b.ID) })
}

// Keys returns the API keys that are not revoked, by id.
func (s *State) Keys() []*Key { return s.keys.sorted() }

// KeysAfter returns the ids of the API keys that are not revoked and follow an id, in order, at
// most the given number. It takes memory for those alone.
func (s *State) KeysAfter(id uint64, most int) (ids []uint64) {
	for k := range s.keys.ids.from(id, cmp.Compare[uint64]) {
		if len(ids) == most {
			break
		}
		if k != id {
			ids = append(ids, k)
		}
	}
	return ids
}

// Key returns the API key of that id, or nil.
func (s *State) Key(id uint64) *Key { return s.keys.byID[id] }

// HasKey reports whether there is an API key of that id.
func (s *State) HasKey(id uint64) bool { return s.keys.byID[id] != nil }

// KeyNamed returns the API key of that name, or nil.
func (s *State) KeyNamed(name string) *Key { return s.keys.byName[name] }

// NextKeyID returns the id of the next API key. It is 1 if no key was ever created: then the log
// is open to everybody.
func (s *State) NextKeyID() uint64 { return s.keys.next }

func keyOf(x *format.KeyCreated, now int64) *Key {
	return &Key{
		ID: x.ID, Created: now, Expires: x.Expires, Scopes: x.Scopes,
		Salt: x.Salt, Hash: x.Hash, Public: x.Public, Name: x.Name, Topics: x.Topics,
	}
}

func (s *State) putKey(k *Key) {
	s.keys.byID[k.ID], s.keys.byName[k.Name] = k, k
	s.keys.ids.add(k.ID, cmp.Compare[uint64])
	s.keys.next = max(s.keys.next, k.ID+1)
	s.memory += k.memory()
}

func (s *State) dropKey(id uint64) {
	k := s.keys.byID[id]
	s.memory -= k.memory()
	delete(s.keys.byID, id)
	delete(s.keys.byName, k.Name)
	s.keys.ids.remove(id, cmp.Compare[uint64])
	s.keys.byID, s.keys.byName = shrunkMap(s.keys.byID, &s.keys.most.ids), shrunkMap(s.keys.byName, &s.keys.most.names)
}

func (k *Key) memory() int64 {
	n := int64(unsafe.Sizeof(*k)) + 2*64 + sortedMemory + int64(len(k.Name)) // and its places in two maps and a list
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

// draftKeys are the changes of a commit under construction to the keys.
type draftKeys struct {
	next    uint64
	count   int
	created map[string]uint64 // ids by name
	revoked map[uint64]bool
}

// NextKeyID returns the id that the next API key must have.
func (d *Draft) NextKeyID() uint64 { return d.keys.next }

// KeyCount returns the number of API keys after the commit.
func (d *Draft) KeyCount() int { return d.keys.count }

// KeyID returns the id of the API key of that name; ok reports whether it exists.
func (d *Draft) KeyID(name string) (id uint64, ok bool) {
	id, ok = d.keys.created[name]
	if !ok {
		if k := d.s.KeyNamed(name); k != nil {
			id, ok = k.ID, true
		}
	}
	return id, ok && !d.keys.revoked[id]
}

// HasKey reports whether there is an API key of that id.
func (d *Draft) HasKey(id uint64) bool {
	known := d.s.Key(id) != nil || id >= d.s.keys.next && id < d.keys.next
	return known && !d.keys.revoked[id]
}

// Key returns the API key of that id, as it was before the commit; nil if there was none.
func (d *Draft) Key(id uint64) *Key { return d.s.Key(id) }

func (d *Draft) takeKey(x *format.KeyCreated) error {
	if x.ID != d.keys.next {
		return fmt.Errorf("%w: an API key with id %d instead of %d", ErrNonsense, x.ID, d.keys.next)
	}
	if _, taken := d.KeyID(x.Name); taken || d.keys.count >= KeysMax || !keyOf(x, 0).sound() {
		return fmt.Errorf("%w: API key %q can't be created", ErrNonsense, x.Name)
	}
	if d.keys.created == nil {
		d.keys.created = map[string]uint64{}
	}
	d.keys.created[x.Name] = x.ID
	d.keys.next++
	d.keys.count++
	return nil
}

func (d *Draft) takeRevocation(x *format.KeyRevoked) error {
	if !d.HasKey(x.ID) {
		return fmt.Errorf("%w: no API key %d to revoke", ErrNonsense, x.ID)
	}
	if d.keys.revoked == nil {
		d.keys.revoked = map[uint64]bool{}
	}
	d.keys.revoked[x.ID] = true
	d.keys.count--
	return nil
}

// continuesKeys is [State.Continues] for API keys: the next id does not fall, no revoked key
// comes back, and a key does not change until it is revoked.
func (s *State) continuesKeys(old *State) error {
	if s.keys.next < old.keys.next {
		return fmt.Errorf("%w: the next API key was %d and is now %d", ErrDiscontinued, old.keys.next, s.keys.next)
	}
	for id, now := range s.keys.byID {
		was := old.keys.byID[id]
		if id < old.keys.next && (was == nil || was.Name != now.Name || was.Hash != now.Hash) {
			return fmt.Errorf("%w: API key %d is not the same as before", ErrDiscontinued, id)
		}
	}
	return nil
}

func appendKeys(b []byte, ks keys) []byte {
	b = binary.AppendUvarint(b, ks.next)
	b = binary.AppendUvarint(b, uint64(len(ks.byID)))
	for _, k := range ks.sorted() {
		b = binary.AppendUvarint(b, k.ID)
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

func (s *State) decodeKeys(r *reader) {
	s.keys.next = r.uvarint()
	n := r.count(80)
	if s.keys.next == 0 || n > KeysMax {
		r.fail("%d API keys, the next is %d", n, s.keys.next)
	}
	var last uint64
	for range n {
		k := &Key{ID: r.uvarint(), Created: r.int64(), Expires: r.int64(), Scopes: uint16(r.max(1<<16 - 1))}
		copy(k.Salt[:], r.bytes(len(k.Salt)))
		copy(k.Hash[:], r.bytes(len(k.Hash)))
		copy(k.Public[:], r.bytes(len(k.Public)))
		k.Name = string(r.bytes(r.count(1)))
		for range r.count(2) {
			k.Topics = append(k.Topics, string(r.bytes(r.count(1))))
		}
		if r.err == nil && (k.ID <= last || k.ID >= s.keys.next || s.keys.byName[k.Name] != nil || !k.sound()) {
			r.fail("API key %d %q", k.ID, k.Name)
		}
		if r.err != nil {
			return
		}
		last = k.ID
		s.putKey(k)
	}
}
