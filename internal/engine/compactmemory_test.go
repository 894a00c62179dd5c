package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// fillTail appends records whose compaction is due with the next commit, in commits of some KiB.
func fillTail(t *testing.T, e *engine.Engine, topic format.TopicID, commits int) {
	t.Helper()
	for range commits {
		appendValues(t, e, topic, strings.Repeat("0123456789abcdef", 256))
	}
	time.Sleep(2 * time.Minute)
}

// A job takes memory before it reads, has none when it commits, and gives it back wherever it fails.
func TestJobGivesMemoryBack(t *testing.T) {
	faults := map[string]func(store *storetest.Faulty) (remove func()){
		"no fault": func(*storetest.Faulty) func() { return func() {} },
		"a read fails": func(store *storetest.Faulty) func() {
			return store.On(objstore.VerbGet, format.LogPrefix, func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
				return storetest.Answer{}, errors.New("no answer")
			})
		},
		"the create fails": func(store *storetest.Faulty) func() {
			return store.On(objstore.VerbCreate, format.DataPrefix, func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
				return storetest.Answer{}, errors.New("no answer")
			})
		},
		"the store has other bytes": func(store *storetest.Faulty) func() {
			return store.On(objstore.VerbGet, format.DataPrefix, func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
				a, err := next(ctx, r)
				if err == nil {
					a.Body[len(a.Body)/2] ^= 1
				}
				return a, err
			})
		},
		"the store has fewer bytes": func(store *storetest.Faulty) func() {
			return store.On(objstore.VerbGet, format.DataPrefix, func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
				a, err := next(ctx, r)
				if err == nil {
					a.Body = a.Body[1:]
				}
				return a, err
			})
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewFaulty(storetest.Slow(objstore.NewMemory(), 50*time.Millisecond))
				var most, atCommit int64 // bytes in use while the segment is written, and while it is committed
				commits := 0
				var e *engine.Engine
				watch := func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
					most = max(most, e.Budget().InUse())
					return next(ctx, r)
				}
				e = openWith(t, store, func(o *engine.Options) { o.CheckpointCommits, o.Logger = 100, slog.New(slog.DiscardHandler) })
				topic := create(t, e, "t")
				fillTail(t, e, topic, 110)
				if used := e.Budget().InUse(); used != 0 {
					t.Fatalf("%d bytes are in use before the job", used)
				}
				e = openWith(t, store, func(o *engine.Options) { o.CheckpointCommits, o.Logger = 100, slog.New(slog.DiscardHandler) }) // with an empty cache
				store.On(objstore.VerbCreate, format.DataPrefix, watch)
				store.On(objstore.VerbCreate, format.LogPrefix, func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
					if most > 0 {
						commits++
						atCommit = max(atCommit, e.Budget().InUse())
					}
					return next(ctx, r)
				})
				remove := fault(store)
				appendValues(t, e, topic, "x") // the job is due
				time.Sleep(time.Second)
				synctest.Wait()
				levels, _ := segments(e)
				if done := levels != ""; done != (name == "no fault") {
					t.Errorf("segments %q", levels)
				}
				if most < 4096*100 && name != "a read fails" {
					t.Errorf("the job had %d bytes when it wrote the segment", most)
				}
				if atCommit != 0 || (commits > 0) != (name == "no fault") {
					t.Errorf("%d bytes were in use at %d commits", atCommit, commits)
				}
				time.Sleep(time.Minute)
				if used := e.Budget().InUse(); used != 0 {
					t.Errorf("%d bytes are in use after the job", used)
				}
				remove()
				for range 3 {
					time.Sleep(time.Minute)
					appendValues(t, e, topic, "x")
				}
				time.Sleep(time.Minute)
				if levels, _ := segments(e); levels == "" {
					t.Error("no later job succeeded")
				}
			})
		})
	}
}

// While requests fill the memory budget, a job waits. It ends when the broker shuts down.
func TestJobThatWaitsForMemoryEndsWithTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(objstore.NewMemory(), compactSoon(t))
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		topic := create(t, e, "t")
		fillTail(t, e, topic, 110)
		all := e.Budget().Limit() - 64<<10 // the rest is for the append
		if err := e.Budget().Take(t.Context(), budget.Batches, all); err != nil {
			t.Fatal(err)
		}
		appendValues(t, e, topic, "x") // the job is due
		time.Sleep(time.Minute)
		if levels, _ := segments(e); levels != "" {
			t.Fatalf("segments %q without memory", levels)
		}
		begun := time.Now()
		if err := e.Shutdown(nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the shutdown took %v", took)
		}
		if used := e.Budget().InUse(); used != all {
			t.Errorf("%d bytes are in use, want the %d of the test", used, all)
		}
	})
}

// compactSoon returns the options of an engine that compacts after 100 commits, and logs nothing.
func compactSoon(t *testing.T) engine.Options {
	opts := options(t)
	opts.CheckpointCommits, opts.Logger = 100, slog.New(slog.DiscardHandler)
	return opts
}

// With little memory, jobs are small, and together they do what one job would have done.
func TestJobsFitIntoFreeMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		e := openWith(t, store, func(o *engine.Options) { *o = compactSoon(t) })
		topic := create(t, e, "t")
		fillTail(t, e, topic, 500)
		if levels, _ := segments(e); levels != "" {
			t.Fatalf("segments %q before a job is due", levels)
		}
		limit := e.Budget().Limit()
		if err := e.Budget().Take(t.Context(), budget.Batches, limit*14/16-600<<10); err != nil { // jobs may fill 14/16
			t.Fatal(err)
		}
		for range 20 {
			appendValues(t, e, topic, "x")
			time.Sleep(time.Minute)
		}
		added, tail := 0, 0
		e.View(func(s *state.State) { added, tail = s.SegmentsAdded(), s.Batches() })
		if added < 4 || tail > 110 {
			t.Errorf("%d segments, %d batches in the tail", added, tail)
		}
	})
}

// A commit that is larger than what a job gets for certain is compacted all the same, when there is memory.
func TestCommitLargerThanAJobIsCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWith(t, objstore.NewMemory(), func(o *engine.Options) { *o = compactSoon(t) })
		topic := create(t, e, "t")
		appendValues(t, e, topic, strings.Repeat("x", 5<<20)) // of 16 MiB; a job has 4 MiB
		fillTail(t, e, topic, 110)
		for range 3 {
			appendValues(t, e, topic, "x")
			time.Sleep(time.Minute)
		}
		if levels, tail := segments(e); levels == "" || tail > 20 {
			t.Errorf("segments %q, %d batches", levels, tail)
		}
	})
}

// Waiting for memory is no work: a job that got none does not keep compaction from going on as soon as there is memory.
func TestJobWithoutMemoryIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWith(t, objstore.NewMemory(), func(o *engine.Options) { *o = compactSoon(t) })
		topic := create(t, e, "t")
		appendValues(t, e, topic, strings.Repeat("x", 5<<20)) // more than the job gets
		fillTail(t, e, topic, 110)
		all := e.Budget().Limit() - 2<<20
		if err := e.Budget().Take(t.Context(), budget.Batches, all); err != nil {
			t.Fatal(err)
		}
		appendValues(t, e, topic, "x") // the job is due
		time.Sleep(2 * time.Minute)
		if levels, _ := segments(e); levels != "" {
			t.Fatalf("segments %q without memory", levels)
		}
		e.Budget().Give(budget.Batches, all)
		appendValues(t, e, topic, "x")
		time.Sleep(time.Minute)
		if levels, _ := segments(e); levels == "" {
			t.Error("there is memory again, but compaction does not go on")
		}
	})
}

// A merge reads each of its inputs in windows, and neighbours in one window with one request.
func TestMergeReadsInWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		was := engine.Compaction
		t.Cleanup(func() { engine.Compaction = was })
		engine.Compaction.BatchBytes = 1000 // the batches of a segment stay small
		store := storetest.NewFaulty(objstore.NewMemory())
		var topics []format.TopicID
		e := openWith(t, store, func(o *engine.Options) { *o = compactSoon(t) })
		for _, name := range strings.Split("abcdefghij", "") {
			topics = append(topics, create(t, e, name))
		}
		for range 5 {
			for i := range 110 {
				appendValues(t, e, topics[i%10], strings.Repeat("0123456789abcdef", 32))
			}
			time.Sleep(2 * time.Minute)
		}
		appendValues(t, e, topics[0], "x")
		synctest.Wait()
		if levels, _ := segments(e); levels != "11111" {
			t.Fatalf("segments %q", levels)
		}
		e = openWith(t, store, func(o *engine.Options) { *o = compactSoon(t) }) // with an empty cache
		engine.Compaction.Group = 4
		before := e.StoreUseFor(format.CauseCompact)
		appendValues(t, e, topics[0], "x")
		synctest.Wait()
		used := e.StoreUseFor(format.CauseCompact).Minus(before)
		if levels, _ := segments(e); levels != "12" && levels != "21" {
			t.Fatalf("segments %q", levels)
		}
		// A GET for each table, one for each input, and one that reads the new segment back.
		if used.Gets != 4+4+1 || used.Creates != 1 {
			t.Errorf("%+v", used)
		}
	})
}
