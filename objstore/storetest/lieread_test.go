package storetest_test

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func listed(t *testing.T, store objstore.Store, after string, limit int) ([]string, bool) {
	t.Helper()
	page, err := store.List(t.Context(), "log/", after, limit)
	if err != nil {
		t.Fatal(err)
	}
	return page.Keys, page.More
}

func TestAnswersFromThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, faulty := liar(t, func(b *storetest.Bucket) storetest.Fault { return storetest.LagGet(b, time.Minute) })
		faulty.On("", "", storetest.LagList(b, time.Minute))
		time.Sleep(time.Hour)
		b.Put("log/1", []byte("overwritten"))
		mustCreate(t, faulty, "log/2", "second")
		wantBody(t, faulty, "log/1", "first")
		wantBody(t, faulty, "log/2", "404")
		if keys, _ := listed(t, faulty, "", 0); !slices.Equal(keys, []string{"log/1"}) {
			t.Errorf("listed %q", keys)
		}
		time.Sleep(time.Minute)
		b.Remove("log/1")
		wantBody(t, faulty, "log/1", "overwritten")
		wantBody(t, faulty, "log/2", "second")
		if keys, _ := listed(t, faulty, "", 0); !slices.Equal(keys, []string{"log/1", "log/2"}) {
			t.Errorf("listed %q", keys)
		}
	})
}

func TestLiesAboutLists(t *testing.T) {
	all := []string{"log/1", "log/2", "log/3", "log/4"}
	tests := map[string]struct {
		lie  storetest.Fault
		told func(keys []string, more bool) bool
	}{
		"ShuffleList": {storetest.ShuffleList(chance(1)), func(keys []string, _ bool) bool {
			return !slices.IsSorted(keys) && slices.Equal(slices.Sorted(slices.Values(keys)), all)
		}},
		"SkipInList":      {storetest.SkipInList(chance(1), 1), func(keys []string, _ bool) bool { return len(keys) == 3 && slices.IsSorted(keys) }},
		"SkipFirstInList": {storetest.SkipFirstInList(), func(keys []string, _ bool) bool { return slices.Equal(keys, all[1:]) }},
		"RepeatInList": {storetest.RepeatInList(chance(1)), func(keys []string, _ bool) bool {
			return len(keys) == 5 && slices.Equal(slices.Compact(slices.Clone(keys)), all)
		}},
		"EndListEarly": {storetest.EndListEarly(2), func(keys []string, more bool) bool { return slices.Equal(keys, all[:2]) && !more }},
		"EndlessList":  {storetest.EndlessList, func(keys []string, more bool) bool { return slices.Equal(keys, all) && more }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := storetest.NewBucket()
			for _, key := range all {
				mustCreate(t, b, key, "x")
			}
			faulty := storetest.NewFaulty(b)
			faulty.On(objstore.VerbList, "", test.lie)
			if keys, more := listed(t, faulty, "", 0); !test.told(keys, more) {
				t.Errorf("listed %q, more: %v", keys, more)
			}
			if keys, more := listed(t, faulty, "log/4", 0); name == "EndlessList" && (!slices.Equal(keys, all) || !more) {
				t.Errorf("after the last key it listed %q, more: %v", keys, more)
			}
		})
	}
}

func TestElsewhereAsksAnotherStore(t *testing.T) {
	b, faulty := liar(t, func(b *storetest.Bucket) storetest.Fault { return storetest.Elsewhere(b.Copy().Bucket()) })
	mustCreate(t, faulty, "log/2", "elsewhere")
	wantBody(t, faulty, "log/1", "first")
	wantBody(t, faulty, "log/2", "elsewhere")
	wantBody(t, b, "log/2", "404")
}

func TestLiesAboutDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remove := func(store objstore.Store) {
			t.Helper()
			if _, err := store.Delete(t.Context(), "log/1"); err != nil {
				t.Fatal(err)
			}
		}
		b, faulty := liar(t, func(*storetest.Bucket) storetest.Fault { return storetest.KeepDeleted })
		remove(faulty)
		wantBody(t, b, "log/1", "first")

		b, faulty = liar(t, func(b *storetest.Bucket) storetest.Fault { return storetest.DeleteForAWhile(b, time.Minute) })
		remove(faulty)
		wantBody(t, b, "log/1", "404")
		time.Sleep(time.Minute)
		synctest.Wait()
		wantBody(t, b, "log/1", "first")

		b, faulty = liar(t, func(b *storetest.Bucket) storetest.Fault { return storetest.DeleteAnother(chance(1), b, "data/") })
		mustCreate(t, b, "data/1", "x")
		remove(faulty)
		wantBody(t, b, "log/1", "first")
		wantBody(t, b, "data/1", "404")
	})
}

func TestSometimes(t *testing.T) {
	_, faulty := liar(t, func(*storetest.Bucket) storetest.Fault { return storetest.Sometimes(chance(1), 0.5, storetest.Fail) })
	failed := 0
	for range 1000 {
		if _, err := faulty.Get(t.Context(), "log/1", 0, -1); err != nil {
			failed++
		}
	}
	if failed < 400 || failed > 600 {
		t.Errorf("%d of 1000 requests failed", failed)
	}
}

func TestDamagesChangeWhatTheyAreGiven(t *testing.T) {
	for _, body := range [][]byte{{0}, []byte("abc"), make([]byte, 100)} {
		for _, d := range storetest.Damages() {
			before := bytes.Clone(body)
			for seed := range uint64(50) {
				if bent := d.Bend(chance(seed), body); bytes.Equal(bent, body) || !bytes.Equal(body, before) {
					t.Fatalf("%s makes %q of %q, which was %q", d.Name, bent, body, before)
				}
			}
		}
	}
}
