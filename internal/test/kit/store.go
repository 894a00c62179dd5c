package kit

import (
	"context"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// NewFaulty returns an empty store, and a view of that store whose requests a test can make fail.
func NewFaulty() (*objstore.Memory, *storetest.Faulty) {
	m := objstore.NewMemory()
	return m, storetest.NewFaulty(m)
}

// OpenDir opens the store in a directory, and closes it when the test ends.
func OpenDir(t *testing.T, path string) *objstore.Dir {
	t.Helper()
	s, err := objstore.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Keys returns a store's keys under a prefix.
func Keys(t testing.TB, store objstore.Store, prefix string) []string {
	t.Helper()
	var all []string
	for after := ""; ; {
		page, err := store.List(context.Background(), prefix, after, 0)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Keys...)
		if !page.More {
			return all
		}
		after = all[len(all)-1]
	}
}

// Body returns the bytes of an object.
func Body(t testing.TB, store objstore.Store, key string) []byte {
	t.Helper()
	o, err := store.Get(context.Background(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	return o.Body
}

// Replace gives the object under a key other bytes. Brokers never do that.
func Replace(t testing.TB, store objstore.Store, key string, b []byte) {
	t.Helper()
	Remove(t, store, key)
	if _, err := store.Create(context.Background(), key, b); err != nil {
		t.Fatal(err)
	}
}

// Remove deletes an object.
func Remove(t testing.TB, store objstore.Store, key string) {
	t.Helper()
	if _, err := store.Delete(context.Background(), key); err != nil {
		t.Fatal(err)
	}
}

// Shifted returns a view of a store. The times in the answers of the view are off by the duration that offset
// returns.
func Shifted(store objstore.Store, offset func() time.Duration) *storetest.Faulty {
	f := storetest.NewFaulty(store)
	for _, verb := range []objstore.Verb{objstore.VerbCreate, objstore.VerbGet, objstore.VerbList} {
		f.On(verb, "", storetest.ShiftTime(offset))
	}
	return f
}

// OffBy returns a function for [Shifted] that always returns d.
func OffBy(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// WallOff returns options with a wall clock that is ahead by d.
func WallOff(d time.Duration) seb.Options {
	o := Immediate()
	o.WallClock = func() time.Time { return time.Now().Add(d) }
	return o
}
