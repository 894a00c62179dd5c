package seb_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// immediate returns options for virtual time that commit at once.
func immediate() seb.Options {
	return seb.InVirtualTime(seb.Options{Batching: seb.Immediate()})
}

// newFaulty returns an empty store and the faulty view of it.
func newFaulty() (*objstore.Memory, *storetest.Faulty) {
	m := objstore.NewMemory()
	return m, storetest.NewFaulty(m)
}

// openOnly opens a broker that the test ends itself.
func openOnly(t testing.TB, store objstore.Store, opts seb.Options) *seb.Broker {
	t.Helper()
	b, err := seb.Open(t.Context(), store, opts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// kill ends a broker as kill -9 would: what was under way stays undecided.
func kill(t testing.TB, b *seb.Broker) {
	t.Helper()
	if err := b.Kill(); err != nil {
		t.Error(err)
	}
}

func mustCreateTopic(t testing.TB, b *seb.Broker, name string, partitions int32) {
	t.Helper()
	if _, _, err := b.CreateTopic(t.Context(), name, seb.TopicOptions{Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
}

// mustAppend appends values to partition 0 and returns the first one's offset.
func mustAppend(t testing.TB, b *seb.Broker, topic string, vs ...string) seb.Offset {
	t.Helper()
	a, err := b.Append(t.Context(), topic, values(vs...), seb.ToPartition(0))
	if err != nil {
		t.Fatal(err)
	}
	return a.Ranges[0].Offset
}

func wantValues(t testing.TB, b *seb.Broker, topic string, want ...string) {
	t.Helper()
	if got := readAll(t, b, topic, 0); !slices.Equal(got, want) {
		t.Fatalf("%s holds %.100q, want %.100q", topic, got, want)
	}
}

func wantCode(t testing.TB, err error, code seb.Code) {
	t.Helper()
	_ = wantError(t, err, code)
}

func wantError(t testing.TB, err error, code seb.Code) *seb.Error {
	t.Helper()
	var e *seb.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error is %v, want code %s", err, code)
	}
	return e
}

func wantOutcome(t testing.TB, err error, o seb.Outcome) {
	t.Helper()
	if got := seb.OutcomeOf(err); got != o {
		t.Fatalf("outcome of %v is %q, want %q", err, got, o)
	}
}

// wantText fails unless err says all of it.
func wantText(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that says %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
}

// keys returns a store's keys under a prefix.
func keys(t testing.TB, store objstore.Store, prefix string) []string {
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

func body(t testing.TB, store objstore.Store, key string) []byte {
	t.Helper()
	o, err := store.Get(context.Background(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	return o.Body
}

// replace puts other bytes under a key, which only a hand from outside does.
func replace(t testing.TB, store objstore.Store, key string, b []byte) {
	t.Helper()
	remove(t, store, key)
	if _, err := store.Create(context.Background(), key, b); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, store objstore.Store, key string) {
	t.Helper()
	if _, err := store.Delete(context.Background(), key); err != nil {
		t.Fatal(err)
	}
}

// onlyProbesAreDeleted fails the test if anything else ever is.
func onlyProbesAreDeleted(t testing.TB, f *storetest.Faulty) {
	f.On(objstore.VerbDelete, "", func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
		if !strings.HasPrefix(r.Key, format.ProbePrefix) {
			t.Errorf("the broker deletes %s", r.Key)
		}
		return next(ctx, r)
	})
}

// numbered returns n values that begin with prefix.
func numbered(prefix string, n int) []string {
	vs := make([]string, n)
	for i := range vs {
		vs[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return vs
}

// large returns a value of n bytes that name tells from others.
func large(name string, n int) string {
	return name + strings.Repeat("\x00\x01\x02seb", n/6)
}

// newRand returns chance that is the same each time.
func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// openDir opens the store in a directory until the test ends.
func openDir(t *testing.T, path string) *objstore.Dir {
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
