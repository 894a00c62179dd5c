package engine_test

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/internal/test/cputime"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// BenchmarkCompact does jobs of compaction of level 1 on a store in memory: it reads commits of ten JSON records of about 1 KiB from
// the store, builds segments, writes them, reads them back and commits them.
func BenchmarkCompact(b *testing.B) {
	const commits, perCommit = 6400, 10
	was := engine.Compaction
	b.Cleanup(func() { engine.Compaction = was })
	engine.Compaction.TailAge = 0
	store := objstore.NewMemory()
	e := openBench(b, 1<<30, store)
	topic := benchTopics(b, e, 1)[0]
	r := rand.New(rand.NewPCG(1, 2))
	var in int64
	for range commits {
		var vs []string
		for range perCommit {
			vs = append(vs, jsonRecord(r, 1000))
			in += int64(len(vs[len(vs)-1]))
		}
		if err := e.Commit(b.Context(), &engine.Request{Appends: []*engine.Append{appending(topic, vs...)}}); err != nil {
			b.Fatal(err)
		}
	}
	if err := e.Shutdown(nil); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(in)
	var used time.Duration
	jobs, loops, moved := 0, 0, int64(0)
	for b.Loop() {
		b.StopTimer()
		e := openBench(b, 1, copyOf(b, store))
		begun := cputime.Used(b)
		b.StartTimer()
		done, err := e.CollectAll(b.Context(), func(engine.Cleanup, int) {})
		b.StopTimer()
		if err != nil || done.Jobs == 0 {
			b.Fatal(done, err)
		}
		used += cputime.Used(b) - begun
		moved = done.Bytes
		jobs, loops = jobs+done.Jobs, loops+1
		e.View(func(s *state.State) {
			if s.Batches() > 1 {
				b.Fatal(s.Batches(), "batches are in the tail")
			}
		})
		e.End()
		if err := e.Shutdown(nil); err != nil {
			b.Log(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(in)*float64(loops)/1e6/used.Seconds(), "MB/cpu-s")
	b.ReportMetric(float64(moved)/1e6, "MB-moved")
	b.ReportMetric(float64(jobs)/float64(loops), "jobs")
}

// copyOf returns a store with the same objects.
func copyOf(b *testing.B, from objstore.Store) objstore.Store {
	b.Helper()
	to := objstore.NewMemory()
	for _, key := range keysOf(b, from, "") {
		o, err := objstore.GetWhole(b.Context(), from, key, 1<<30)
		if err == nil {
			_, err = to.Create(b.Context(), key, o.Body)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return to
}

// openBench opens an engine with the memory of a broker with default settings.
func openBench(b *testing.B, checkpointCommits int, store objstore.Store) *engine.Engine {
	b.Helper()
	began := time.Now()
	e := engine.New(store, engine.Options{
		Batching: timed{}, AppendTimeout: 30 * time.Second, StaleMax: time.Second, CheckpointCommits: checkpointCommits, CheckpointLarge: 1 << 20,
		IdempotencyKeys: 100, Memory: engine.DefaultMemory, StateMemory: 256 << 20, Session: format.SessionID{1}, DeleteDelay: 24 * time.Hour, Margin: time.Hour,
		Logger: slog.New(slog.DiscardHandler), Boot: func() time.Duration { return time.Since(began) }, Wall: time.Now,
	})
	if err := e.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	return e
}

// benchTopics creates topics.
func benchTopics(b *testing.B, e *engine.Engine, n int) (topics []format.TopicID) {
	b.Helper()
	for i := range n {
		ticket, err := e.Submit(b.Context(), &engine.Request{Change: createTopic(fmt.Sprint("t", i)), Synced: true})
		if err == nil {
			err = ticket.Wait(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		topics = append(topics, ticket.Entries()[0].(*format.TopicCreated).ID)
	}
	return topics
}

// jsonRecord returns JSON of some bytes: names that repeat, and numbers that don't.
func jsonRecord(r *rand.Rand, size int) string {
	v := fmt.Appendf(nil, `{"customer":"c-%d","order":%d,"lines":[`, r.IntN(1000), r.IntN(1_000_000))
	for len(v) < size {
		v = fmt.Appendf(v, `{"sku":"%08x","count":%d,"price":%d.%02d,"note":"as ordered"},`, r.Uint32(), r.IntN(20), r.IntN(500), r.IntN(100))
	}
	return string(append(v, "]}"...))
}

var (
	appendRounds = flag.Int("append.rounds", 5, "how often BenchmarkAppendsWhileCompacting measures each with and without compaction")
	appendLasts  = flag.Duration("append.lasts", 4*time.Second, "how long each measurement of BenchmarkAppendsWhileCompacting lasts")
)

// BenchmarkAppendsWhileCompacting compares appends while jobs of compaction run with appends without, in turn, on a store in memory
// whose requests take 5 ms. The store, the engine and the clients share the processors. The ratios are those of medians. Run it with
// -benchtime 1x.
func BenchmarkAppendsWhileCompacting(b *testing.B) {
	for _, x := range []appendLoad{
		{name: "half of saturation", topics: 1, size: 10_000},
		{name: "4 commits a second to 64 partitions", topics: 64, size: 100, every: time.Second / 4},
		{name: "4 commits a second to 1000 topics", topics: 1000, size: 100, every: time.Second / 4},
	} {
		b.Run(strings.ReplaceAll(x.name, " ", "-"), func(b *testing.B) {
			for range b.N {
				x.compare(b)
			}
		})
	}
}

type appendLoad struct {
	name   string
	topics int           // that each request has a record for
	size   int           // bytes of a record
	every  time.Duration // between two requests; 0: half as many as the engine can take
}

func (x appendLoad) compare(b *testing.B) {
	was := engine.Compaction
	defer func() { engine.Compaction = was }()
	if x.every == 0 {
		_, n, _ := x.run(b, false, 64)
		x.every = 2 * *appendLasts / time.Duration(n)
	}
	var with, without struct{ rates, p99s []float64 }
	jobs := 0
	for range *appendRounds {
		for _, compacts := range []bool{false, true} {
			of := &without
			if compacts {
				of = &with
			}
			p99, n, done := x.run(b, compacts, 0)
			of.rates, of.p99s = append(of.rates, float64(n)/appendLasts.Seconds()), append(of.p99s, p99.Seconds()*1000)
			jobs += done
		}
	}
	if jobs == 0 {
		b.Fatal("no job was done: the measurements are too short")
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(without.rates), "requests/s")
	b.ReportMetric(median(without.p99s), "p99-ms")
	b.ReportMetric(median(with.rates)/median(without.rates), "rate-ratio")
	b.ReportMetric(median(with.p99s)/median(without.p99s), "p99-ratio")
	b.ReportMetric(float64(jobs)/float64(*appendRounds), "jobs")
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

// run appends for some time: each client sends a request after the other, or requests come at their times if there are no clients. It
// returns the 99th percentile of their latencies, how many were committed, and how many jobs of compaction were done.
func (x appendLoad) run(b *testing.B, compacts bool, clients int) (p99 time.Duration, n, jobs int) {
	b.Helper()
	engine.Compaction.TailAge = 0
	engine.Compaction.Rows = max(10*x.topics, 1000) // so that jobs begin in each measurement
	if !compacts {
		engine.Compaction.TailAge = time.Hour
	}
	e := openBench(b, 1000, storetest.Slow(objstore.NewMemory(), 5*time.Millisecond))
	topics := benchTopics(b, e, x.topics)
	var request []*engine.Append
	r := rand.New(rand.NewPCG(1, 2))
	for _, topic := range topics {
		request = append(request, &engine.Append{ID: topic, Topic: "t", Count: 1, Bytes: int64(x.size) + 1024, IfEnd: -1, Records: values{jsonRecord(r, x.size)}})
	}
	var (
		mu   sync.Mutex
		took []time.Duration
		g    errgroup.Group
	)
	one := func(since time.Time) error {
		appends := make([]*engine.Append, len(request))
		for i, a := range request {
			copied := *a
			appends[i] = &copied
		}
		err := e.Commit(b.Context(), &engine.Request{Appends: appends})
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(since))
		return err
	}
	end := time.Now().Add(*appendLasts)
	for range clients {
		g.Go(func() error {
			for time.Now().Before(end) {
				if err := one(time.Now()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if clients == 0 {
		tick := time.NewTicker(min(x.every, 5*time.Millisecond))
		for next := time.Now(); next.Before(end); <-tick.C {
			for ; next.Before(time.Now()); next = next.Add(x.every) {
				due := next
				g.Go(func() error { return one(due) })
			}
		}
		tick.Stop()
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	e.View(func(s *state.State) { jobs = s.SegmentsAdded() })
	if err := e.Shutdown(nil); err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	return took[len(took)*99/100], len(took), jobs
}
