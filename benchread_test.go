package seb_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	for begun := time.Now(); ; {
		if _, err := broker.Append(b.Context(), "other", []seb.Record{{Value: []byte("x")}}); err != nil {
			b.Fatal(err)
		}
		if t, err := broker.Topic(b.Context(), "old"); err != nil || t.Partitions[0].Bytes < int64(size)*45/100 {
			break // all of it is compressed
		}
		if time.Since(begun) > 2*time.Minute {
			b.Fatal("the records are not compacted")
		}
		<-time.After(time.Millisecond)
	}
	closeBroker()
	return store
}

// slowly returns a store that takes benchLatency for each request once slow is called.
func slowly(store objstore.Store) (f *storetest.Faulty, slow func()) {
	f = storetest.NewFaulty(store)
	return f, func() { f.On("", "", storetest.Delay(benchLatency)) }
}

// benchRead reads a topic from the start once per iteration, by a broker with an empty cache.
func benchRead(b *testing.B, store objstore.Store, topic string, memory int64) {
	var (
		records, size, requests, down int64
		first                         time.Duration
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
		use := broker.Usage().Causes["read"]
		requests += use.Gets - before.Gets
		down += use.ReceivedBytes - before.ReceivedBytes
		closeBroker()
		b.StartTimer()
	}
	seconds := b.Elapsed().Seconds()
	b.ReportMetric(float64(records)/seconds, "records/s")
	b.ReportMetric(float64(size)/1e6/seconds, "MB/s")
	b.ReportMetric(float64(requests)/float64(b.N), "requests")
	b.ReportMetric(float64(down)/float64(max(1, requests))/1024, "KiB/request")
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
