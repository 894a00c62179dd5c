package engine_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// openCompacting opens an engine that compacts after 10 commits.
func openCompacting(t *testing.T, store objstore.Store) *engine.Engine {
	t.Helper()
	return openWith(t, store, func(o *engine.Options) { o.CheckpointCommits = 10 })
}

// segments returns the levels of the log's segments, and how many batches are in the tail.
func segments(e *engine.Engine) (levels string, tail int) {
	e.View(func(s *state.State) {
		for _, n := range s.Segments() {
			levels += fmt.Sprint(n.Level)
		}
		tail = s.Batches()
	})
	return levels, tail
}

// readAll reads a partition from an offset on, by an engine with an empty cache.
func readAll(t *testing.T, store objstore.Store, topic format.TopicID, from format.Offset) string {
	t.Helper()
	e := open(t, store)
	var got sink
	c := e.NewCursor("t", topic, 0, from)
	for {
		before := c.Offset
		_, end, err := c.Next(t.Context(), engine.ReadOptions{Records: 7, Bytes: 1 << 20}, &got)
		if err != nil {
			t.Fatalf("offset %d: %v", before, err)
		}
		if c.Offset == end {
			return got.text
		}
	}
}

func TestCompactedRecordsAreReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		e := openCompacting(t, store)
		topics := []format.TopicID{create(t, e, "t"), create(t, e, "u")}
		want := map[format.TopicID]string{}
		add := func(commits int) {
			for i := range commits {
				for _, topic := range topics {
					v := fmt.Sprintf("<%d/%d>", topic, len(want[topic])+i)
					appendValues(t, e, topic, v, "x")
					want[topic] += v + "x"
				}
			}
		}
		add(20)
		if levels, tail := segments(e); levels != "" || tail != 40 {
			t.Fatalf("before the level is raised: segments %q, %d batches", levels, tail)
		}
		if err := e.RaiseLevel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.RaiseLevel(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			add(15)
			time.Sleep(2 * time.Minute)
		}
		add(1)
		synctest.Wait()
		levels, tail := segments(e)
		if levels == "" || tail > 60 {
			t.Fatalf("segments %q, %d batches", levels, tail)
		}
		t.Log(levels, tail)
		for _, topic := range topics {
			if got := readAll(t, store, topic, 0); got != want[topic] {
				t.Errorf("read %q, want %q", got, want[topic])
			}
			for _, from := range []format.Offset{1, 2, 33, 77, 150} {
				got := readAll(t, store, topic, from)
				if !strings.HasSuffix(want[topic], got) || strings.Count(got, "x") != strings.Count(want[topic], "x")-int(from)/2 {
					t.Errorf("from %d: %q", from, got)
				}
			}
		}
	})
}

// A broker goes on where another one has stopped, from a checkpoint, and merges.
func TestSegmentsAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		e, topic := openCollecting(t, store)
		r := rand.New(rand.NewPCG(1, 2))
		var want strings.Builder
		for i := range 40 {
			for range 11 {
				v := fmt.Sprintf("<%d>", r.IntN(1000))
				appendValues(t, e, topic, v)
				want.WriteString(v)
			}
			time.Sleep(2 * time.Minute)
			if i%13 == 12 {
				if err := e.Shutdown(nil); err != nil {
					t.Fatal(err)
				}
				e = openCompacting(t, store)
			}
		}
		appendValues(t, e, topic, "end")
		want.WriteString("end")
		synctest.Wait()
		levels, tail := segments(e)
		if !strings.Contains(levels, "2") || len(levels) > 32 || tail > 30 {
			t.Fatalf("segments %q, %d batches", levels, tail)
		}
		if got := readAll(t, store, topic, 0); got != want.String() {
			t.Errorf("read %q, want %q", got, want.String())
		}
	})
}

// A log that fills the memory for the state makes room by itself once its level allows that.
func TestFullStateMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		opts := options(t)
		opts.StateMemory, opts.CheckpointCommits = 256<<10, 100
		e := engine.New(store, opts)
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := e.Shutdown(nil); err != nil {
				t.Error(err)
			}
		}()
		begun, topic := time.Now(), create(t, e, "t")
		add := func(value string) error {
			return submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, value)}}).Wait(t.Context())
		}
		n := 0
		for add("x") == nil {
			n++
		}
		time.Sleep(time.Hour)
		if _, full := errors.AsType[*engine.StateFullError](add("x")); !full || n < 1000 {
			t.Fatalf("after %d appends the state is full: %v", n, full)
		}
		if err := e.RaiseLevel(t.Context()); err != nil {
			t.Fatal(err)
		}
		for add("x") != nil { // a client tries again
			time.Sleep(time.Second)
			if time.Since(begun) > 3*time.Hour {
				t.Fatal("the state stays full")
			}
		}
		n++
		time.Sleep(time.Minute)
		e.View(func(s *state.State) {
			if s.Memory() > opts.StateMemory/8 {
				t.Errorf("the state takes %d of %d bytes", s.Memory(), opts.StateMemory)
			}
		})
		for range 10 {
			appendValues(t, e, topic, "y")
		}
		if got, want := readAll(t, store, topic, 0), strings.Repeat("x", n)+strings.Repeat("y", 10); got != want {
			t.Errorf("read %d bytes, want %d", len(got), len(want))
		}
	})
}

// A batch that is missing stays where it is, and holds up nothing else.
func TestMissingBatchHoldsUpNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		e, topic := openCollecting(t, store)
		for i := range 8 {
			appendValues(t, e, topic, fmt.Sprintf("<%d>", i))
		}
		lost := e.Applied() - 3 // the slot of <4>
		if err := e.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		opts := options(t)
		opts.CheckpointCommits, opts.Logger = 10, slog.New(slog.DiscardHandler)
		e = engine.New(store, opts)
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := e.Shutdown(nil); err != nil {
				t.Error(err)
			}
		}()
		if _, err := store.Delete(t.Context(), format.LogKey(lost)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		for i := range 12 {
			appendValues(t, e, topic, fmt.Sprintf("<%d>", 8+i))
			time.Sleep(time.Minute)
		}
		levels, tail := segments(e)
		if levels == "" || tail > 12 {
			t.Fatalf("segments %q, %d batches", levels, tail)
		}
		for i := range format.Offset(20) {
			var got sink
			_, _, err := e.NewCursor("t", topic, 0, i).Next(t.Context(), engine.ReadOptions{Records: 1, Bytes: 1}, &got)
			if _, isLost := errors.AsType[*engine.DataLostError](err); isLost != (i == 4) || !isLost && got.text != fmt.Sprintf("<%d>", i) {
				t.Errorf("offset %d: %q, %v", i, got.text, err)
			}
		}
	})
}

// While commits come fast, the newest minute alone has more commits than a job needs. Jobs still wait until as many are older.
func TestJobsOfAFastLogAreNotSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := options(t)
		opts.CheckpointCommits = 500
		e := engine.New(storetest.Slow(objstore.NewMemory(), time.Millisecond), opts)
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		topic := create(t, e, "t")
		for begun := time.Now(); time.Since(begun) < 10*time.Minute; {
			appendValues(t, e, topic, "x")
			time.Sleep(10 * time.Millisecond)
		}
		var commits, jobs int
		e.View(func(s *state.State) { commits, jobs = int(s.Seq()), s.SegmentsAdded() })
		if most := commits/500*34/32 + 1; jobs > most || jobs < commits/500/2 { // and a merge of each 32
			t.Errorf("%d segments for %d commits, at most %d were expected", jobs, commits, most)
		}
		if err := e.Shutdown(nil); err != nil {
			t.Error(err)
		}
	})
}

// What the log keeps in the store counts, wherever compaction has moved it, until it is deleted.
func TestStoredBytesCountSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		e, topic := openCollecting(t, store)
		days(t, e, topic, 1)
		synctest.Wait()
		size := func(prefix string) (n int64) {
			for _, key := range keysOf(t, store, prefix) {
				o, err := objstore.GetWhole(t.Context(), store, key, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				n += int64(len(o.Body))
			}
			return n
		}
		var bytes int64
		e.View(func(s *state.State) { _, bytes = s.Stored() })
		if data, all := size(format.DataPrefix), size(format.DataPrefix)+size(format.LogPrefix); data == 0 || bytes < data || bytes > all {
			t.Errorf("%d bytes count as stored; the store has %d bytes of segments, and %d with commits", bytes, data, all)
		}
	})
}

// Each part of an engine has its own requests, and together they are all.
func TestRequestsAreCountedByCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		e, topic := openCollecting(t, store)
		days(t, e, topic, 3)
		time.Sleep(5 * 24 * time.Hour)
		synctest.Wait()
		sum, used := format.StoreUse{}, map[format.Cause]format.StoreUse{}
		for _, cause := range engine.Causes {
			u := e.StoreUseFor(cause)
			used[cause], sum = u, sum.Plus(u)
		}
		if sum != e.StoreUse() {
			t.Errorf("the parts are %+v, the whole %+v", sum, e.StoreUse())
		}
		var commits int64
		e.View(func(s *state.State) { commits = int64(s.Seq()) })
		for what, ok := range map[string]bool{
			"appends create commits":                           used[format.CauseAppend].Creates == commits,
			"checkpoints are created, and read back":           used[format.CauseCheckpoint].Creates > 0 && used[format.CauseCheckpoint].Gets == used[format.CauseCheckpoint].Creates,
			"compaction creates segments, and reads them back": used[format.CauseCompact].Creates > 0 && used[format.CauseCompact].Gets >= used[format.CauseCompact].Creates,
			"deletion deletes, and lists what is left":         used[format.CauseDelete].Deletes > 0 && used[format.CauseDelete].Lists > 0,
			"only deletion and the test of the store delete":   used[format.CauseDelete].Deletes+used[format.CauseStart].Deletes == sum.Deletes,
			"nothing is created to follow the log, or to read": used[format.CauseFollow].Creates == 0 && used[format.CauseRead].Creates == 0,
			"opening the log lists it":                         used[format.CauseStart].Lists > 0,
			"what is in the cache is not read from the store":  used[format.CauseRead] == format.StoreUse{},
		} {
			if !ok {
				t.Errorf("it is not so that %s: %+v", what, used)
			}
		}
	})
}
