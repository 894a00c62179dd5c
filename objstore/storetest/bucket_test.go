package storetest_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestBucketConforms(t *testing.T) {
	storetest.Run(t, func(*testing.T) objstore.Store { return storetest.NewBucket() })
}

// bodyOf returns the body that a Get returns; "404" if there is no object.
func bodyOf(t *testing.T, store objstore.Store, key string) string {
	t.Helper()
	o, err := store.Get(t.Context(), key, 0, -1)
	if errors.Is(err, objstore.ErrNotFound) {
		return "404"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(o.Body)
}

func wantBody(t *testing.T, store objstore.Store, key, want string) {
	t.Helper()
	if got := bodyOf(t, store, key); got != want {
		t.Errorf("%s is %q, want %q", key, got, want)
	}
}

func TestBucketRestoresACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := storetest.NewBucket()
		mustCreate(t, b, "log/1", "one")
		mustCreate(t, b, "data/1", "old")
		old := b.Copy()
		begun := time.Now()
		time.Sleep(time.Second)
		b.Put("data/1", []byte("new"))
		mustCreate(t, b, "log/2", "two")
		mustCreate(t, b, "checkpoint/1", "c")
		b.Remove("log/1")
		wantBody(t, b, "log/1", "404")
		if b.Body("log/1") != nil || string(b.Body("log/2")) != "two" {
			t.Errorf("bodies %q, %q", b.Body("log/1"), b.Body("log/2"))
		}

		b.Restore(old, "log/") // only some keys
		for key, want := range map[string]string{"log/1": "one", "log/2": "404", "data/1": "new", "checkpoint/1": "c"} {
			wantBody(t, b, key, want)
		}
		other := old.Bucket()
		mustCreate(t, other, "log/2", "of the other")
		b.Restore(b.CopyAsOf(begun), "") // all keys
		if keys := b.Keys(""); !slices.Equal(keys, []string{"data/1", "log/1"}) {
			t.Errorf("restored %q", keys)
		}
		wantBody(t, b, "data/1", "old")
		wantBody(t, other, "log/2", "of the other")
	})
}
