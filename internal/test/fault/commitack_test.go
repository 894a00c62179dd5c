package fault_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// worked returns a worker's commit: it appends the results of messages, and acknowledges the messages.
func worked(ms []seb.Message, outs ...seb.CommitAppend) seb.Commit {
	return seb.Commit{Appends: outs, Acks: []seb.CommitAcks{{Topic: "in", Queue: "work", Tokens: tokens(ms)}}}
}

// withQueue creates topic "in" with that many records, and a queue of it.
func withQueue(t testing.TB, b *seb.Broker, records int) *seb.Queue {
	t.Helper()
	mustAppend(t, b, "in", numbered("in", records)...)
	q := b.Queue("in", "work")
	mustSet(t, q, seb.QueueUpdate{})
	return q
}

func TestCommitAcknowledgesTogetherWithTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b, other := open(t, memory, immediate()), open(t, memory, immediate())
		q := withQueue(t, b, 5)
		withWorker(t, b, 1) // of the same topic, which has six records now
		ms := mustReceive(t, q, 3, 0)
		wantHanded(t, ms, "[0#1 1#1 2#1]")
		before := len(keys(t, memory, format.LogPrefix))
		c := worked([]seb.Message{ms[2], ms[0], ms[2]}, appends("out", "a"))
		c.Positions = counted(0, 4).Positions
		mustCreateTopic(t, b, "out", 1)
		mustCommitAll(t, other, c) // any broker accepts it
		if n := len(keys(t, memory, format.LogPrefix)) - before; n != 2 {
			t.Errorf("it took %d slots, want 2: the topic and the commit", n)
		}
		time.Sleep(time.Minute)
		wantValues(t, b, "out", "a")
		wantAt(t, b.Consumer("in", "worker"), 4)
		wantHanded(t, mustReceive(t, q, 10, time.Second), "[3#1 4#1 5#1]")
		wantHanded(t, mustReceive(t, q, 10, time.Second), "[1#2]")
	})
}

// A commit with a refused token does nothing at all. That includes a token of a record that the same
// delivery has already acknowledged: else the other parts would be done twice.
func TestCommitWithATokenThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b, other := open(t, memory, immediate()), open(t, memory, immediate())
		q := withQueue(t, b, 5)
		mustCreateTopic(t, b, "out", 1)
		first := mustReceive(t, q, 3, 0)
		time.Sleep(time.Minute)
		var all []seb.Message // in no particular order
		for range 5 {
			all = append(all, mustReceive(t, q, 1, time.Second)...)
		}
		if len(all) != 5 {
			t.Fatalf("handed out %s", handed(all))
		}
		again, done := all[:2], all[2:4]
		mustAck(t, q, done...)
		var lost seb.Message // message of a record that was handed out again later
		for _, m := range all {
			if m.Attempt > 1 {
				lost = first[m.Offset]
			}
		}
		twice := worked(again, appends("out", "no"))
		twice.Acks = append(twice.Acks, twice.Acks[0])
		elsewhere := worked(again[:1], appends("out", "no"))
		elsewhere.Acks[0].Queue = "nobody"
		for name, x := range map[string]struct {
			c    seb.Commit
			code seb.Code
			part string
		}{
			"handed out again":    {worked([]seb.Message{again[0], lost}, appends("out", "no")), seb.CodeLeaseLost, "acks/0/tokens/1"},
			"done":                {worked([]seb.Message{again[0], again[1], done[0]}, appends("out", "no")), seb.CodeLeaseLost, "acks/0/tokens/2"},
			"no token":            {worked([]seb.Message{{Token: "x"}}, appends("out", "no")), seb.CodeInvalidRequest, "acks/0/tokens/0"},
			"no tokens":           {worked(nil, appends("out", "no")), seb.CodeInvalidRequest, "acks/0"},
			"too many tokens":     {worked(make([]seb.Message, 1000), appends("out", "no")), seb.CodeRequestTooLarge, ""},
			"the same queue":      {twice, seb.CodeInvalidRequest, "acks/1"},
			"no such queue":       {elsewhere, seb.CodeQueueNotFound, "acks/0"},
			"something else":      {worked(again, appends("out")), seb.CodeInvalidRequest, "appends/0"},
			"a position as well":  {seb.Commit{Acks: worked(again).Acks, Positions: counted(0, 1).Positions}, seb.CodeConsumerNotFound, "positions/0"},
			"another's partition": {worked(again, seb.CommitAppend{Topic: "out", Records: values("no"), Options: []seb.AppendOption{seb.ToPartition(1)}}), seb.CodePartitionNotFound, "appends/0"},
		} {
			for _, b := range []*seb.Broker{b, other} {
				_, err := b.Commit(t.Context(), x.c)
				if e := wantError(t, err, x.code); e.Part != x.part || e.Outcome != seb.NotCommitted {
					t.Errorf("%s: the error names part %q: %v", name, e.Part, err)
				}
			}
		}
		wantValues(t, b, "out")
		mustCommitAll(t, other, worked(again, appends("out", "yes")), seb.IdempotencyKey("k"))
		if !mustCommitAll(t, b, worked(again, appends("out", "yes")), seb.IdempotencyKey("k")).Replayed {
			t.Error("the retry was committed a second time")
		}
		_, err := b.Commit(t.Context(), worked(again, appends("out", "yes"))) // without the idempotency key
		wantPart(t, err, seb.CodeLeaseLost, "acks/0/tokens/0")
		wantValues(t, b, "out", "yes")
	})
}

// Workers stall until their leases are over, and then commit the results of their messages too late,
// while other workers process the records again, through brokers whose store fails. The results of
// each record must be committed once.
func TestEveryRecordOfAQueueIsWrittenOnce(t *testing.T) {
	const records = 40
	late := 0 // late commits, of workers that had lost their leases
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := objstore.NewMemory()
				faulty := storetest.NewFaulty(memory)
				opts := immediate()
				brokers := []*seb.Broker{open(t, faulty, opts), open(t, faulty, opts)}
				withQueue(t, brokers[0], records)
				many := 100
				mustSet(t, brokers[0].Queue("in", "work"), seb.QueueUpdate{MaxAttempts: &many})
				mustCreateTopic(t, brokers[0], "out", 1)
				undo := faulty.On("", "", (&flaky{rng: newRand(seed), rate: 0.15}).fault)
				var (
					wg      sync.WaitGroup
					mu      sync.Mutex
					written int
					lost    int
				)
				for worker := range 3 {
					rng := newRand(seed<<8 + uint64(worker))
					wg.Go(func() {
						for n := 0; ; n++ {
							mu.Lock()
							over := written == records
							mu.Unlock()
							if over {
								return
							}
							ms, err := brokers[0].Queue("in", "work").Receive(t.Context(), seb.ReceiveOptions{Max: 1 + rng.IntN(3), Wait: time.Second})
							if err != nil || len(ms) == 0 {
								time.Sleep(time.Second)
								continue
							}
							if rng.IntN(4) == 0 {
								time.Sleep(time.Duration(rng.IntN(60)) * time.Second)
							}
							var vs []string
							for _, m := range ms {
								vs = append(vs, string(m.Value))
							}
							key := fmt.Sprintf("%d.%d", worker, n)
							for {
								ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
								_, err := brokers[rng.IntN(2)].Commit(ctx, worked(ms, appends("out", vs...)), seb.IdempotencyKey(key))
								cancel()
								mu.Lock()
								switch {
								case err == nil:
									written += len(ms)
								case seb.CodeOf(err) == seb.CodeLeaseLost:
									lost++
								}
								mu.Unlock()
								if err == nil || seb.CodeOf(err) == seb.CodeLeaseLost {
									break
								}
							}
						}
					})
				}
				wg.Wait()
				undo()
				seen := map[string]int{}
				for _, v := range readAll(t, open(t, memory, opts), "out", 0) {
					seen[v]++
				}
				for v, n := range seen {
					if n != 1 {
						t.Errorf("%s was written %d times", v, n)
					}
				}
				if len(seen) != records {
					t.Errorf("%d of %d records were written", len(seen), records)
				}
				late += lost
			})
		})
	}
	if late == 0 {
		t.Error("no commit was too late: nothing was tried")
	}
}
