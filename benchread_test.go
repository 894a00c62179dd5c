package seb_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

const (
	benchLatency = 30 * time.Millisecond // of each request
	benchGetCost = 0.4 / 1e6             // dollars per GET, Amazon S3 Standard
)

// benchBroker opens a broker for a benchmark.
func benchBroker(b *testing.B, store objstore.Store, opts seb.Options) (*seb.Broker, func()) {
	b.Helper()
	opts.Logger = slog.New(slog.DiscardHandler)
	broker, err := seb.Open(b.Context(), store, opts)
	if err != nil {
		b.Fatal(err)
	}
	return broker, func() {
		if err := broker.Close(); err != nil {
			b.Error(err)
		}
	}
}

// benchRecords returns records of about 1 KiB, which compress to about a third.
func benchRecords(r *rand.Rand, n int) []seb.Record {
	records := make([]seb.Record, n)
	for i := range records {
		v := []byte(`{"customer":`)
		for len(v) < 1000 {
			v = fmt.Appendf(v, `"%016x%016x","price":%d.%02d,"currency":"EUR","article":`, r.Uint64(), r.Uint64(), r.IntN(1000), r.IntN(100))
		}
		records[i].Value = append(v, "0}"...)
	}
	return records
}

// benchSegments returns a store with a topic "old" whose records, of so many bytes, are in segments.
func benchSegments(b *testing.B, size int) objstore.Store {
	b.Helper()
	bounds := engine.Compaction
	engine.Compaction.TailAge = time.Millisecond
	defer func() { engine.Compaction = bounds }()
	store := objstore.NewMemory()
	broker, closeBroker := benchBroker(b, store, seb.Options{Memory: 1 << 30, Batching: seb.Immediate()})
	r := rand.New(rand.NewPCG(1, 2))
	for n := 0; n < size; n += 1 << 20 {
		if _, err := broker.Append(b.Context(), "old", benchRecords(r, 1024)); err != nil {
			b.Fatal(err)
		}
	}
	untilCompacted(b, broker, "old")
	closeBroker()
	return store
}

// untilCompacted waits until all records of a topic are in segments.
func untilCompacted(b *testing.B, broker *seb.Broker, topic string) {
	b.Helper()
	for begun := time.Now(); seb.Tail(broker, topic) > 0; {
		if _, err := broker.Append(b.Context(), "other", []seb.Record{{Value: []byte("x")}}); err != nil {
			b.Fatal(err)
		}
		if time.Since(begun) > 3*time.Minute {
			b.Fatalf("%d batches of %s are in no segment", seb.Tail(broker, topic), topic)
		}
		<-time.After(time.Millisecond)
	}
}

// benchShared returns a store with so many commits of some 100 KB, in each of which 200 topics have a record of about 500 bytes. If
// compacted, all records are in segments.
func benchShared(b *testing.B, commits int, compacted bool) objstore.Store {
	b.Helper()
	if compacted {
		bounds := engine.Compaction
		engine.Compaction.TailAge = time.Millisecond
		defer func() { engine.Compaction = bounds }()
	}
	const topics = 200
	store := objstore.NewMemory()
	// Compaction takes more than a tenth of the time while the tail fills a quarter of the state's memory.
	broker, closeBroker := benchBroker(b, store, seb.Options{Memory: 1 << 30, StateMemory: 48 << 20, Batching: seb.Immediate()})
	records := benchRecords(rand.New(rand.NewPCG(1, 2)), 1000)
	for n := range commits {
		var c seb.Commit
		for i := range topics {
			r := records[(n*7+i*13)%len(records)]
			c.Appends = append(c.Appends, seb.CommitAppend{Topic: fmt.Sprintf("t%03d", i), Records: []seb.Record{{Value: r.Value[n%500:][:500]}}})
		}
		if _, err := broker.Commit(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	if compacted {
		untilCompacted(b, broker, "t100")
	}
	closeBroker()
	return store
}

// slowly returns a store that takes benchLatency for each request once slow is called.
func slowly(store objstore.Store) (f *storetest.Faulty, slow func()) {
	f = storetest.NewFaulty(store)
	return f, func() { f.On("", "", storetest.Delay(benchLatency)) }
}

// benchRead reads a topic from the start once per iteration, by a broker with an empty cache. It reports the median of the iterations.
func benchRead(b *testing.B, store objstore.Store, topic string, memory int64) {
	var (
		records, size, requests, down int64
		first                         time.Duration
		took                          []time.Duration
		cached                        float64
	)
	for b.Loop() {
		b.StopTimer()
		slowStore, slow := slowly(store)
		broker, closeBroker := benchBroker(b, slowStore, seb.Options{Memory: memory})
		slow()
		before := broker.Usage().Causes["read"]
		b.StartTimer()
		begun := time.Now()
		came := false
		for r, err := range broker.Read(b.Context(), topic, 0, seb.Earliest) {
			if err != nil {
				b.Fatal(err)
			}
			if !came {
				came, first = true, max(first, time.Since(begun))
			}
			records++
			size += int64(len(r.Value))
		}
		b.StopTimer()
		took = append(took, time.Since(begun))
		for _, f := range broker.Metrics() {
			if f.Name == "seb_cache_memory_bytes" {
				cached = max(cached, f.Series[0].Value)
			}
		}
		use := broker.Usage().Causes["read"]
		requests += use.Gets - before.Gets
		down += use.ReceivedBytes - before.ReceivedBytes
		closeBroker()
		b.StartTimer()
	}
	slices.Sort(took)
	median := took[len(took)/2].Seconds()
	b.ReportMetric(float64(records)/float64(b.N)/median, "records/s")
	b.ReportMetric(float64(size)/float64(b.N)/1e6/median, "MB/s")
	b.ReportMetric(float64(requests)/float64(b.N), "requests")
	b.ReportMetric(float64(down)/float64(max(1, requests))/1024, "KiB/request")
	b.ReportMetric(cached/1024, "KiB-cached")
	b.ReportMetric(float64(requests)*benchGetCost/(float64(size)/1e9), "$/GB")
	b.ReportMetric(float64(first.Milliseconds()), "ms-to-first")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkReadOld measures readers of old records on a store that takes 30 ms for each request.
func BenchmarkReadOld(b *testing.B) {
	b.Run("segments", func(b *testing.B) {
		benchRead(b, benchSegments(b, 192<<20), "old", 128<<20)
	})
	b.Run("commits", func(b *testing.B) {
		store := objstore.NewMemory()
		broker, closeBroker := benchBroker(b, store, seb.Options{Batching: seb.Immediate()})
		for range 20_000 {
			if _, err := broker.Append(b.Context(), "new", []seb.Record{{Value: bytes.Repeat([]byte("x"), 100)}}); err != nil {
				b.Fatal(err)
			}
		}
		closeBroker()
		benchRead(b, store, "new", 128<<20)
	})
	b.Run("shared", func(b *testing.B) { // one topic of 200
		b.Run("commits", func(b *testing.B) {
			benchRead(b, benchShared(b, 4000, false), "t100", 128<<20)
		})
		b.Run("segments", func(b *testing.B) {
			benchRead(b, benchShared(b, 3000, true), "t100", 128<<20)
		})
	})
	b.Run("random", func(b *testing.B) {
		store := benchSegments(b, 96<<20)
		r := rand.New(rand.NewPCG(1, 2))
		slowStore, slow := slowly(store)
		broker, closeBroker := benchBroker(b, slowStore, seb.Options{})
		defer closeBroker()
		slow()
		var warm seb.StoreUse
		read := func() seb.StoreUse {
			before := broker.Usage().Causes["read"]
			at := seb.Offset(r.IntN(60_000))
			f, err := broker.Fetch(b.Context(), "old", 0, seb.At(at), seb.FetchOptions{Limit: 1})
			if err != nil || len(f.Records) != 1 {
				b.Fatal(len(f.Records), err)
			}
			after := broker.Usage().Causes["read"]
			return seb.StoreUse{Gets: after.Gets - before.Gets, ReceivedBytes: after.ReceivedBytes - before.ReceivedBytes}
		}
		cold := read()
		for b.Loop() {
			use := read()
			warm.Gets, warm.ReceivedBytes = warm.Gets+use.Gets, warm.ReceivedBytes+use.ReceivedBytes
		}
		b.ReportMetric(float64(cold.Gets), "cold-requests")
		b.ReportMetric(float64(cold.ReceivedBytes)/1024, "cold-KiB")
		b.ReportMetric(float64(warm.Gets)/float64(b.N), "requests")
		b.ReportMetric(float64(warm.ReceivedBytes)/1024/float64(b.N), "KiB")
	})
}
