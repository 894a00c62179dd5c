package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	remote "github.com/simple-event-broker/seb/client"
)

// Programs use two brokers through package client, while one broker after the other is killed and started
// again. No call fails. Each append is in the log once, at the offsets that the call returned, and in the order of its
// writer. A worker that receives a job, appends a result and acknowledges the job in one commit writes one
// result for each job. Followers see all records in order, without gaps.
func TestKillNineThroughTheClient(t *testing.T) {
	onStores(t, func(t *testing.T, env []string, store string) {
		const writers = 4
		args := []string{"--store", store, "--linger", "10ms", "--checkpoint-commits", "20"}
		brokers := []*process{serve(t, env, args...), serve(t, env, args...)}
		c, err := remote.New(remote.Options{Servers: []string{brokers[0].url, brokers[1].url}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, _, err := c.CreateTopic(t.Context(), "jobs", seb.TopicOptions{Partitions: 3}); err != nil {
			t.Fatal(err)
		}
		q := c.Queue("jobs", "work")
		if _, _, err := q.Set(t.Context(), seb.QueueUpdate{Lease: new(time.Second), MaxAttempts: new(1000), BackoffMin: new(time.Duration(0)), BackoffMax: new(time.Duration(0))}, seb.Earliest); err != nil {
			t.Fatal(err)
		}

		var all sync.WaitGroup
		writing, stopWriting := context.WithCancel(t.Context())
		written := make([]map[string]seb.Offset, writers) // the offset of each value, by writer
		for w := range writers {
			written[w] = map[string]seb.Offset{}
			all.Go(func() {
				for i := 0; writing.Err() == nil; i++ {
					value := fmt.Sprintf("%d-%d", w, i)
					a, err := c.Append(t.Context(), "jobs", []seb.Record{{Value: []byte(value)}}, seb.ToPartition(int32(w%3)))
					if err != nil {
						t.Errorf("append %s: %v", value, err)
						return
					}
					written[w][value] = a.Ranges[0].Offset
				}
			})
		}
		var followed sync.WaitGroup
		follows, stopFollowing := context.WithCancel(t.Context())
		followed.Go(func() { followInOrder(follows, t, c) })
		var worked sync.WaitGroup
		works, stopWorking := context.WithCancel(t.Context())
		for range 3 {
			worked.Go(func() { workExactlyOnce(works, t, c) })
		}

		for i := range crashCycles(t, 8) {
			<-time.After(rand.N(400 * time.Millisecond))
			at := i % 2
			brokers[at].killed(t)
			<-time.After(rand.N(200 * time.Millisecond))
			p, err := startServe(context.WithoutCancel(t.Context()), t.TempDir(), append(os.Environ(), env...), append(args, "--http", strings.TrimPrefix(brokers[at].url, "http://"))...)
			if err != nil {
				t.Fatal(err)
			}
			ownedBy(t, p)
			brokers[at] = p
		}
		stopWriting()
		all.Wait()
		total := 0
		for _, m := range written {
			total += len(m)
		}
		if total < 10*writers {
			t.Errorf("only %d appends succeeded", total)
		}
		eventually(t, func() bool {
			x, err := q.Describe(t.Context())
			return err == nil && x.Exact && x.Ready+x.Leased+x.Held+x.Delayed+x.Dead == 0
		})
		stopWorking()
		worked.Wait()
		stopFollowing()
		followed.Wait()

		for p := range int32(3) {
			next := map[string]int{}
			for r, err := range c.Read(t.Context(), "jobs", p, seb.Earliest) {
				if err != nil {
					t.Fatal(err)
				}
				w, n, _ := strings.Cut(string(r.Value), "-")
				if n != strconv.Itoa(next[w]) {
					t.Fatalf("partition %d, offset %d has %s; writer %s had got to %d", p, r.Offset, r.Value, w, next[w])
				}
				next[w]++
				writer, err := strconv.Atoi(w)
				if err != nil {
					t.Fatal(err)
				}
				if offset, acked := written[writer][string(r.Value)]; !acked || offset != r.Offset {
					t.Errorf("%s is at offset %d, and the call returned %d, %t", r.Value, r.Offset, offset, acked)
				}
				delete(written[writer], string(r.Value))
			}
		}
		var results []string
		for r, err := range c.Read(t.Context(), "results", 0, seb.Earliest) {
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, string(r.Value))
		}
		slices.Sort(results)
		if distinct := slices.Compact(slices.Clone(results)); len(results) != total || len(distinct) != total {
			t.Errorf("%d results, %d of them distinct, of %d jobs", len(results), len(distinct), total)
		}
		for w, m := range written {
			if len(m) > 0 {
				t.Errorf("writer %d: %d acknowledged appends are not in the log: %v", w, len(m), m)
			}
		}
		for _, b := range brokers {
			b.stopped(t)
		}
		t.Logf("%d appends and results", total)
	})
}

// followInOrder follows the topic until ctx ends, and checks that each partition's offsets have no gaps.
func followInOrder(ctx context.Context, t *testing.T, c *remote.Client) {
	t.Helper()
	f, err := c.NewFollower(t.Context(), "jobs", seb.AllPartitions, seb.Earliest)
	if err != nil {
		t.Error(err)
		return
	}
	next := map[int32]seb.Offset{}
	for {
		rs, err := f.Next(ctx, seb.FetchOptions{Wait: time.Minute})
		for _, r := range rs {
			if r.Offset != next[r.Partition] {
				t.Errorf("partition %d: offset %d comes instead of %d", r.Partition, r.Offset, next[r.Partition])
			}
			next[r.Partition] = r.Offset + 1
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.Errorf("follow: %v", err)
			return
		}
	}
}

// workExactlyOnce receives jobs until ctx ends. It appends a result for each job and acknowledges the job in
// one commit. If the broker refuses the commit because another worker has the job, that worker writes the
// result.
func workExactlyOnce(ctx context.Context, t *testing.T, c *remote.Client) {
	t.Helper()
	q := c.Queue("jobs", "work")
	for ctx.Err() == nil {
		ms, err := q.Receive(ctx, seb.ReceiveOptions{Max: 20, Wait: time.Second})
		if err != nil && ctx.Err() == nil {
			t.Errorf("receive: %v", err)
			return
		}
		for _, m := range ms {
			_, err := c.Commit(t.Context(), seb.Commit{
				Appends: []seb.CommitAppend{{Topic: "results", Records: []seb.Record{{Value: m.Value}}}},
				Acks:    []seb.CommitAcks{{Topic: "jobs", Queue: "work", Tokens: []string{m.Token}}},
			})
			if err != nil && seb.CodeOf(err) != seb.CodeLeaseLost {
				t.Errorf("commit: %v", err)
				return
			}
		}
	}
}

// eventually waits until ok returns true.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(startTimeout)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen in time")
		}
		<-time.After(20 * time.Millisecond)
	}
}
