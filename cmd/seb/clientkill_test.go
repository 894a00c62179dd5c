package main

import (
	"cmp"
	"context"
	"errors"
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
// result for each job. Followers see all records in order, without gaps. A named consumer continues at its
// committed positions. Appends that depend on the next offset form a chain without gaps or repetitions. A
// seb.Worker handles every record, and none again after its acknowledgement.
func TestKillNineThroughTheClient(t *testing.T) {
	onStores(t, func(t *testing.T, env []string, store string) {
		const writers = 4
		args := []string{"--store", store, "--linger", "10ms", "--checkpoint-commits", "20", "--stale-max", clientKillStaleMax.String()}
		brokers := []*process{serve(t, env, args...), serve(t, env, args...)}
		servers := []string{brokers[0].url, brokers[1].url}
		c, err := remote.New(remote.Options{Servers: servers})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, _, err := c.CreateTopic(t.Context(), "jobs", seb.TopicOptions{Partitions: 3}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.CreateTopic(t.Context(), "chains", seb.TopicOptions{Partitions: 2}); err != nil {
			t.Fatal(err)
		}
		queues := []remote.Queue{c.Queue("jobs", "work"), c.Queue("jobs", "handle")}
		for _, q := range queues {
			if _, _, err := q.Set(t.Context(), seb.QueueUpdate{Lease: new(time.Second), MaxAttempts: new(1000), BackoffMin: new(time.Duration(0)), BackoffMax: new(time.Duration(0))}, seb.Earliest); err != nil {
				t.Fatal(err)
			}
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
		var chained [2]int // the appends to each partition of chains
		for p := range chained {
			all.Go(func() { chained[p] = appendChain(writing, t, servers, int32(p)) })
		}
		var followed sync.WaitGroup
		follows, stopFollowing := context.WithCancel(t.Context())
		followed.Go(func() { followInOrder(follows, t, c) })
		var consumed seb.Offsets
		followed.Go(func() { consumed = consumeFromCommitted(follows, t, servers) })
		var worked sync.WaitGroup
		works, stopWorking := context.WithCancel(t.Context())
		for range 3 {
			worked.Go(func() { workExactlyOnce(works, t, c) })
		}
		source := &checkedSource{Queue: queues[1], t: t, of: map[string]place{}, handled: map[place]int{}, acked: map[place]bool{}, unsure: map[place]bool{}}
		for range 2 {
			worked.Go(func() {
				if err := (&seb.Worker{Source: source, Handle: source.handle, Concurrency: 20, Lease: time.Second}).Run(works); err != nil {
					t.Errorf("worker: %v", err)
				}
			})
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
			return !slices.ContainsFunc(queues, func(q remote.Queue) bool {
				x, err := q.Describe(t.Context())
				return err != nil || !x.Exact || x.Ready+x.Leased+x.Held+x.Delayed+x.Dead > 0
			})
		})
		eventually(t, func() bool {
			x, err := c.Consumer("jobs", "reader").Describe(t.Context())
			sum := seb.Offset(0)
			for _, p := range x.Positions {
				sum += p.Next
			}
			return err == nil && sum == seb.Offset(total)
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
				if r.Offset >= consumed[p] {
					t.Errorf("partition %d: the consumer did not read offset %d", p, r.Offset)
				}
				if at := (place{p, r.Offset}); source.handled[at] == 0 || !source.acked[at] && !source.unsure[at] {
					t.Errorf("partition %d, offset %d: handled %d times, and its acknowledgement never succeeded", p, r.Offset, source.handled[at])
				}
			}
		}
		for p, n := range chained {
			next := 0
			for r, err := range c.Read(t.Context(), "chains", int32(p), seb.Earliest) {
				if err != nil {
					t.Fatal(err)
				}
				if r.Offset != seb.Offset(next) || string(r.Value) != strconv.Itoa(next) {
					t.Errorf("chain %d has %s at offset %d instead of %d", p, r.Value, r.Offset, next)
				}
				next++
			}
			if next != n || n < 10 {
				t.Errorf("chain %d has %d records, of %d appends", p, next, n)
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
		t.Logf("%d appends and results; chains of %d", total, chained)
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

// clientKillStaleMax is how old a broker's last sync may be when a consumer starts there.
const clientKillStaleMax = 200 * time.Millisecond

// confirmed is a consumer's position in one partition, and when its commit was confirmed.
type confirmed struct {
	next seb.Offset
	at   time.Time
}

func (c confirmed) String() string {
	return fmt.Sprintf("%d at %s", c.next, c.at.Format(time.StampMilli))
}

// consumeFromCommitted reads the topic as a named consumer until ctx ends. Again and again it leaves the last
// records without a commit, and starts again with a new client. It returns the offsets after all the records
// that it has read.
func consumeFromCommitted(ctx context.Context, t *testing.T, servers []string) seb.Offsets {
	t.Helper()
	read, commits := seb.Offsets{}, map[int32][]confirmed{0: {{}}, 1: {{}}, 2: {{}}}
	for ctx.Err() == nil {
		if err := consumeOnce(ctx, t, servers, read, commits); err != nil && ctx.Err() == nil {
			t.Errorf("consume: %v", err)
			break
		}
	}
	return read
}

// consumeOnce is one start of consumeFromCommitted. It must begin at the last committed positions, or, at a
// broker that has not synced since, at positions that were the last ones clientKillStaleMax ago or later.
func consumeOnce(ctx context.Context, t *testing.T, servers []string, read seb.Offsets, commits map[int32][]confirmed) (err error) {
	t.Helper()
	c, err := remote.New(remote.Options{Servers: servers})
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, c.Close()) }()
	consumer, fresh := c.Consumer("jobs", "reader"), time.Now().Add(-clientKillStaleMax)
	f, err := consumer.Follower(ctx, seb.AllPartitions)
	if err != nil {
		return err
	}
	for next := (seb.Offsets{}); ; {
		rs, err := f.Next(ctx, seb.FetchOptions{Wait: time.Minute, Limit: 20})
		if err != nil {
			return err
		}
		for _, r := range rs {
			if expected, later := next[r.Partition]; later && r.Offset != expected {
				t.Errorf("consumer: partition %d: offset %d comes instead of %d", r.Partition, r.Offset, expected)
			} else if !later && !startsAt(commits[r.Partition], r.Offset, fresh) {
				t.Errorf("consumer: partition %d: it starts at offset %d; the last commits are %v", r.Partition, r.Offset, commits[r.Partition][max(0, len(commits[r.Partition])-3):])
			}
			next[r.Partition] = r.Offset + 1
			read[r.Partition] = max(read[r.Partition], r.Offset+1)
		}
		if len(rs) > 0 && rand.N(8) == 0 {
			return nil
		}
		if len(rs) > 0 {
			if _, err := consumer.Commit(t.Context(), seb.After(rs...)); err != nil {
				return err
			}
			for p, offset := range seb.After(rs...) {
				commits[p] = append(commits[p], confirmed{offset, time.Now()})
			}
		}
	}
}

// startsAt tells whether offset was the last committed position at fresh or later.
func startsAt(commits []confirmed, offset seb.Offset, fresh time.Time) bool {
	for i, c := range slices.Backward(commits) {
		if i+1 < len(commits) && commits[i+1].at.Before(fresh) {
			return false
		}
		if c.next == offset {
			return true
		}
	}
	return false
}

// appendChain appends 0, 1, 2, ... to a partition until ctx ends, each under the condition that the partition
// ends at that offset, and returns how many. With idempotency keys (partition 0), each append succeeds. Without
// them, the response may be lost. Then the same append is sent again: it succeeds, or the conflict shows that
// the first one did.
func appendChain(ctx context.Context, t *testing.T, servers []string, partition int32) (n int) {
	t.Helper()
	keyless := partition > 0
	c, err := remote.New(remote.Options{Servers: servers, NoIdempotencyKeys: keyless})
	if err != nil {
		t.Error(err)
		return 0
	}
	defer func() { _ = c.Close() }()
	for unknown := false; unknown || ctx.Err() == nil; {
		a, err := c.Append(t.Context(), "chains", []seb.Record{{Value: []byte(strconv.Itoa(n))}}, seb.ToPartition(partition), seb.IfOffset(seb.Offset(n)))
		var e *seb.Error
		switch {
		case err == nil && a.Ranges[0].Offset != seb.Offset(n):
			t.Errorf("chain %d: append %d is at offset %d", partition, n, a.Ranges[0].Offset)
			return n
		case err == nil, unknown && errors.As(err, &e) && e.Code == seb.CodeOffsetConflict && e.End == seb.Offset(n+1):
			n, unknown = n+1, false
		case keyless && seb.OutcomeOf(err) == seb.Unknown:
			unknown = true
		default:
			t.Errorf("chain %d: append %d: %v", partition, n, err)
			return n
		}
	}
	return n
}

// place is where a record is.
type place struct {
	partition int32
	offset    seb.Offset
}

// checkedSource is a queue that checks what it hands out to workers.
type checkedSource struct {
	remote.Queue
	t *testing.T

	mu      sync.Mutex
	of      map[string]place // by token
	handled map[place]int
	acked   map[place]bool // confirmed acknowledgements
	unsure  map[place]bool // acknowledgements that may be in the log, although the worker learned of no success
}

func (s *checkedSource) Receive(ctx context.Context, o seb.ReceiveOptions) ([]seb.Message, error) {
	ms, err := s.Queue.Receive(ctx, o)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range ms {
		at := place{m.Partition, m.Offset}
		if s.acked[at] {
			s.t.Errorf("partition %d, offset %d: received again after its acknowledgement, attempt %d", m.Partition, m.Offset, m.Attempt)
		}
		s.of[m.Token] = at
	}
	return ms, err
}

func (s *checkedSource) Ack(ctx context.Context, tokens ...string) error {
	err := s.Queue.Ack(ctx, tokens...)
	refused, some := errors.AsType[*seb.TokensError](err)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, token := range tokens {
		switch {
		case err == nil, some && refused.Errors[i] == nil:
			s.acked[s.of[token]] = true
		case some && seb.OutcomeOf(refused.Errors[i]) == seb.Unknown, !some && seb.OutcomeOf(err) == seb.Unknown:
			s.unsure[s.of[token]] = true
		}
	}
	return err
}

func (s *checkedSource) handle(_ context.Context, m seb.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handled[place{m.Partition, m.Offset}]++
	return nil
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
