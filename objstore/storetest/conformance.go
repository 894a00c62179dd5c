// Package storetest has code for tests of object stores, and for tests that use an object store: a suite
// that every [objstore.Store] must pass, a store in memory ([Bucket]), and a wrapper that injects faults
// ([Faulty]).
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

const (
	racers = 32
	rounds = 8
	// clockTolerance allows for stores whose times are in whole seconds.
	clockTolerance = 2 * time.Second
)

// Run checks that stores keep the promises of [objstore.Store]. It gets a store for each test by calling
// open, which must return an empty store.
func Run(t *testing.T, open func(t *testing.T) objstore.Store) {
	tests := []struct {
		name string
		run  func(t *testing.T, s *suite)
	}{
		{"CreateThenGet", testCreateThenGet},
		{"CreateExisting", testCreateExisting},
		{"CreateRace", testCreateRace},
		{"CreateLarge", testCreateLarge},
		{"PartsMayBeReused", testPartsMayBeReused},
		{"GetRange", testGetRange},
		{"GetNotFound", testGetNotFound},
		{"BodyIsTheCallers", testBodyIsTheCallers},
		{"ListAfterWrite", testListAfterWrite},
		{"ListOrderAndPrefix", testListOrderAndPrefix},
		{"ListBelowAnObject", testListBelowAnObject},
		{"ListPages", testListPages},
		{"Delete", testDelete},
		{"StoreTime", testStoreTime},
		{"ContextEnded", testContextEnded},
		{"KeysRefused", testKeysRefused},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, &suite{T: t, store: open(t)})
		})
	}
}

// suite is one test, with its store and with steps that all tests use.
type suite struct {
	*testing.T
	store objstore.Store
}

func (s *suite) create(key string, parts ...[]byte) {
	s.Helper()
	if _, err := s.store.Create(s.Context(), key, parts...); err != nil {
		s.Fatalf("Create(%s): %v", key, err)
	}
}

func (s *suite) get(key string, off, n int64) objstore.Object {
	s.Helper()
	object, err := s.store.Get(s.Context(), key, off, n)
	if err != nil {
		s.Fatalf("Get(%s, %d, %d): %v", key, off, n, err)
	}
	return object
}

func (s *suite) list(prefix, after string, limit int) objstore.Page {
	s.Helper()
	page, err := s.store.List(s.Context(), prefix, after, limit)
	if err != nil {
		s.Fatalf("List(%q, %q, %d): %v", prefix, after, limit, err)
	}
	return page
}

// listAll returns the keys of all pages. The test fails if a page has more than limit keys, or if a page is
// empty but says that more keys follow.
func (s *suite) listAll(prefix, after string, limit int) []string {
	s.Helper()
	var keys []string
	for {
		page := s.list(prefix, after, limit)
		if limit > 0 && len(page.Keys) > limit {
			s.Fatalf("List(%q, %q, %d) returned %d keys", prefix, after, limit, len(page.Keys))
		}
		keys = append(keys, page.Keys...)
		if !page.More {
			return keys
		}
		if len(page.Keys) == 0 {
			s.Fatalf("List(%q, %q, %d) is empty but tells of more", prefix, after, limit)
		}
		after = page.Keys[len(page.Keys)-1]
	}
}

func testCreateThenGet(t *testing.T, s *suite) {
	bodies := map[string][][]byte{
		"seb.json":                 {[]byte("{}")},
		"log/00000000000000000001": {[]byte("head"), nil, []byte("data"), {}},
		"log/00000000000000000002": {},
		"data/1-a_B.c":             {nil},
		"probe/many":               manyParts(1000),
	}
	for key, parts := range bodies {
		s.create(key, parts...)
	}
	for key, parts := range bodies {
		want := bytes.Join(parts, nil)
		object := s.get(key, 0, -1)
		if !bytes.Equal(object.Body, want) || object.Size != int64(len(want)) {
			t.Errorf("Get(%s) = %d bytes of %d, want the %d that were created", key, len(object.Body), object.Size, len(want))
		}
	}
}

func manyParts(count int) [][]byte {
	parts := make([][]byte, count)
	for i := range parts {
		parts[i] = fmt.Appendf(nil, "part %d,", i)
	}
	return parts
}

func testCreateExisting(t *testing.T, s *suite) {
	s.create("log/1", []byte("first"))
	for _, body := range []string{"first", "second", ""} {
		if _, err := s.store.Create(s.Context(), "log/1", []byte(body)); !errors.Is(err, objstore.ErrExists) {
			t.Errorf("Create of a key that exists = %v, want ErrExists", err)
		}
	}
	if got := s.get("log/1", 0, -1).Body; string(got) != "first" {
		t.Errorf("object is %q after losing creates, want %q", got, "first")
	}
}

func testCreateRace(t *testing.T, s *suite) {
	for round := range rounds {
		key := fmt.Sprintf("log/%020d", round)
		body := func(racer int) []byte {
			return bytes.Repeat([]byte{byte('A' + racer)}, 1+round*20_000)
		}
		errs := make([]error, racers)
		start := make(chan struct{})
		var group sync.WaitGroup
		for racer := range racers {
			group.Go(func() {
				<-start
				_, errs[racer] = s.store.Create(s.Context(), key, body(racer)[:1], body(racer)[1:])
			})
		}
		close(start)
		group.Wait()

		winner := -1
		for racer, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("%s: racers %d and %d both won", key, winner, racer)
			case err == nil:
				winner = racer
			case !errors.Is(err, objstore.ErrExists):
				t.Fatalf("%s: racer %d: %v, want ErrExists", key, racer, err)
			}
		}
		if winner < 0 {
			t.Fatalf("%s: nobody won", key)
		}
		if got := s.get(key, 0, -1).Body; !bytes.Equal(got, body(winner)) {
			t.Fatalf("%s: object is not the winner's", key)
		}
	}
}

func testCreateLarge(t *testing.T, s *suite) {
	body := make([]byte, 8<<20)
	rng := rand.NewChaCha8([32]byte{1})
	if _, err := rng.Read(body); err != nil {
		t.Fatal(err)
	}
	s.create("data/large", body[:1], body[1:3<<20], body[3<<20:])
	if got := s.get("data/large", 0, -1).Body; !bytes.Equal(got, body) {
		t.Errorf("Get of an object of 8 MiB returned %d bytes, which are not the written ones", len(got))
	}
	if got := s.get("data/large", 5<<20, 1<<20).Body; !bytes.Equal(got, body[5<<20:6<<20]) {
		t.Errorf("Get of a range of 1 MiB returned %d bytes, which are not the written ones", len(got))
	}
}

func testPartsMayBeReused(t *testing.T, s *suite) {
	part := []byte("original")
	s.create("log/1", part)
	copy(part, "scratchy")
	if got := s.get("log/1", 0, -1).Body; string(got) != "original" {
		t.Errorf("object is %q: it changed when the caller changed its buffer", got)
	}
}

func testGetRange(t *testing.T, s *suite) {
	s.create("log/1", []byte("0123"), []byte("456789"))
	s.create("log/empty")
	tests := []struct {
		key    string
		off, n int64
		want   string
	}{
		{"log/1", 0, -1, "0123456789"},
		{"log/1", 0, 10, "0123456789"},
		{"log/1", 0, 1, "0"},
		{"log/1", 3, 4, "3456"},
		{"log/1", 9, 1, "9"},
		{"log/1", 4, -1, "456789"},
		{"log/1", 8, 100, "89"},
		{"log/1", 0, 1 << 62, "0123456789"},
		{"log/1", 1, 1<<63 - 1, "123456789"},
		{"log/1", 0, 0, ""},
		{"log/1", 5, 0, ""},
		{"log/1", 10, -1, ""},
		{"log/1", 10, 5, ""},
		{"log/1", 1 << 40, 5, ""},
		{"log/1", 1 << 40, -1, ""},
		{"log/empty", 0, -1, ""},
		{"log/empty", 0, 100, ""},
		{"log/empty", 7, 0, ""},
	}
	for _, test := range tests {
		object := s.get(test.key, test.off, test.n)
		if string(object.Body) != test.want {
			t.Errorf("Get(%s, %d, %d) = %q, want %q", test.key, test.off, test.n, object.Body, test.want)
		}
		size := int64(10)
		if test.key == "log/empty" {
			size = 0
		}
		if object.Size != size {
			t.Errorf("Get(%s, %d, %d).Size = %d, want %d", test.key, test.off, test.n, object.Size, size)
		}
		if object.Time.IsZero() {
			t.Errorf("Get(%s, %d, %d) carries no store time", test.key, test.off, test.n)
		}
	}
	if _, err := s.store.Get(s.Context(), "log/1", -1, 1); !indefinite(err) {
		t.Errorf("Get at offset -1 = %v, want an error", err)
	}
}

func testGetNotFound(t *testing.T, s *suite) {
	s.create("log/00000000000000000001", []byte("x"))
	for _, key := range []string{"log/00000000000000000002", "log/0000000000000000000", "data/1", "log/00000000000000000001.x"} {
		for _, n := range []int64{-1, 0, 5} {
			object, err := s.store.Get(s.Context(), key, 0, n)
			if !errors.Is(err, objstore.ErrNotFound) {
				t.Errorf("Get(%s, 0, %d) = %v, want ErrNotFound", key, n, err)
			}
			if object.Time.IsZero() {
				t.Errorf("Get(%s, 0, %d): ErrNotFound carries no store time", key, n)
			}
		}
	}
}

func testBodyIsTheCallers(t *testing.T, s *suite) {
	s.create("log/1", []byte("original"))
	copy(s.get("log/1", 0, -1).Body, "scratchy")
	if got := s.get("log/1", 0, -1).Body; string(got) != "original" {
		t.Errorf("object is %q: two callers share its bytes", got)
	}
}

func testListAfterWrite(t *testing.T, s *suite) {
	if keys := s.listAll("", "", 0); len(keys) != 0 {
		t.Fatalf("a new store lists %q", keys)
	}
	var want []string
	for i := range 50 {
		key := fmt.Sprintf("log/%020d", i+1)
		s.create(key, []byte("x"))
		want = append(want, key)
		if got := s.listAll("log/", "", 0); !slices.Equal(got, want) {
			t.Fatalf("after creating %s the list is %q", key, got)
		}
	}
	if page := s.list("log/", want[len(want)-1], 1); len(page.Keys) != 0 || page.More {
		t.Errorf("List after the last key = %q, more %v", page.Keys, page.More)
	}
}

func testListOrderAndPrefix(t *testing.T, s *suite) {
	// '-' and '.' sort before '/', but '0' and '_' after it: a store that sorts
	// directory by directory returns a wrong order.
	keys := []string{"a-b", "a.b", "a/b", "a/b-c/d", "a/b.d", "a/c/d", "a0", "a_b", "b/1", "log/10", "log/2", "logs/1", "seb.json"}
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(keys)) {
		s.create(keys[i], []byte("x"))
	}
	// Some prefixes end within a segment, one is a whole key, and "" is a prefix of every key.
	for _, prefix := range []string{"", "a", "a/", "a/b", "a/b-c/", "log", "log/", "log/1", "log/10", "none/", "seb.json"} {
		for _, after := range append([]string{"", "0", "a/", "a/b-c", "log/", "zzz"}, keys...) {
			var want []string
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) && key > after {
					want = append(want, key)
				}
			}
			for _, limit := range []int{0, 1, 2, 5} {
				if got := s.listAll(prefix, after, limit); !slices.Equal(got, want) {
					t.Errorf("List(%q, %q) by %d = %q, want %q", prefix, after, limit, got, want)
				}
			}
		}
	}
}

// testListBelowAnObject lists a prefix that is an object's key and a slash. No key begins with that prefix. A
// store that can hold files other than objects returns ErrNotRegular, since a file is where a directory must
// be. Other stores return an empty list.
func testListBelowAnObject(t *testing.T, s *suite) {
	s.create("seb.json", []byte("x"))
	s.create("t/1", []byte("x"))
	for _, after := range []string{"", "log/", "seb.json", "zzz"} {
		for _, limit := range []int{0, 1, 5} {
			page, err := s.store.List(s.Context(), "seb.json/", after, limit)
			_, refuses := s.store.(objstore.Walker)
			if len(page.Keys) != 0 || page.More || refuses && !errors.Is(err, objstore.ErrNotRegular) || !refuses && err != nil {
				t.Errorf("List(seb.json/, %q, %d) = %q, more %v, %v", after, limit, page.Keys, page.More, err)
			}
		}
	}
}

func testListPages(t *testing.T, s *suite) {
	const count = 1100 // more than one page of the default size
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := worker; i < count; i += 4 {
				if _, err := s.store.Create(s.Context(), fmt.Sprintf("log/%05d", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	var want []string
	for i := range count {
		want = append(want, fmt.Sprintf("log/%05d", i))
	}
	page := s.list("log/", "", 0)
	if len(page.Keys) > 1000 || !page.More {
		t.Errorf("default page has %d keys, more %v; want at most 1000 and more", len(page.Keys), page.More)
	}
	for _, limit := range []int{0, 300, 100_000} {
		if got := s.listAll("log/", "", limit); !slices.Equal(got, want) {
			t.Errorf("pages of %d hold %d keys, want the %d created, in order", limit, len(got), count)
		}
	}
	if page := s.list("log/", want[count-101], 100); !slices.Equal(page.Keys, want[count-100:]) || page.More {
		t.Errorf("a last page that is exactly full has %d keys, more %v", len(page.Keys), page.More)
	}
}

func testDelete(t *testing.T, s *suite) {
	s.create("log/1", []byte("x"))
	s.create("log/2", []byte("x"))
	for range 2 { // the second Delete finds no object
		if at, err := s.store.Delete(s.Context(), "log/1"); err != nil || at.IsZero() {
			t.Errorf("Delete(log/1) = %v, %v; want a time and success", at, err)
		}
	}
	if _, err := s.store.Delete(s.Context(), "never/was"); err != nil {
		t.Errorf("Delete of a key that never was: %v", err)
	}
	if _, err := s.store.Get(s.Context(), "log/1", 0, -1); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("Get after Delete = %v, want ErrNotFound", err)
	}
	if got := s.listAll("log/", "", 0); !slices.Equal(got, []string{"log/2"}) {
		t.Errorf("List after Delete = %q", got)
	}
	s.create("log/1", []byte("new")) // a deleted key can be created again
	if got := s.listAll("log/", "", 0); !slices.Equal(got, []string{"log/1", "log/2"}) {
		t.Errorf("List after Delete and Create = %q", got)
	}
}

func testStoreTime(t *testing.T, s *suite) {
	var last time.Time
	check := func(what string, at time.Time) {
		t.Helper()
		if at.IsZero() {
			t.Errorf("%s carries no store time", what)
		}
		if at.Before(last.Add(-clockTolerance)) {
			t.Errorf("%s is dated %v, before %v", what, at, last)
		}
		// A time must have no monotonic reading: the difference between two times with such readings leaves
		// out the hours for which the machine was suspended.
		if at != at.Round(0) {
			t.Errorf("%s carries a monotonic clock reading: %v", what, at)
		}
		if at.After(last) {
			last = at
		}
	}
	for i := range 3 {
		key := fmt.Sprintf("log/%d", i)
		at, err := s.store.Create(s.Context(), key, []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		check("Create", at)
		at, err = s.store.Create(s.Context(), key, []byte("x"))
		if !errors.Is(err, objstore.ErrExists) {
			t.Fatal(err)
		}
		check("ErrExists", at)
		check("Get", s.get(key, 0, -1).Time)
		object, err := s.store.Get(s.Context(), key+"0", 0, -1)
		if !errors.Is(err, objstore.ErrNotFound) {
			t.Fatal(err)
		}
		check("ErrNotFound", object.Time)
		check("List", s.list("log/", "", 0).Time)
		check("empty List", s.list("none/", "", 0).Time)
		at, err = s.store.Delete(s.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		check("Delete", at)
	}
}

func testContextEnded(t *testing.T, s *suite) {
	s.create("log/1", []byte("x"))
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, context.Canceled) || !indefinite(err) {
			t.Errorf("%s after its context ended = %v, want context.Canceled", what, err)
		}
	}
	_, err := s.store.Create(ctx, "log/2", []byte("x"))
	check("Create", err)
	_, err = s.store.Create(ctx, "log/1", []byte("x"))
	check("Create of a key that exists", err)
	_, err = s.store.Get(ctx, "log/1", 0, -1)
	check("Get", err)
	_, err = s.store.List(ctx, "log/", "", 0)
	check("List", err)
	_, err = s.store.Delete(ctx, "log/1")
	check("Delete", err)
	if got := s.listAll("", "", 0); !slices.Equal(got, []string{"log/1"}) {
		t.Errorf("requests that were never sent took effect: the store lists %q", got)
	}
}

func testKeysRefused(t *testing.T, s *suite) {
	for _, key := range []string{"", "/", "/etc/x", "..", "../x", "log/../../x", "log/./x", "log//x", "log/", ".tmp/x", "log/.x",
		`log\x`, "log/ä", "log/\x00", "log/a b", "log/a?b", strings.Repeat("k", 256)} {
		if _, err := s.store.Create(s.Context(), key, []byte("x")); !indefinite(err) {
			t.Errorf("Create(%q) = %v, want an error", key, err)
		}
		if _, err := s.store.Get(s.Context(), key, 0, -1); !indefinite(err) {
			t.Errorf("Get(%q) = %v, want an error", key, err)
		}
		if _, err := s.store.Delete(s.Context(), key); !indefinite(err) {
			t.Errorf("Delete(%q) = %v, want an error", key, err)
		}
	}
	for _, prefix := range []string{"/", "../", "log//", ".tmp/", "log/ä"} {
		if _, err := s.store.List(s.Context(), prefix, "", 0); !indefinite(err) {
			t.Errorf("List(%q) = %v, want an error", prefix, err)
		}
	}
}

// indefinite reports whether err is an error other than ErrExists and ErrNotFound, the definite answers. It ignores the
// third definite error, ErrFull: no test of this suite fills a store.
func indefinite(err error) bool {
	return err != nil && !errors.Is(err, objstore.ErrExists) && !errors.Is(err, objstore.ErrNotFound)
}
