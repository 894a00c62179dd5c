package engine_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// remembering is a change that makes the log remember the keys from a number to another.
type remembering struct{ from, to int }

func keyHash(n int) (d format.Digest) {
	binary.BigEndian.PutUint64(d[:], uint64(n))
	return d
}

// Apply implements [engine.Change].
func (x remembering) Apply(*state.Draft) (entries []format.Entry, _ error) {
	for n := x.from; n < x.to; n++ {
		entries = append(entries, &format.AppendKeyed{Key: keyHash(n), Print: format.Digest{7}})
	}
	return entries, nil
}

func remember(t *testing.T, e *engine.Engine, from, to int) {
	t.Helper()
	if err := e.Commit(t.Context(), &engine.Request{Change: remembering{from, to}, Synced: true}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	time.Sleep(time.Minute)
	synctest.Wait()
}

// smallPages makes engines store pages of ten keys and more.
func smallPages(t *testing.T) {
	was := engine.Compaction
	t.Cleanup(func() { engine.Compaction = was })
	engine.Compaction.PageBytes = 10 * 36
}

func pagesOf(e *engine.Engine) (pages []format.Page) {
	e.View(func(s *state.State) { pages = s.Pages() })
	return pages
}

// wantKeys fails unless an engine remembers the keys from a number to another.
func wantKeys(t *testing.T, e *engine.Engine, from, to int) {
	t.Helper()
	e.View(func(s *state.State) {
		if n := s.KeyedCount(s.Time()); n != to-from {
			t.Errorf("%d keys are remembered, not %d", n, to-from)
		}
		for n := from; n < to; n++ {
			if _, ok := s.Keyed(keyHash(n), s.Time()); !ok {
				t.Fatalf("key %d is not remembered", n)
			}
		}
	})
}

// crash ends an engine without a final checkpoint.
func crash(t *testing.T, store objstore.Store, opts func(o *engine.Options)) *engine.Engine {
	t.Helper()
	o := options(t)
	o.CheckpointCommits = 10
	if opts != nil {
		opts(&o)
	}
	e := engine.New(store, o)
	if err := e.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestPagesKeepKeysOutOfCheckpoints(t *testing.T) {
	smallPages(t)
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		e, _ := openCollecting(t, store)
		for n := 0; n < 200; n += 5 {
			remember(t, e, n, n+5)
		}
		pages := pagesOf(e)
		if len(pages) < 10 {
			t.Fatalf("%d pages", len(pages))
		}
		var want []byte
		e.View(func(s *state.State) { want = s.View().Encode() })
		if err := e.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		if len(want) > 200*36/2 {
			t.Errorf("a checkpoint has %d bytes", len(want))
		}
		before := store.Count(objstore.VerbGet, format.DataPrefix)
		again := openCompacting(t, store)
		if n := store.Count(objstore.VerbGet, format.DataPrefix) - before; n != len(pages) {
			t.Errorf("%d Gets for %d pages", n, len(pages))
		}
		wantKeys(t, again, 0, 200)
		remember(t, again, 200, 201)
	})
}

func TestBrokersWithoutMaintenanceStoreNoPages(t *testing.T) {
	smallPages(t)
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		e := openWith(t, store, func(o *engine.Options) { o.NoMaintenance = true })
		create(t, e, "t")
		if err := e.RaiseLevel(t.Context()); err != nil {
			t.Fatal(err)
		}
		remember(t, e, 0, 100)
		if n := store.Count(objstore.VerbCreate, format.DataPrefix); n != 0 || len(pagesOf(e)) != 0 {
			t.Fatalf("%d uploads, %d pages", n, len(pagesOf(e)))
		}
	})
}

// The upload of a page fails, lands later, or arrives damaged: the log does not refer to the object, and the next commit tries again.
func TestUploadOfAPageFails(t *testing.T) {
	late := &storetest.Late{}
	for name, fault := range map[string]struct {
		verb  objstore.Verb
		fault storetest.Fault
	}{
		"no answer":             {objstore.VerbCreate, storetest.Fail},
		"the reply is lost":     {objstore.VerbCreate, storetest.LoseReply},
		"it lands later":        {objstore.VerbCreate, late.Fault},
		"it is damaged":         {objstore.VerbGet, storetest.FlipByte(-1)},
		"it can't be read back": {objstore.VerbGet, storetest.Fail},
	} {
		t.Run(name, func(t *testing.T) {
			smallPages(t)
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewFaulty(objstore.NewMemory())
				e, _ := openCollecting(t, store)
				mend := store.On(fault.verb, format.DataPrefix, fault.fault)
				remember(t, e, 0, 20)
				if len(pagesOf(e)) != 0 || store.Count(fault.verb, format.DataPrefix) == 0 {
					t.Fatal("no job has failed, or the log refers to a page that was not read back")
				}
				mend()
				late.Release()
				remember(t, e, 20, 21)
				pages := pagesOf(e)
				if len(pages) != 1 || pages[0].Keys != 21 {
					t.Fatalf("pages %+v", pages)
				}
				wantKeys(t, e, 0, 21)
			})
		})
	}
}

// Two brokers store pages of the same keys: the log refers to one of them, and the other one is swept.
func TestTwoBrokersStoreTheSamePage(t *testing.T) {
	smallPages(t)
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		slow := storetest.NewFaulty(memory)
		a, topic := openCollecting(t, slow)
		release := make(chan struct{})
		slow.On(objstore.VerbCreate, format.DataPrefix, storetest.Times(1, storetest.HoldReply(release)))
		if err := a.Commit(t.Context(), &engine.Request{Change: remembering{0, 20}, Synced: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the page is in the store, and a does not know it yet
		b := openWith(t, memory, func(o *engine.Options) { o.CheckpointCommits, o.Session = 10, format.SessionID{2} })
		if err := b.Commit(t.Context(), &engine.Request{Change: remembering{20, 21}, Synced: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		winner := pagesOf(b)
		if len(winner) != 1 || winner[0].Keys != 21 {
			t.Fatalf("pages %+v", winner)
		}
		close(release)
		synctest.Wait()
		if err := a.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := pagesOf(a); !slices.Equal(got, winner) {
			t.Fatalf("pages %+v, not %+v", got, winner)
		}
		if n := len(keysOf(t, memory, format.DataPrefix)); n != 2 {
			t.Fatalf("%d objects", n)
		}
		if n := outcomesOf(a)["overtaken"]; n != 1 {
			t.Fatalf("the metric says that %v jobs were overtaken", n)
		}
		days(t, b, topic, 5)
		synctest.Wait()
		for _, key := range keysOf(t, memory, format.DataPrefix) {
			for _, sec := range keysSections(t, memory, key) {
				t.Errorf("%s, with %d keys, is still in the store", key, sec.Keys)
			}
		}
	})
}

// outcomesOf returns how many jobs that store pages had each outcome.
func outcomesOf(e *engine.Engine) map[string]float64 {
	values := map[string]float64{}
	for _, f := range e.Metrics() {
		if f.Name == "seb_pages_stored_total" {
			for _, s := range f.Series {
				values[s.Labels[0]] = s.Value
			}
		}
	}
	return values
}

// keysSections returns the page in an object, if it is one.
func keysSections(t *testing.T, store objstore.Store, key string) []format.Page {
	t.Helper()
	o, err := store.Get(t.Context(), key, 0, format.PagePos)
	if err != nil {
		t.Fatal(err)
	}
	if !format.IsPage(o.Body) {
		return nil
	}
	_, p, err := format.DecodePageHead(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	return []format.Page{p}
}

// A broker dies after it has stored a page, and before the log refers to it.
func TestPageOfABrokerThatDied(t *testing.T) {
	smallPages(t)
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		store := storetest.NewFaulty(memory)
		first, topic := openCollecting(t, memory)
		if err := first.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		e := crash(t, store, nil)
		store.On(objstore.VerbGet, format.DataPrefix, storetest.Times(1, func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
			store.SetDown(true) // right after the upload
			return next(ctx, q)
		}))
		remember(t, e, 0, 20)
		e.End()
		_ = e.Shutdown(nil) // it says that the store is down
		if n := len(keysOf(t, memory, format.DataPrefix)); n != 1 {
			t.Fatalf("%d objects", n)
		}
		orphan := keysOf(t, memory, format.DataPrefix)[0]
		again := openCompacting(t, memory)
		wantKeys(t, again, 0, 20)
		remember(t, again, 20, 21)
		if pages := pagesOf(again); len(pages) != 1 || pages[0].Ref.Key() == orphan {
			t.Fatalf("pages %+v", pages)
		}
		days(t, again, topic, 3)
		if slices.Contains(keysOf(t, memory, format.DataPrefix), orphan) {
			t.Error("the orphan is still in the store")
		}
	})
}

// While keys come all the time, pages come and go, and the log opens from each checkpoint that is still in the store.
func TestPagesAreDeleted(t *testing.T) {
	smallPages(t)
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		e, _ := openCollecting(t, store)
		most, seen := 0, map[string]bool{}
		for n := 0; n < 2000; n += 2 {
			remember(t, e, n, n+2)
			time.Sleep(9 * time.Minute) // 300 keys in a day and an hour
			for _, p := range pagesOf(e) {
				seen[p.Ref.Key()] = true
			}
			if objects := len(keysOf(t, store, format.DataPrefix)); n > 1000 {
				most = max(most, objects)
			}
		}
		if len(seen) < 80 || most > 80 {
			t.Fatalf("%d pages were stored, and up to %d objects existed", len(seen), most)
		}
		if err := e.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		checkpoints := keysOf(t, store, format.CheckpointPrefix)
		for len(checkpoints) > 1 { // open from each checkpoint, the newest one first
			if _, err := store.Delete(t.Context(), checkpoints[len(checkpoints)-1]); err != nil {
				t.Fatal(err)
			}
			checkpoints = checkpoints[:len(checkpoints)-1]
			older := engine.New(store, func() engine.Options { o := options(t); o.NoMaintenance = true; return o }())
			if err := older.Open(t.Context()); err != nil {
				t.Fatalf("open from %s: %v", checkpoints[len(checkpoints)-1], err)
			}
			e.View(func(s *state.State) {
				older.View(func(old *state.State) {
					if old.KeyedCount(s.Time()) != s.KeyedCount(s.Time()) || !slices.Equal(old.Pages(), s.Pages()) {
						t.Errorf("from %s, other keys are remembered", checkpoints[len(checkpoints)-1])
					}
				})
			})
			if err := older.Shutdown(nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestBrokerStopsIfAPageIsLost(t *testing.T) {
	smallPages(t)
	for _, damaged := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			memory := objstore.NewMemory()
			store := storetest.NewFaulty(memory)
			e, _ := openCollecting(t, store)
			remember(t, e, 0, 20)
			if err := e.Shutdown(nil); err != nil {
				t.Fatal(err)
			}
			key := pagesOf(e)[0].Ref.Key()
			want := commitlog.ErrPageLost
			if damaged {
				want = format.ErrCorrupt
				store.On(objstore.VerbGet, key, storetest.FlipByte(-1))
			} else if _, err := memory.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			again := engine.New(store, options(t))
			err := again.Open(t.Context())
			stopped, ok := errors.AsType[*engine.StoppedError](err)
			if !ok || !errors.Is(err, want) || !strings.Contains(err.Error(), key) || stopped.Hint == "" {
				t.Fatalf("the error is %v", err)
			}
		})
	}
}

// While a page is missing, the log may be needed to open from an older checkpoint: so nothing is deleted.
func TestNothingIsDeletedWhileAPageIsMissing(t *testing.T) {
	smallPages(t)
	for _, cut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := objstore.NewMemory()
			e, topic := openCollecting(t, store)
			add := func(commits int) {
				for range commits {
					appendValues(t, e, topic, strings.Repeat("x", 100))
					time.Sleep(10 * time.Minute)
				}
			}
			add(20)
			remember(t, e, 0, 20)
			key := pagesOf(e)[0].Ref.Key()
			page, err := objstore.GetWhole(t.Context(), store, key, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			replace := func(b []byte) {
				if _, err := store.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				if b == nil {
					return
				}
				if _, err := store.Create(t.Context(), key, b); err != nil {
					t.Fatal(err)
				}
			}
			replace(nil)
			if cut {
				replace(page.Body[:len(page.Body)-1])
			}
			add(148) // the page lives for some minutes more
			synctest.Wait()
			if _, err := e.Collect(t.Context()); err == nil || !strings.Contains(err.Error(), key) {
				t.Fatalf("the error is %v", err)
			}
			if !slices.Contains(keysOf(t, store, format.LogPrefix), format.LogKey(1)) {
				t.Fatal("commits are deleted although a page is missing")
			}
			replace(page.Body)
			if r, err := e.Collect(t.Context()); err != nil || r.Commits == 0 {
				t.Fatalf("%+v, %v", r, err)
			}
		})
	}
}
