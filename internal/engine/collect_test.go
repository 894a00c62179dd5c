package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/collect"
	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// keysOf returns the keys of a store that begin with a prefix.
func keysOf(t testing.TB, store objstore.Store, prefix string) (keys []string) {
	t.Helper()
	for after := ""; ; {
		page, err := store.List(t.Context(), prefix, after, 0)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, page.Keys...)
		if !page.More {
			return keys
		}
		after = page.Keys[len(page.Keys)-1]
	}
}

// days appends a record every ten minutes, and trims the topic to its last 100 records every day.
func days(t *testing.T, e *engine.Engine, topic format.TopicID, n int) {
	t.Helper()
	for range n * 144 {
		appendValues(t, e, topic, strings.Repeat("x", 100))
		time.Sleep(10 * time.Minute)
	}
	var start format.Offset
	e.View(func(s *state.State) { start = s.TopicByID(topic).Partitions[0].End - 100 })
	if err := e.Commit(t.Context(), &engine.Request{Change: moveStart{topic, start}, Synced: true}); err != nil {
		t.Fatal(err)
	}
}

type moveStart struct {
	topic format.TopicID
	start format.Offset
}

// Apply implements [engine.Change].
func (x moveStart) Apply(d *state.Draft) ([]format.Entry, error) {
	return []format.Entry{&format.StartMoved{Topic: x.topic, Start: x.start}}, nil
}

// openCollecting opens an engine that compacts, and raises the level of the log.
func openCollecting(t *testing.T, store objstore.Store) (*engine.Engine, format.TopicID) {
	t.Helper()
	e := openCompacting(t, store)
	topic := create(t, e, "t")
	if err := e.RaiseLevel(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e, topic
}

// A log of which a hundred records are live stays small, however long it runs, and what is left can be read.
func TestDeadObjectsAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		e, topic := openCollecting(t, store)
		orphan := (format.DataRef{Seq: 1, ID: 77}).Key()
		if _, err := store.Create(t.Context(), orphan, []byte("left behind by a broker that died")); err != nil {
			t.Fatal(err)
		}
		var most [3]int
		for day := range 12 {
			days(t, e, topic, 1)
			synctest.Wait()
			for i, prefix := range []string{format.LogPrefix, format.DataPrefix, format.CheckpointPrefix} {
				if n := len(keysOf(t, store, prefix)); day > 3 {
					most[i] = max(most[i], n)
				}
			}
		}
		// There is about a day of commits and checkpoints, some of which have waited for the next checkpoint to be seen.
		if most[0] > 400 || most[1] > 60 || most[2] > 60 {
			t.Errorf("up to %v commits, data objects and checkpoints", most)
		}
		for _, key := range keysOf(t, store, format.DataPrefix) {
			if key == orphan {
				t.Error("the orphan is still there")
			}
		}
		var start format.Offset
		e.View(func(s *state.State) {
			start = s.TopicByID(topic).Partitions[0].Start
			if len(s.Dead()) > 60 || s.Collected().Slot == 0 {
				t.Errorf("%d dead, %+v", len(s.Dead()), s.Collected())
			}
		})
		if got := readAll(t, store, topic, start); len(got) != 100*100 {
			t.Errorf("%d bytes", len(got))
		}
		t.Log(most)
	})
}

// lying is a store whose deletes do nothing until it is mended.
type lying struct {
	objstore.Store
	lies, deletes atomic.Int64
	refuse        atomic.Bool
}

// Delete implements [objstore.Store].
func (s *lying) Delete(ctx context.Context, key string) (time.Time, error) {
	if strings.HasPrefix(key, format.ProbePrefix) {
		return s.Store.Delete(ctx, key)
	}
	s.deletes.Add(1)
	if s.refuse.Load() {
		return time.Time{}, &objstore.Failure{Detail: "access denied", Hint: "allow DeleteObject", Setup: true, Err: errors.New("403")}
	}
	if s.lies.Add(-1) >= 0 {
		return time.Now(), nil
	}
	return s.Store.Delete(ctx, key)
}

// The log never says that an object is deleted that the store still lists.
func TestDeletesThatLieAreNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lying{Store: objstore.NewMemory()}
		store.lies.Store(300)
		e, topic := openCollecting(t, store)
		days(t, e, topic, 5)
		synctest.Wait()
		e.View(func(s *state.State) {
			bottom := s.Collected().Bottom
			if bottom < 100 {
				t.Fatalf("%+v", s.Collected())
			}
			live := map[string]bool{}
			for o := range s.AllObjects() {
				live[format.LogKey(format.Seq(o.Seq))] = live[format.LogKey(format.Seq(o.Seq))] || !o.Data
			}
			for _, key := range keysOf(t, store, format.LogPrefix) {
				if slot, _ := format.ParseSeqKey(format.LogPrefix, key); slot < bottom && !live[key] {
					t.Errorf("%s is still there", key)
				}
			}
		})
	})
}

// A broker without the permission to delete says so once, and goes on.
func TestBrokerMayNotDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lying{Store: objstore.NewMemory()}
		store.refuse.Store(true)
		e, topic := openCollecting(t, store)
		days(t, e, topic, 4)
		if n := store.deletes.Load(); n == 0 || n > 16*24*4 {
			t.Errorf("%d deletes were tried", n)
		}
		time.Sleep(24 * time.Hour)
		if r, err := e.Collect(t.Context()); objstore.SetupFailureOf(err) == nil || r != (collect.Result{}) {
			t.Errorf("%+v, %v", r, err)
		}
		if err := e.Usable(); err != nil {
			t.Error(err)
		}
	})
}

// A broker that slept while another log was restored into its bucket deletes nothing of that log.
func TestCollectorDoesNotOutliveItsBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		opts := options(t)
		opts.CheckpointCommits = 10
		e := engine.New(store, opts)
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer e.Shutdown(nil) //nolint:errcheck // the engine has stopped
		topic := create(t, e, "t")
		if err := e.RaiseLevel(t.Context()); err != nil {
			t.Fatal(err)
		}
		days(t, e, topic, 2)
		other := objstore.NewMemory()
		e2 := openCompacting(t, other)
		create(t, e2, "t")
		if err := e2.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		for _, key := range keysOf(t, store, "") {
			if _, err := store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		for _, key := range keysOf(t, other, "") {
			o, err := objstore.GetWhole(t.Context(), other, key, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Create(t.Context(), key, o.Body); err != nil {
				t.Fatal(err)
			}
		}
		before := fmt.Sprint(keysOf(t, store, ""))
		time.Sleep(48 * time.Hour) // the broker deletes what is dead on an idle log
		if _, err := e.Collect(t.Context()); !errors.Is(err, commitlog.ErrRolledBack) {
			t.Errorf("%v", err)
		}
		if after := fmt.Sprint(keysOf(t, store, "")); after != before {
			t.Errorf("the store had %s, and has %s", before, after)
		}
	})
}
