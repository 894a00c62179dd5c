package seb_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// appendAll lets callers append batches until count batches are acknowledged.
func appendAll(b *testing.B, br *seb.Broker, callers, count int, records []seb.Record) {
	var (
		wg   sync.WaitGroup
		left atomic.Int64
	)
	left.Store(int64(count))
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := br.Append(context.Background(), "bench", records); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkAppend measures the library alone: 1 KiB records in batches of 1024
// from 16 callers, on a store that keeps no bodies.
func BenchmarkAppend(b *testing.B) {
	for _, batching := range []struct {
		name string
		seb.Batching
	}{{"immediate", seb.Immediate()}, {"timed=10ms", seb.Timed(10*time.Millisecond, 4<<20)}} {
		b.Run(batching.name, func(b *testing.B) {
			store := objstore.NewMemory(objstore.WithDiscard("log/", "data/"))
			br := open(b, store, seb.Options{Batching: batching.Batching})
			const perBatch, size, callers = 1024, 1024, 16
			records := batchOf(perBatch, size)
			appendAll(b, br, callers, callers, records) // creates the topic, warms up
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b.ResetTimer()
			appendAll(b, br, callers, b.N, records)
			b.StopTimer()
			runtime.ReadMemStats(&after)
			n := float64(b.N) * perBatch
			b.ReportMetric(n/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/record")
			b.SetBytes(perBatch * size)
		})
	}
}

// BenchmarkSlowStore measures parallel uploads of data objects to a store that takes
// 100 ms for every request: 96 callers append 1 MiB each. Then it measures a single
// small append, which should take linger plus one request.
func BenchmarkSlowStore(b *testing.B) {
	const latency = 100 * time.Millisecond
	open := func(b *testing.B) *seb.Broker {
		store := storetest.Slow(objstore.NewMemory(objstore.WithDiscard("log/", "data/")), latency)
		return open(b, store, seb.Options{Batching: seb.Timed(10*time.Millisecond, 4<<20)})
	}
	b.Run("96x1MiB", func(b *testing.B) {
		br := open(b)
		records := batchOf(1024, 1024)
		appendAll(b, br, 1, 1, records)
		b.SetBytes(1 << 20)
		b.ResetTimer()
		appendAll(b, br, 96, b.N, records)
		b.StopTimer()
		b.ReportMetric(float64(b.N)*(1<<20)/1e6/b.Elapsed().Seconds(), "MB/s-sustained")
	})
	b.Run("lone-small", func(b *testing.B) {
		br := open(b)
		one := batchOf(1, 100)
		appendAll(b, br, 1, 1, one)
		b.ResetTimer()
		appendAll(b, br, 1, b.N, one)
		b.StopTimer()
		b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms/append")
	})
}

// BenchmarkRecovery measures Open on a log of 100,999 commits. The last checkpoint is 999 commits before
// the end.
func BenchmarkRecovery(b *testing.B) {
	const covered, after = 100_000, 999
	for _, kind := range []string{"dir", "100ms"} {
		b.Run(kind, func(b *testing.B) {
			var store, readFrom objstore.Store
			switch kind {
			case "dir":
				dir, err := objstore.OpenDir(b.TempDir())
				if err != nil {
					b.Fatal(err)
				}
				store, readFrom = dir, dir
			default:
				mem := objstore.NewMemory()
				store, readFrom = mem, storetest.Slow(mem, 100*time.Millisecond)
			}
			fillLog(b.Context(), b, store, covered)
			killed, kill := context.WithCancel(b.Context())
			kill()
			fillLog(killed, b, store, after)
			b.ResetTimer()
			for range b.N {
				br, err := seb.Open(b.Context(), readFrom, seb.Options{})
				if err != nil {
					b.Fatal(err)
				}
				if n := br.Status().Applied; n < covered+after {
					b.Fatalf("recovered %d commits", n)
				}
				b.StopTimer()
				// End without a clean shutdown: after its checkpoint, the next round would have nothing to replay.
				if err := br.Shutdown(killed); err != nil && seb.CodeOf(err) != "" {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/open")
		})
	}
}

// fillLog makes commits, each with one small batch. Its broker then writes a checkpoint, unless shutdown has
// ended.
func fillLog(shutdown context.Context, b *testing.B, store objstore.Store, commits int) {
	b.Helper()
	br, err := seb.Open(b.Context(), store, seb.Options{Batching: seb.Each(), StateMemory: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	record := batchOf(1, 100)
	const callers = 64
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(commits))
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := br.Append(context.Background(), "bench", record); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := br.Shutdown(shutdown); err != nil && (shutdown.Err() == nil || seb.CodeOf(err) != "") {
		b.Fatal(err)
	}
	b.Logf("filled with %d commits", br.Status().Applied)
}
