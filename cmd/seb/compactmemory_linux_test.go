package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

// BenchmarkCompactionMemory measures the most resident memory of a broker with 32 MiB for requests and 16 MiB for the state, while it
// compacts small and large records, takes further ones, and clients read from the beginning. It takes minutes: use -benchtime 1x.
func BenchmarkCompactionMemory(b *testing.B) {
	const memory, stateMemory, lasts = 32, 16, 150 * time.Second // MiB
	for range b.N {
		p, err := startServe(b.Context(), b.TempDir(), os.Environ(), "--memory", fmt.Sprintf("%dMiB", memory), "--state-memory", fmt.Sprintf("%dMiB", stateMemory), "--linger", "20ms")
		if err != nil {
			b.Fatal(err)
		}
		c, err := client.New(client.Options{Servers: []string{p.url}})
		if err != nil {
			b.Fatal(err)
		}
		if err := loadOfAllSizes(b.Context(), c, lasts); err != nil {
			p.kill()
			b.Fatal(err, p.stderr)
		}
		peak := statusKiB(b, p.cmd.Process.Pid, "VmHWM")
		jobs, failed := counter(b, p, `seb_compactions_total{outcome="done"}`), counter(b, p, `seb_compactions_total{outcome="failed"}`)
		moved := counter(b, p, "seb_compacted_bytes_total")
		p.kill()
		if jobs == 0 || failed > 0 {
			b.Fatalf("%d jobs of compaction were done, %d failed:\n%s", jobs, failed, p.stderr)
		}
		b.ReportMetric(float64(peak)/1024, "MiB-peak")
		b.ReportMetric(memory+stateMemory+64, "MiB-allowed")
		b.ReportMetric(float64(jobs), "jobs")
		b.ReportMetric(float64(moved)/1e6, "MB-compacted")
	}
}

// loadOfAllSizes appends records of 200 bytes to 64 partitions, and of 3.5 MB to another topic, and reads both from the beginning
// again and again.
func loadOfAllSizes(ctx context.Context, c *client.Client, lasts time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	partitions := map[string]int32{"small": 64, "large": 1}
	for name, n := range partitions {
		if _, _, err := c.CreateTopic(ctx, name, seb.TopicOptions{Partitions: n}); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	// until repeats something until the time is over. A broker may refuse what has no room.
	until := func(pause time.Duration, do func(r *rand.Rand) error) {
		seed := rand.Uint64()
		g.Go(func() error {
			r := rand.New(rand.NewPCG(1, seed))
			for tick := time.NewTicker(pause); ctx.Err() == nil; <-tick.C {
				if err := do(r); err != nil && ctx.Err() == nil && !overMemory(err) {
					return err
				}
			}
			return nil
		})
	}
	for range 2 {
		until(5*time.Millisecond, func(r *rand.Rand) error {
			records := make([]seb.Record, 200)
			for i := range records {
				records[i] = seb.Record{Key: strconv.AppendInt(nil, r.Int64(), 36), Value: fmt.Appendf(nil, "%0200x", r.Uint64())}
			}
			_, err := c.Append(ctx, "small", records)
			return err
		})
		until(400*time.Millisecond, func(r *rand.Rand) error {
			value := make([]byte, 3_500_000)
			for i := range value {
				value[i] = byte(r.Uint32() & 0x3f)
			}
			_, err := c.Append(ctx, "large", []seb.Record{{Value: value}})
			return err
		})
	}
	for name, n := range partitions {
		until(100*time.Millisecond, func(r *rand.Rand) error {
			for _, err := range c.Follow(ctx, name, r.Int32N(n), seb.At(0)) {
				if err != nil || r.IntN(2000) == 0 {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func overMemory(err error) bool {
	refused, ok := errors.AsType[*seb.Error](err)
	return ok && refused.Code == seb.CodeOverMemoryBudget
}
