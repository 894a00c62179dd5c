package seb_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// BenchmarkQueue receives and acknowledges, on a directory.
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
