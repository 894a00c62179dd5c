package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

const latency = 30 * time.Millisecond // of a slow store

// readPages reads a partition from an offset on, in pages of so many records, by a cursor for each page, and at most so many pages.
func readPages(t *testing.T, e *engine.Engine, topic format.TopicID, partition format.Partition, records, most int) string {
	t.Helper()
	var (
		got    sink
		offset format.Offset
	)
	for range most {
		c := e.NewCursor("t", topic, partition, offset)
		_, end, err := c.Next(t.Context(), engine.ReadOptions{Records: records, Bytes: 1 << 20}, &got)
		if err != nil {
			t.Fatalf("offset %d: %v", offset, err)
		}
		if offset = c.Offset; offset == end {
			break
		}
	}
	return got.text
}

// commits writes commits that have a record of each of the topics "t" and "u", and returns the store, the id of t, and its values.
func commits(t *testing.T, n int) (store *storetest.Faulty, topic format.TopicID, values []string) {
	t.Helper()
	store = storetest.NewFaulty(objstore.NewMemory())
	e := openWith(t, store, func(*engine.Options) {})
	topic = create(t, e, "t")
	other := create(t, e, "u")
	for i := range n {
		values = append(values, fmt.Sprintf("<%d>", i))
		commit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, values[i]), appending(other, "other")}})
	}
	if got := readPages(t, e, topic, 0, 50, n); got != strings.Join(values, "") {
		t.Errorf("read %q", got)
	}
	if readers, bytes, _ := e.Ahead(); readers > 0 || bytes > 0 || e.StoreUseFor(format.CauseRead).Gets > 0 {
		t.Errorf("for a reader of what is in memory, %d readers are known, and %d bytes are read ahead", readers, bytes)
	}
	if err := e.Shutdown(nil); err != nil {
		t.Fatal(err)
	}
	return store, topic, values
}

// opened opens an engine with an empty cache, and lets the store be slow from then on.
func opened(t *testing.T, store *storetest.Faulty, set func(*engine.Options)) *engine.Engine {
	t.Helper()
	e := openWith(t, store, set)
	store.On(objstore.VerbGet, "", storetest.Delay(latency))
	return e
}

func TestReaderOfCommitsIsReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count, page = 600, 20
		store, topic, values := commits(t, count)
		e := opened(t, store, func(*engine.Options) {})
		begun := time.Now()
		if got := readPages(t, e, topic, 0, page, count); got != strings.Join(values, "") {
			t.Errorf("read %q", got)
		}
		if took := time.Since(begun); took > 8*latency {
			t.Errorf("%d pages took %v on a store that takes %v for a request", count/page, took, latency)
		}
		if use := e.StoreUseFor(format.CauseRead); use.Gets != count {
			t.Errorf("%d requests for %d commits", use.Gets, count)
		}
		// A read puts the neighbours of what it reads into the cache, reading ahead does not.
		if n := e.CachedEntries(); n > count+3*page {
			t.Errorf("after %d records were read, the cache has %d batches", count, n)
		}
		synctest.Wait()
		if readers, bytes, requests := e.Ahead(); readers > 0 || bytes > 0 || requests > 0 {
			t.Errorf("for a reader that has caught up, %d readers are known, with %d bytes and %d requests", readers, bytes, requests)
		}
	})
}

func TestRandomReadsReadNothingAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 50
		store, topic, values := commits(t, count)
		e := opened(t, store, func(*engine.Options) {})
		for i := count - 1; i >= 0; i -= 2 {
			var got sink
			if _, _, err := e.NewCursor("t", topic, 0, format.Offset(i)).Next(t.Context(), engine.ReadOptions{Records: 1, Bytes: 1}, &got); err != nil || got.text != values[i] {
				t.Fatalf("offset %d: %q, %v", i, got.text, err)
			}
		}
		synctest.Wait()
		if use := e.StoreUseFor(format.CauseRead); use.Gets != count/2 {
			t.Errorf("%d requests for %d reads", use.Gets, count/2)
		}
		if _, bytes, _ := e.Ahead(); bytes > 0 {
			t.Errorf("%d bytes are read ahead", bytes)
		}
	})
}

// A reader of single records makes the engine read little ahead, however many records follow.
func TestReaderOfFewRecordsReadsLittleAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count, read = 600, 5
		store, topic, _ := commits(t, count)
		e := opened(t, store, func(*engine.Options) {})
		readPages(t, e, topic, 0, 1, read)
		time.Sleep(6 * time.Second)
		if use := e.StoreUseFor(format.CauseRead); use.Gets > 8*read+16 {
			t.Errorf("%d requests for %d records", use.Gets, read)
		}
	})
}

// What is read ahead for a reader that goes away is bounded, and its requests end.
func TestReaderThatGoesAwayIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 600
		store, topic, _ := commits(t, count)
		e := opened(t, store, func(*engine.Options) {})
		for slot := format.Seq(30); slot < count; slot++ {
			store.On(objstore.VerbGet, format.LogKey(slot), storetest.Delay(time.Hour))
		}
		readPages(t, e, topic, 0, 10, 2)
		synctest.Wait()
		if readers, _, requests := e.Ahead(); readers != 1 || requests < 50 || requests > 8*20 {
			t.Errorf("after two pages, %d readers are known, with %d requests", readers, requests)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if readers, bytes, requests := e.Ahead(); readers > 0 || bytes > 0 || requests > 0 {
			t.Errorf("of a reader that has gone away, %d readers are known, with %d bytes and %d requests", readers, bytes, requests)
		}
	})
}

// A request that fails, or returns damaged bytes, while it reads ahead fails no reader.
func TestFailureOfReadingAheadFailsNoReader(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{"error": storetest.Fail, "damage": storetest.FlipByte(-1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, topic, values := commits(t, 200)
				e := opened(t, store, func(o *engine.Options) { o.Logger = slog.New(slog.DiscardHandler) })
				store.On(objstore.VerbGet, "log/", storetest.After(40, storetest.Times(2, fault)))
				begun := time.Now()
				if got := readPages(t, e, topic, 0, 10, 200); got != strings.Join(values, "") {
					t.Errorf("read %q", got)
				}
				if took := time.Since(begun); took > time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// The engine ends although requests that read ahead hang.
func TestShutdownEndsReadingAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, topic, _ := commits(t, 200)
		opts := options(t)
		e := engine.New(store, opts)
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		for slot := format.Seq(30); slot < 200; slot++ {
			store.On(objstore.VerbGet, format.LogKey(slot), storetest.Delay(time.Hour))
		}
		readPages(t, e, topic, 0, 10, 2)
		synctest.Wait()
		if _, _, requests := e.Ahead(); requests == 0 {
			t.Error("nothing is read ahead")
		}
		begun := time.Now()
		if err := e.Shutdown(nil); err != nil || time.Since(begun) > time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}

// Readers of all partitions of a topic share the requests for its commits.
func TestPartitionsShareWhatIsReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count, partitions = 300, 3
		store := storetest.NewFaulty(objstore.NewMemory())
		e := openWith(t, store, func(*engine.Options) {})
		const topic = format.TopicID(1)
		putEntries(t, e, &format.TopicCreated{ID: topic, Partitions: partitions, Name: "t"})
		for i := range count {
			var appends []*engine.Append
			for p := range format.Partition(partitions) {
				a := appending(topic, fmt.Sprintf("<%d/%d>", p, i))
				a.Partition = p
				appends = append(appends, a)
			}
			commit(t, e, &engine.Request{Appends: appends})
		}
		if err := e.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		e = opened(t, store, func(*engine.Options) {})
		for p := range format.Partition(partitions) {
			if got := readPages(t, e, topic, p, 10, count); strings.Count(got, "<") != count || !strings.HasSuffix(got, fmt.Sprintf("<%d/%d>", p, count-1)) {
				t.Errorf("partition %d: %q", p, got)
			}
		}
		if use := e.StoreUseFor(format.CauseRead); use.Gets != count {
			t.Errorf("%d requests for %d commits", use.Gets, count)
		}
	})
}

// What is read ahead is counted by what the requests ask for: whole commits, of which the topic has a small part.
func TestLargeCommitsAreReadAheadWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count, memory = 60, 64 << 20
		store := storetest.NewFaulty(objstore.NewMemory())
		e := openWith(t, store, func(o *engine.Options) { o.Memory = memory })
		putEntries(t, e, &format.TopicCreated{ID: 1, Partitions: 2, Name: "t"}, &format.TopicCreated{ID: 2, Partitions: 1, Name: "u"})
		r := rand.New(rand.NewPCG(1, 2))
		for i := range count {
			large := appending(2, noise(r, 900<<10))
			large.Bytes = 1 << 20
			commit(t, e, &engine.Request{Appends: []*engine.Append{appending(1, fmt.Sprintf("<%d>", i)), large}})
		}
		if err := e.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		e = opened(t, store, func(o *engine.Options) { o.Memory = memory })
		var (
			got  sink
			most int64
		)
		for c := e.NewCursor("t", 1, 0, 0); c.Offset < count; {
			if _, _, err := c.Next(t.Context(), engine.ReadOptions{Records: 2, Bytes: 1 << 20}, &got); err != nil {
				t.Fatal(err)
			}
			_, bytes, _ := e.Ahead()
			most = max(most, bytes)
		}
		if strings.Count(got.text, "<") != count || most == 0 || most > memory/8+1<<20 {
			t.Errorf("read %d records, %d bytes ahead", strings.Count(got.text, "<"), most)
		}
		synctest.Wait()
		if n := e.CachedEntries(); n > count+8 {
			t.Errorf("the cache has %d batches", n)
		}
	})
}

// Segments are read ahead in large requests, several at once, and never further than the memory allows.
func TestReaderOfSegmentsIsReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count, size, memory = 320, 64 << 10, 64 << 20
		store := storetest.NewFaulty(objstore.NewMemory())
		e := openWith(t, store, func(o *engine.Options) { o.CheckpointCommits, o.Memory = 10, memory })
		topic := create(t, e, "t")
		r := rand.New(rand.NewPCG(1, 2))
		var want strings.Builder
		for range count {
			v := noise(r, size)
			a := appending(topic, v)
			a.Bytes = size + 1024
			commit(t, e, &engine.Request{Appends: []*engine.Append{a}})
			want.WriteString(v)
		}
		for range 30 {
			time.Sleep(10 * time.Minute)
			other := create(t, e, fmt.Sprint(time.Now().Unix()))
			appendValues(t, e, other, "x")
		}
		synctest.Wait()
		tail := 0
		e.View(func(s *state.State) {
			for _, l := range s.Locate(nil, s.TopicByID(topic), 0, 0, 1<<40, 1<<20) {
				if l.Segment == nil {
					tail++
				}
			}
		})
		if tail > 0 {
			t.Fatalf("%d batches are in no segment", tail)
		}
		if err := e.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		var (
			mu              sync.Mutex
			sizes           []int64
			under, at, most int64
		)
		store.On(objstore.VerbGet, "data/", func(ctx context.Context, x storetest.Request, next storetest.Next) (storetest.Answer, error) {
			mu.Lock()
			sizes, under = append(sizes, x.N), under+1
			at = max(at, under)
			mu.Unlock()
			answer, err := next(ctx, x)
			mu.Lock()
			under--
			mu.Unlock()
			return answer, err
		})
		e = opened(t, store, func(o *engine.Options) { o.Memory = memory })
		sizes = nil
		var got sink
		begun := time.Now()
		for c := e.NewCursor("t", topic, 0, 0); ; {
			_, end, err := c.Next(t.Context(), engine.ReadOptions{Records: 8, Bytes: 1 << 20}, &got)
			if err != nil {
				t.Fatal(err)
			}
			if c.Offset == end {
				break
			}
			_, bytes, _ := e.Ahead()
			most = max(most, bytes)
		}
		took := time.Since(begun)
		if got.text != want.String() {
			t.Error("it reads other records")
		}
		var sum, large int64
		for _, n := range sizes {
			if sum += n; n >= 1<<20 {
				large += n
			}
		}
		t.Logf("%d requests for %d bytes, %d of them in large ones, %d at once, %d bytes ahead, in %v", len(sizes), sum, large, at, most, took)
		switch whole := int64(count * size); {
		case sum > whole*11/10:
			t.Errorf("%d bytes were read for %d", sum, whole)
		case large < whole*7/10:
			t.Errorf("only %d bytes of %d came in requests of 1 MiB or more", large, whole)
		case at < 4 || took > 15*latency:
			t.Errorf("at most %d requests were under way at once, and reading took %v", at, took)
		case most > memory/8+1<<20:
			t.Errorf("%d bytes were read ahead", most)
		}
	})
}

// A reader of one topic in large commits, which share nothing with it, asks for its own batches, and caches no others. At the end of
// the partition, where others read too, it reads all of a commit.
func TestReaderOfLargeCommitsAsksForItsBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count, others, size = 300, 50, 2000
		store := storetest.NewFaulty(objstore.NewMemory())
		e := openWith(t, store, func(*engine.Options) {})
		topic := create(t, e, "t")
		var ids []format.TopicID
		for i := range others {
			ids = append(ids, create(t, e, fmt.Sprint("other", i)))
		}
		r := rand.New(rand.NewPCG(1, 2))
		var want strings.Builder
		for i := range count {
			fmt.Fprintf(&want, "<%d>", i)
			appends := []*engine.Append{appending(topic, fmt.Sprintf("<%d>", i))}
			for _, id := range ids {
				appends = append(appends, appending(id, noise(r, size)))
			}
			commit(t, e, &engine.Request{Appends: appends})
		}
		if err := e.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		e = opened(t, store, func(*engine.Options) {})
		var most int64
		var mu sync.Mutex
		store.On(objstore.VerbGet, "log/", func(ctx context.Context, x storetest.Request, next storetest.Next) (storetest.Answer, error) {
			mu.Lock()
			most = max(most, x.N)
			mu.Unlock()
			return next(ctx, x)
		})
		var got sink
		c := e.NewCursor("t", topic, 0, 0)
		for c.Offset < count-20 {
			if _, _, err := c.Next(t.Context(), engine.ReadOptions{Records: 20, Bytes: 1 << 20}, &got); err != nil {
				t.Fatal(err)
			}
		}
		if n := e.CachedEntries(); n > count || most > 1000 {
			t.Errorf("the cache has %d batches, the largest request was for %d bytes", n, most)
		}
		if _, _, err := c.Next(t.Context(), engine.ReadOptions{Records: 20, Bytes: 1 << 20}, &got); err != nil || got.text != want.String() {
			t.Errorf("read %d bytes of %d, %v", len(got.text), want.Len(), err)
		}
		synctest.Wait()
		if use := e.StoreUseFor(format.CauseRead); use.Gets != count {
			t.Errorf("%d requests for %d commits", use.Gets, count)
		}
		if _, _, err := e.NewCursor("other0", ids[0], 0, count-1).Next(t.Context(), engine.ReadOptions{Records: 20, Bytes: 1 << 20}, &got); err != nil {
			t.Fatal(err)
		}
		if n := e.CachedEntries(); n < count+others/2 {
			t.Errorf("the cache has %d batches after a read of the last commit", n)
		}
	})
}

// The tables of the segments that follow are read side by side: else a reader of small ranges would wait for one after the other.
func TestTablesOfSegmentsAreReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count, size = 200, 8 << 10
		group := engine.Compaction.Group
		engine.Compaction.Group = 1000
		defer func() { engine.Compaction.Group = group }()
		store := storetest.NewFaulty(objstore.NewMemory())
		e := openWith(t, store, func(o *engine.Options) { o.CheckpointCommits = 10 })
		topic := create(t, e, "t")
		r := rand.New(rand.NewPCG(1, 2))
		var want strings.Builder
		for range count {
			v := noise(r, size)
			commit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, v)}})
			want.WriteString(v)
			time.Sleep(time.Minute)
		}
		for range 30 {
			time.Sleep(10 * time.Minute)
			other := create(t, e, fmt.Sprint(time.Now().Unix()))
			appendValues(t, e, other, "x")
		}
		synctest.Wait()
		segments := 0
		e.View(func(s *state.State) {
			for at := format.Offset(0); at < count; segments++ {
				l := s.Locate(nil, s.TopicByID(topic), 0, at, 1, 1)[0]
				at = l.End()
			}
		})
		if segments < 15 {
			t.Fatalf("the records are in %d segments", segments)
		}
		if err := e.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		e = opened(t, store, func(*engine.Options) {})
		begun := time.Now()
		if got := readPages(t, e, topic, 0, 20, count); got != want.String() {
			t.Error("it reads other records")
		}
		// One after the other, the tables alone would take segments * latency.
		if took := time.Since(begun); took > time.Duration(segments)*latency*2/3 {
			t.Errorf("%d segments took %v", segments, took)
		}
	})
}
