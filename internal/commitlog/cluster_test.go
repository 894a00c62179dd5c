package commitlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func openTestCluster(t *testing.T, store objstore.Store) (format.Cluster, error) {
	return OpenCluster(t.Context(), store, testDelay, testMargin, time.Now())
}

func TestBrokersThatOpenAnEmptyBucketTogetherAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory(objstore.WithClock(time.Now))
		const brokers = 8
		opened := make(chan format.Cluster)
		for i := range brokers {
			store := storetest.NewFaulty(memory)
			store.On("", "", storetest.Delay(10*time.Millisecond)) // so that all brokers find it empty
			go func() {
				c, err := OpenCluster(t.Context(), store, time.Duration(i+4)*time.Hour, time.Hour, time.Now())
				if err != nil {
					t.Error(err)
				}
				// Objects of probes must not make the bucket look foreign to other brokers.
				if _, err := memory.Create(t.Context(), fmt.Sprint(format.ProbePrefix, i)); err != nil {
					t.Error(err)
				}
				opened <- c
			}()
		}
		first := <-opened
		for range brokers - 1 {
			requireEqual(t, <-opened, first)
		}
		if (first.ID == format.ClusterID{}) || first.Format != 2 {
			t.Fatalf("opened %+v", first)
		}
	})
}

func TestConstantsOfABucketAreKept(t *testing.T) {
	memory := objstore.NewMemory()
	first, err := openTestCluster(t, memory)
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenCluster(t.Context(), memory, 100*testDelay, testMargin, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, again, first)
	if time.Duration(first.DeleteDelay) != testDelay || time.Duration(first.Margin) != testMargin {
		t.Fatalf("opened %+v", first)
	}
}

func TestBucketOfSomebodyElseIsRefused(t *testing.T) {
	for _, key := range []string{"readme.txt", format.LogKey(1), "zzz"} {
		memory := objstore.NewMemory()
		if _, err := memory.Create(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		_, err := openTestCluster(t, memory)
		requireIs(t, err, ErrNoCluster)
		if !strings.Contains(err.Error(), key) {
			t.Fatalf("the error does not name %s: %v", key, err)
		}
		if page, err := memory.List(t.Context(), "", "", 0); err != nil || len(page.Keys) != 1 {
			t.Fatalf("the bucket holds %q, %v", page.Keys, err)
		}
	}
}

// Between the Get of seb.json and the List, another broker may create seb.json and other
// objects.
func TestBucketThatFillsUpMeanwhileIsNotForeign(t *testing.T) {
	memory := objstore.NewMemory()
	store := storetest.NewFaulty(memory)
	var other format.Cluster
	store.On(objstore.VerbList, "", storetest.Times(1, func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
		var err error
		if other, err = openTestCluster(t, memory); err != nil {
			t.Error(err)
		}
		if _, err := memory.Create(ctx, format.LogKey(1)); err != nil {
			t.Error(err)
		}
		return next(ctx, q)
	}))
	got, err := openTestCluster(t, store)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, other)
}

func TestCreationOfConstantsIsRepeated(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{"refused": storetest.Fail, "reply lost": storetest.LoseReply} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewFaulty(objstore.NewMemory(objstore.WithClock(time.Now)))
				store.On(objstore.VerbCreate, format.ClusterKey, storetest.Times(2, fault))
				if _, err := openTestCluster(t, store); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory(objstore.WithClock(time.Now)))
		store.On(objstore.VerbCreate, format.ClusterKey, storetest.Fail)
		_, err := openTestCluster(t, store)
		requireIs(t, err, storetest.ErrInjected)
	})
}

func TestStoreThatHidesTheConstantsIsUnavailable(t *testing.T) {
	memory := objstore.NewMemory()
	if _, err := openTestCluster(t, memory); err != nil {
		t.Fatal(err)
	}
	store := storetest.NewFaulty(memory)
	store.On(objstore.VerbGet, format.ClusterKey, func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
		return storetest.Answer{}, objstore.ErrNotFound
	})
	_, err := openTestCluster(t, store)
	requireIs(t, err, objstore.ErrNotFound)
}

func TestOpeningPassesErrorsOn(t *testing.T) {
	for _, verb := range []objstore.Verb{objstore.VerbGet, objstore.VerbList} {
		store := storetest.NewFaulty(objstore.NewMemory())
		store.On(verb, "", storetest.Fail)
		_, err := openTestCluster(t, store)
		requireIs(t, err, storetest.ErrInjected)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := OpenCluster(ctx, objstore.NewMemory(), testDelay, testMargin, time.Now())
	requireIs(t, err, context.Canceled)
}

func TestBucketIsNotCreatedWithConstantsThatNobodyCouldOpen(t *testing.T) {
	for _, c := range []struct{ delay, margin time.Duration }{
		{0, 0}, {-1, 0}, {4, -1}, {4*time.Hour - 1, time.Hour}, {1 << 62, 1 << 61},
	} {
		store := storetest.NewFaulty(objstore.NewMemory())
		_, err := OpenCluster(t.Context(), store, c.delay, c.margin, time.Now())
		if err == nil || errors.Is(err, format.ErrCorrupt) || store.Count(objstore.VerbCreate, "") != 0 {
			t.Errorf("%v, %v: %v", c.delay, c.margin, err)
		}
	}
}

func TestDamagedConstantsAreRefused(t *testing.T) {
	memory := objstore.NewMemory()
	if _, err := memory.Create(t.Context(), format.ClusterKey, []byte(`{"format": 9}`)); err != nil {
		t.Fatal(err)
	}
	_, err := openTestCluster(t, memory)
	requireIs(t, err, format.ErrVersion)
}

// After a damaged answer OpenCluster asks again, even if the answer looks like a file of another
// version.
func TestBentAnswersAboutTheClusterAreAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		first, err := openTestCluster(t, store)
		if err != nil {
			t.Fatal(err)
		}
		file, err := format.EncodeCluster(first)
		if err != nil {
			t.Fatal(err)
		}
		for i := range file {
			heal := store.On(objstore.VerbGet, format.ClusterKey, storetest.Times(1, flipLowBit(i)))
			again, err := openTestCluster(t, store)
			if err != nil {
				t.Fatalf("byte %d: %v", i, err)
			}
			requireEqual(t, again, first)
			heal()
		}
	})
}

// Failed requests together with damaged answers mean a bad network, not a damaged file.
func TestClusterFileThatIsNotAlwaysBentIsNotDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		if _, err := openTestCluster(t, store); err != nil {
			t.Fatal(err)
		}
		store.On(objstore.VerbGet, format.ClusterKey, storetest.Times(1, storetest.Fail))
		store.On(objstore.VerbGet, format.ClusterKey, flipLowBit(0))
		_, err := openTestCluster(t, store)
		requireIs(t, err, storetest.ErrInjected)
		if errors.Is(err, format.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

// flipLowBit returns a fault that flips a bit which turns text into other text.
func flipLowBit(i int) storetest.Fault {
	return func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
		a, err := next(ctx, r)
		if err == nil {
			a.Body[i] ^= 1
		}
		return a, err
	}
}
