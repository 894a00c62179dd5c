package storetest_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func chance(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// liar returns a bucket that has log/1, and a store that applies lie to its requests.
func liar(t *testing.T, lie func(*storetest.Bucket) storetest.Fault) (*storetest.Bucket, *storetest.Faulty) {
	t.Helper()
	b := storetest.NewBucket()
	mustCreate(t, b, "log/1", "first")
	faulty := storetest.NewFaulty(b)
	faulty.On("", "", lie(b))
	return b, faulty
}

// createAnswer sends a Create and returns a word for its answer.
func createAnswer(t *testing.T, store objstore.Store, key, body string) string {
	t.Helper()
	at, err := store.Create(t.Context(), key, []byte(body[:2]), []byte(body[2:]))
	switch {
	case err == nil && !at.IsZero():
		return "won"
	case errors.Is(err, objstore.ErrExists) && !at.IsZero():
		return "exists"
	case isUnknown(err):
		return "unknown"
	}
	t.Fatalf("create %s: %v at %v", key, err, at)
	return ""
}

func TestLiesAboutCreates(t *testing.T) {
	racing := func(b *storetest.Bucket) storetest.Fault { return storetest.OverwriteRacing(b, time.Second) }
	tests := map[string]struct {
		lie         func(*storetest.Bucket) storetest.Fault
		age         time.Duration
		taken, then string // the answer to a Create of an existing object, and the object after it
	}{
		"Overwrite":                {storetest.Overwrite, 0, "won", "other"},
		"OverwriteUnsaid":          {storetest.OverwriteUnsaid, 0, "exists", "other"},
		"AllWin":                   {storetest.AllWin, 0, "won", "first"},
		"OverwriteRacing, at once": {racing, 0, "won", "other"},
		"OverwriteRacing, later":   {racing, time.Second, "exists", "first"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, faulty := liar(t, test.lie)
				time.Sleep(test.age)
				if got := createAnswer(t, faulty, "log/1", "other"); got != test.taken {
					t.Errorf("a create of what exists answers %s, want %s", got, test.taken)
				}
				wantBody(t, b, "log/1", test.then)
				if got := createAnswer(t, faulty, "log/2", "other"); got != "won" {
					t.Errorf("a create where nothing is answers %s", got)
				}
				wantBody(t, b, "log/2", "other")
				wantBody(t, faulty, "log/2", "other") // the fault does not change Gets
			})
		})
	}
}

func TestInterleaveMixesTwoBodies(t *testing.T) {
	b, faulty := liar(t, func(b *storetest.Bucket) storetest.Fault { return storetest.Interleave(chance(1), b) })
	mixed := false
	for range 20 {
		b.Put("log/1", []byte(strings.Repeat("a", 20)))
		if got := createAnswer(t, faulty, "log/1", strings.Repeat("b", 15)); got != "won" {
			t.Fatalf("the answer is %s", got)
		}
		body := bodyOf(t, b, "log/1")
		if len(body) != 20 || strings.Trim(body, "ab") != "" {
			t.Fatalf("mixed into %q", body)
		}
		mixed = mixed || strings.Contains(body, "a") && strings.Contains(body, "b")
	}
	if !mixed {
		t.Error("it never mixes")
	}
}

// isPart reports whether partial could have made got from whole.
func isPart(got, whole string, zeros bool) bool {
	if zeros {
		return len(got) == len(whole) && got != whole && strings.HasPrefix(whole, strings.TrimRight(got, "\x00"))
	}
	return len(got) < len(whole) && strings.HasPrefix(whole, got)
}

func TestPartsOfCreates(t *testing.T) {
	for _, zeros := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, left := liar(t, func(b *storetest.Bucket) storetest.Fault { return storetest.LeavePart(chance(1), b, zeros) })
			if got := createAnswer(t, left, "log/2", "second"); got != "unknown" || !isPart(bodyOf(t, b, "log/2"), "second", zeros) {
				t.Errorf("a part that is left: %s, %q", got, bodyOf(t, b, "log/2"))
			}
			if got := createAnswer(t, left, "log/2", "second"); got != "exists" {
				t.Errorf("creating it again answers %s", got)
			}

			b, torn := liar(t, func(b *storetest.Bucket) storetest.Fault { return storetest.Torn(chance(1), b, time.Second, zeros) })
			done := make(chan string)
			go func() { done <- createAnswer(t, torn, "log/2", "second") }()
			synctest.Wait()
			if body := bodyOf(t, torn, "log/2"); !isPart(body, "second", zeros) {
				t.Errorf("half way it is %q", body)
			}
			if got := createAnswer(t, torn, "log/2", "third"); got != "exists" {
				t.Errorf("half way a create of another answers %s", got)
			}
			if got := <-done; got != "won" {
				t.Errorf("the create answers %s", got)
			}
			wantBody(t, b, "log/2", "second")

			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := torn.Create(ctx, "log/3", []byte("third")); !isUnknown(err) || !isPart(bodyOf(t, b, "log/3"), "third", zeros) {
				t.Errorf("cut off: %v, %q", err, bodyOf(t, b, "log/3"))
			}
		})
	}
}
