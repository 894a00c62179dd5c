package seb_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// BenchmarkQueue receives and acknowledges records. The store is a directory.
func BenchmarkQueue(b *testing.B) {
	for _, c := range []struct{ workers, most int }{{1, 10}, {8, 10}, {64, 1}} {
		b.Run(fmt.Sprintf("workers=%d/batch=%d", c.workers, c.most), func(b *testing.B) {
			store, err := objstore.OpenDir(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			broker := open(b, store, immediate())
			mustCreateTopic(b, broker, "t", 1)
			records := make([]seb.Record, 1000)
			for i := range records {
				records[i].Value = make([]byte, 200)
			}
			for n := 0; n < b.N; n += len(records) {
				if _, err := broker.Append(b.Context(), "t", records); err != nil {
					b.Fatal(err)
				}
			}
			q := broker.Queue("t", "work")
			mustSet(b, q, seb.QueueUpdate{})
			var wg sync.WaitGroup
			var mu sync.Mutex
			left := b.N
			b.ResetTimer()
			for range c.workers {
				wg.Go(func() {
					for {
						mu.Lock()
						n := min(c.most, left)
						left -= n
						mu.Unlock()
						if n == 0 {
							return
						}
						ms, err := q.Receive(b.Context(), seb.ReceiveOptions{Max: n, Wait: time.Minute})
						if err == nil {
							err = q.Ack(b.Context(), tokens(ms)...)
						}
						if err != nil {
							b.Error(err)
							return
						}
						mu.Lock()
						left += n - len(ms)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// BenchmarkQueueBacklog receives a thousand records from backlogs of different sizes, and
// reports the heap that this takes.
func BenchmarkQueueBacklog(b *testing.B) {
	for _, backlog := range []int{1_000, 100_000, 10_000_000} {
		b.Run(fmt.Sprintf("backlog=%d", backlog), func(b *testing.B) {
			store, err := objstore.OpenDir(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			opts := immediate()
			opts.Memory = 16 << 20 // so small that the cache is full for every size
			broker := open(b, store, opts)
			mustCreateTopic(b, broker, "t", 1)
			records := batchOf(min(backlog, 50_000), 20)
			for n := 0; n < backlog; n += len(records) {
				if _, err := broker.Append(b.Context(), "t", records); err != nil {
					b.Fatal(err)
				}
			}
			for i := range b.N {
				q := broker.Queue("t", fmt.Sprint("work", i))
				mustSet(b, q, seb.QueueUpdate{})
				before := heap()
				slowest := time.Duration(0)
				for range 100 {
					began := time.Now()
					ms, err := q.Receive(b.Context(), seb.ReceiveOptions{Max: 10})
					if err != nil || len(ms) != 10 {
						b.Fatal(len(ms), err)
					}
					slowest = max(slowest, time.Since(began))
				}
				b.ReportMetric(float64(heap()-before), "heap-bytes")
				b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
			}
		})
	}
}
