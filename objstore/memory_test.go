package objstore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

func TestMemoryUsesTheTimeOfTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		first, err := store.Create(t.Context(), "log/1")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		second, err := store.Create(t.Context(), "log/2")
		if err != nil || second.Sub(first) != time.Hour {
			t.Errorf("an hour later the store's time is %v later (%v)", second.Sub(first), err)
		}
	})
}

func TestMemoryWithClock(t *testing.T) {
	at := time.Unix(1_000_000, 0).UTC()
	store := objstore.NewMemory(objstore.WithClock(func() time.Time { return at }))
	object, err := store.Get(t.Context(), "log/1", 0, -1)
	if !errors.Is(err, objstore.ErrNotFound) || !object.Time.Equal(at) {
		t.Errorf("Get = %v at %v, want ErrNotFound at %v", err, object.Time, at)
	}
}

func TestMemoryDiscards(t *testing.T) {
	store := objstore.NewMemory(objstore.WithDiscard("log/", "data/"))
	for _, key := range []string{"log/1", "data/1", "checkpoint/1"} {
		if _, err := store.Create(t.Context(), key, []byte("body")); err != nil {
			t.Fatal(err)
		}
	}
	_, err := store.Get(t.Context(), "log/1", 0, 2)
	if err == nil || errors.Is(err, objstore.ErrNotFound) || !strings.Contains(err.Error(), "discarded") {
		t.Errorf("Get of a discarded body = %v, want an error that says so", err)
	}
	if _, err := store.Create(t.Context(), "log/1", []byte("body")); !errors.Is(err, objstore.ErrExists) {
		t.Errorf("Create = %v, want ErrExists", err)
	}
	if object, err := store.Get(t.Context(), "checkpoint/1", 0, -1); err != nil || string(object.Body) != "body" {
		t.Errorf("Get of another prefix = %q, %v", object.Body, err)
	}
	page, err := store.List(t.Context(), "", "", 0)
	if err != nil || !slices.Equal(page.Keys, []string{"checkpoint/1", "data/1", "log/1"}) {
		t.Errorf("List = %q, %v", page.Keys, err)
	}
}
