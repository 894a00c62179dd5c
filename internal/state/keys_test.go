package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/format"
)

func key(id format.KeyID, name string) *format.KeyCreated {
	return &format.KeyCreated{ID: id, Scopes: ScopeRead, Name: name, Topics: []string{"*"}}
}

// withKeys adds two keys to a state, and a third that it revokes.
func withKeys(t rapid.TB, s *State) {
	t.Helper()
	first := key(1, "ops")
	first.Scopes, first.Expires = ScopeAdmin, 1_800_000_000_000_000
	for i := range first.Salt {
		first.Salt[i] = byte(i)
	}
	first.Hash[0], first.Hash[31], first.Public[0] = 0xaa, 0xbb, 0xcc
	last := key(3, "shop")
	last.Scopes, last.Topics = ScopeRead|ScopeWrite, []string{"orders", "orders.*"}
	mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 30, Entries: []format.Entry{
		first, key(2, "gone"), &format.KeyRevoked{ID: 2}, last,
	}})
}

// keyEntry draws a valid entry about API keys.
func (w *writer) keyEntry(t *rapid.T, d *Draft) format.Entry {
	name := rapid.SampledFrom([]string{"k", "l", "m"}).Draw(t, "key")
	if id, ok := d.KeyID(name); ok {
		return &format.KeyRevoked{ID: id}
	}
	k := key(d.NextKeyID(), name)
	k.Scopes = rapid.Uint16Range(1, scopesAll).Draw(t, "scopes")
	k.Expires = rapid.Int64Range(0, 1<<50).Draw(t, "expires")
	k.Hash[3] = rapid.Byte().Draw(t, "hash")
	k.Topics = rapid.SliceOfN(rapid.SampledFrom([]string{"*", "a", "b.*"}), 1, 3).Draw(t, "topics")
	return k
}

func TestKeysAreFoundUntilTheyAreRevoked(t *testing.T) {
	s := New()
	if s.NextKeyID() != 1 {
		t.Fatalf("the first key would be %d", s.NextKeyID())
	}
	before := s.Memory()
	withKeys(t, s)
	if ks := s.Keys(); len(ks) != 2 || ks[0].Name != "ops" || ks[1] != s.KeyNamed("shop") || ks[1] != s.Key(3) || ks[1].Created != 30 {
		t.Fatalf("keys are %+v", ks)
	}
	if s.Key(2) != nil || s.KeyNamed("gone") != nil || s.NextKeyID() != 4 {
		t.Fatal("a revoked key is still there, or its id can come again")
	}
	requireSame(t, mustDecode(t, s.Seq(), s.View().Encode()), s)
	mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 30, Entries: []format.Entry{
		&format.KeyRevoked{ID: 1}, &format.KeyRevoked{ID: 3}, key(4, "ops"), &format.KeyRevoked{ID: 4},
	}})
	if len(s.Keys()) != 0 || s.KeyNamed("ops") != nil || s.Memory() != before || s.NextKeyID() != 5 {
		t.Fatalf("%d keys are left, and %d bytes; the next is %d", len(s.Keys()), s.Memory()-before, s.NextKeyID())
	}
	requireSame(t, mustDecode(t, s.Seq(), s.View().Encode()), s)
}

func TestNonsenseAboutKeysIsRefusedAndChangesNothing(t *testing.T) {
	bent := func(f func(k *format.KeyCreated)) format.Entry {
		k := key(5, "e")
		f(k)
		return k
	}
	for name, it := range map[string]format.Entry{
		"id again":                   key(3, "e"),
		"id of a revoked one":        key(2, "e"),
		"id that this commit took":   key(4, "e"),
		"id left out":                key(6, "e"),
		"name that is taken":         key(5, "ops"),
		"name that this commit took": key(5, "d"),
		"no name":                    key(5, ""),
		"long name":                  key(5, strings.Repeat("n", KeyNameBytesMax+1)),
		"no scope":                   bent(func(k *format.KeyCreated) { k.Scopes = 0 }),
		"scope that nobody knows":    bent(func(k *format.KeyCreated) { k.Scopes = 16 }),
		"expiry before time began":   bent(func(k *format.KeyCreated) { k.Expires = -1 }),
		"no topics":                  bent(func(k *format.KeyCreated) { k.Topics = nil }),
		"empty topic":                bent(func(k *format.KeyCreated) { k.Topics = []string{""} }),
		"too many topics":            bent(func(k *format.KeyCreated) { k.Topics = slices.Repeat(k.Topics, KeyTopicsMax+1) }),
		"revocation of nothing":      &format.KeyRevoked{ID: 9},
		"revocation again":           &format.KeyRevoked{ID: 2},
		"revocation in this commit":  &format.KeyRevoked{ID: 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := New()
			withKeys(t, s)
			before, memory := s.View().Encode(), s.Memory()
			fine := []format.Entry{key(4, "d"), &format.KeyRevoked{ID: 3}}
			err := s.Apply(&format.Commit{Seq: 2, Time: 30, Entries: append(slices.Clone(fine), it)})
			if !errors.Is(err, ErrNonsense) {
				t.Fatalf("the error is %v", err)
			}
			if string(s.View().Encode()) != string(before) || s.Memory() != memory {
				t.Fatal("the state has changed")
			}
			mustApply(t, s, &format.Commit{Seq: 2, Time: 30, Entries: fine})
		})
	}
}

func TestKeysAreBounded(t *testing.T) {
	s := New()
	var entries []format.Entry
	for id := range format.KeyID(KeysMax) {
		entries = append(entries, key(id+1, "k"+strings.Repeat("x", int(id%7))+string(rune(0x4e00+id))))
	}
	mustApply(t, s, &format.Commit{Seq: 1, Entries: entries})
	more := &format.Commit{Seq: 2, Entries: []format.Entry{key(KeysMax+1, "one more")}}
	if err := s.Apply(more); !errors.Is(err, ErrNonsense) {
		t.Fatalf("the error is %v", err)
	}
	more.Entries = append([]format.Entry{&format.KeyRevoked{ID: 1}}, more.Entries...)
	mustApply(t, s, more)
}

// Listing a page of keys costs in proportion to its length: one page for each key costs together
// about as much as listing all keys once.
func TestKeysAreListedInPages(t *testing.T) {
	const count = 4096
	s := New()
	var entries []format.Entry
	for id := range format.KeyID(count) {
		entries = append(entries, key(id+1, fmt.Sprint(id)))
	}
	for id := range format.KeyID(count) {
		if id%4 == 3 {
			entries = append(entries, &format.KeyRevoked{ID: id})
		}
	}
	mustApply(t, s, &format.Commit{Seq: 1, Entries: entries})
	s = mustDecode(t, 1, s.View().Encode())
	var want, got []format.KeyID
	var all, pages time.Duration
	for range 5 { // the machine may do other work meanwhile
		want, got = nil, nil
		began := time.Now()
		for _, k := range s.Keys() {
			want = append(want, k.ID)
		}
		all = time.Since(began)
		began = time.Now()
		for page := s.KeysAfter(0, 1); len(page) > 0; page = s.KeysAfter(page[0], 1) {
			got = append(got, page...)
		}
		pages = time.Since(began)
		t.Logf("%v for all, %v in pages of one", all, pages)
		if pages <= 50*all {
			break
		}
	}
	if !slices.Equal(got, want) || len(want) != count*3/4 {
		t.Fatalf("%d keys in pages of one, want %d", len(got), len(want))
	}
	if ids := s.KeysAfter(2, 3); !slices.Equal(ids, []format.KeyID{4, 5, 6}) {
		t.Errorf("%v", ids)
	}
	if pages > 50*all {
		t.Errorf("pages of one take %v, where all take %v", pages, all)
	}
}

func TestKeysContinue(t *testing.T) {
	fold := func(entries ...format.Entry) *State {
		s := New()
		mustApply(t, s, &format.Commit{Seq: 1, Entries: entries})
		return s
	}
	other := key(1, "a")
	other.Hash[0] = 1
	old := fold(key(1, "a"), key(2, "b"), &format.KeyRevoked{ID: 2})
	for name, test := range map[string]struct {
		now  *State
		fork bool
	}{
		"the same":           {fold(key(1, "a"), key(2, "b"), &format.KeyRevoked{ID: 2}), false},
		"one more":           {fold(key(1, "a"), key(2, "b"), &format.KeyRevoked{ID: 2}, key(3, "c")), false},
		"revoked since":      {fold(key(1, "a"), key(2, "b"), &format.KeyRevoked{ID: 2}, &format.KeyRevoked{ID: 1}), false},
		"came back":          {fold(key(1, "a"), key(2, "b")), true},
		"never created":      {fold(key(1, "a")), true},
		"with other secrets": {fold(other, key(2, "b"), &format.KeyRevoked{ID: 2}), true},
		"under another name": {fold(key(1, "z"), key(2, "b"), &format.KeyRevoked{ID: 2}), true},
	} {
		if err := test.now.Continues(old); (err != nil) != test.fork || err != nil && !errors.Is(err, ErrDiscontinued) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSnapshotWhoseKeysContradictThemselvesIsRefused(t *testing.T) {
	s := New()
	withKeys(t, s)
	good := s.View().Encode()
	at := len(New().View().Encode()) - 9 // the keys begin here; consumers, queues, delayed records and sessions follow
	for name, bend := range map[string]struct {
		at int
		to byte
	}{
		"next id zero":         {at, 0},
		"next id that is used": {at, 3},
		"fewer than there are": {at + 1, 1},
		"id zero":              {at + 2, 0},
		"id out of order":      {at + 2, 3},
	} {
		bent := slices.Clone(good)
		bent[bend.at] = bend.to
		if _, err := Decode(1, bent); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}
