package seb_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestIdempotencyKeyOfACommitIsItsAPIKeysOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b := open(t, memory, immediate())
		_, secretA := createKey(t, b, seb.KeyOptions{Name: "a"})
		_, secretB := createKey(t, b, seb.KeyOptions{Name: "b"})
		a, other := asCaller(t, b, bySecret(secretA)), asCaller(t, b, bySecret(secretB))
		commit := func(topic string) seb.Commit {
			return seb.Commit{Appends: []seb.CommitAppend{appends(topic, "x"), appends(topic, "y")}}
		}
		if done, err := b.Commit(a, commit("a"), seb.IdempotencyKey("k")); err != nil || done.Replayed {
			t.Fatal(done, err)
		}
		if done, err := b.Commit(other, commit("b"), seb.IdempotencyKey("k")); err != nil || done.Replayed {
			t.Fatal("the other key's commit:", done, err)
		}
		for _, b := range []*seb.Broker{b, open(t, memory, immediate())} {
			a, err := b.Commit(a, commit("a"), seb.IdempotencyKey("k"))
			if err != nil || !a.Replayed || a.Appends[0].Topic != "a" || a.Appends[1].Ranges[0].Offset != 1 {
				t.Errorf("the retry: %+v, %v", a, err)
			}
			_, err = b.Commit(other, commit("c"), seb.IdempotencyKey("k"))
			wantCode(t, err, seb.CodeIdempotencyKeyReused)
			byName, err := b.Commit(asCaller(t, b, seb.Credential{Names: []string{"b"}}), commit("b"), seb.IdempotencyKey("k"))
			if err != nil || !byName.Replayed {
				t.Errorf("the same key, shown as a certificate: %+v, %v", byName, err)
			}
		}
		if done, err := b.Commit(t.Context(), commit("program"), seb.IdempotencyKey("k")); err != nil || done.Replayed {
			t.Errorf("the program's own: %+v, %v", done, err)
		}
		wantValues(t, b, "a", "x", "y")
		wantValues(t, b, "b", "x", "y")
	})
}

func TestCommitsOfTwoAPIKeysUnderOneIdempotencyKeyShareASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := open(t, faulty, immediate())
		var errs [2]error
		var wg sync.WaitGroup
		release := make(chan struct{})
		_, secretA := createKey(t, b, seb.KeyOptions{Name: "a"})
		_, secretB := createKey(t, b, seb.KeyOptions{Name: "b"})
		mustAppend(t, b, "t", "v")
		remove := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))
		wg.Go(func() { mustAppend(t, b, "t", "holds the slot") })
		synctest.Wait()
		for i, secret := range []string{secretA, secretB} {
			ctx := asCaller(t, b, bySecret(secret))
			wg.Go(func() {
				_, errs[i] = b.Commit(ctx, seb.Commit{Appends: []seb.CommitAppend{appends("t", []string{"a", "b"}[i])}}, seb.IdempotencyKey("k"))
			})
			synctest.Wait()
		}
		remove()
		close(release)
		wg.Wait()
		if errs[0] != nil || errs[1] != nil {
			t.Error(errs)
		}
		wantValues(t, b, "t", "v", "holds the slot", "a", "b")
	})
}

// Earlier versions remembered the idempotency keys of commits without the caller. Brokers still do that
// for commits of the embedding program and of callers of a log without API keys. A retry of such a commit
// by a caller with an API key is recognised; another commit with the same idempotency key is not refused.
func TestRetryOfACommitFromBeforeItsCallerHadAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		c := func(v string) seb.Commit { return seb.Commit{Appends: []seb.CommitAppend{appends("t", v)}} }
		if _, err := b.Commit(asCaller(t, b, seb.Credential{}), c("first"), seb.IdempotencyKey("k")); err != nil {
			t.Fatal(err)
		}
		_, secret := createKey(t, b, seb.KeyOptions{Name: "a"})
		ctx := asCaller(t, b, bySecret(secret))
		if done, err := b.Commit(ctx, c("first"), seb.IdempotencyKey("k")); err != nil || !done.Replayed {
			t.Errorf("the retry: %+v, %v", done, err)
		}
		if done, err := b.Commit(ctx, c("another"), seb.IdempotencyKey("k")); err != nil || done.Replayed {
			t.Errorf("another commit: %+v, %v", done, err)
		}
		wantValues(t, b, "t", "first", "another")
	})
}
