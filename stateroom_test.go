package seb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

const fullBytes = 20_000

// smallState returns options with fullBytes as the bound of the state.
func smallState() seb.Options {
	opts := immediate()
	opts.StateMemory = fullBytes
	return opts
}

// fill appends to a topic until the state has no room for more.
func fill(t testing.TB, b *seb.Broker, topic string) {
	t.Helper()
	for range 10_000 {
		if _, err := b.Append(t.Context(), topic, values("v")); err != nil {
			wantCode(t, err, seb.CodeOverStateBudget)
			wantOutcome(t, err, seb.NotCommitted)
			return
		}
	}
	t.Fatal("the state never fills")
}

// Many requests of one kind are in the same commit. The state has room for each of them, but not for all.
func TestStateBoundIsNotOvershotWithinOneCommit(t *testing.T) {
	long := strings.Repeat("x", 200)
	rooms := map[string]int64{"work that is done with gaps": 2000, "positions": 16_000, "push targets": 20_000, "partitions": 24_000} // bytes; 14,000 for other kinds
	for kind, do := range map[string]func(ctx context.Context, b *seb.Broker, i int, token string) error{
		"appends": func(ctx context.Context, b *seb.Broker, i int, _ string) error {
			_, err := b.Append(ctx, "wide", values("v"), seb.ToPartition(int32(i)))
			return err
		},
		"appends on condition": func(ctx context.Context, b *seb.Broker, i int, _ string) error {
			_, err := b.Append(ctx, "wide", values("v"), seb.ToPartition(int32(i%199)), seb.IfOffset(0))
			return err
		},
		"idempotency keys": func(ctx context.Context, b *seb.Broker, i int, _ string) error {
			_, err := b.Append(ctx, "wide", values("v"), seb.ToPartition(0), seb.IdempotencyKey(fmt.Sprint(i)))
			return err
		},
		"idempotency keys of commits": func(ctx context.Context, b *seb.Broker, i int, _ string) error {
			_, err := b.Commit(ctx, seb.Commit{Positions: []seb.CommitPositions{{Topic: "t", Consumer: "c", Offsets: seb.Offsets{0: 1}}}}, seb.IdempotencyKey(fmt.Sprint(i)))
			return err
		},
		"delays": func(ctx context.Context, b *seb.Broker, i int, _ string) error {
			_, err := b.Append(ctx, "wide", values("v"), seb.ToPartition(0), seb.Delay(time.Hour))
			return err
		},
		"topics": func(ctx context.Context, b *seb.Broker, i int, _ string) error {
			_, _, err := b.CreateTopic(ctx, fmt.Sprint("topic", i), seb.TopicOptions{})
			return err
		},
		"topics by appending": func(ctx context.Context, b *seb.Broker, i int, _ string) error {
			_, err := b.Append(ctx, fmt.Sprint("topic", i), values("v"))
			return err
		},
		"partitions": func(ctx context.Context, b *seb.Broker, i int, _ string) error {
			_, err := b.UpdateTopic(ctx, fmt.Sprint("small", i%4), seb.TopicUpdate{Partitions: new(int32(100 + i))})
			return err
		},
		"consumers": func(ctx context.Context, b *seb.Broker, i int, _ string) error {
			_, _, err := b.Consumer("wide", fmt.Sprint("consumer", i)).Reset(ctx, seb.Latest)
			return err
		},
		"positions": func(ctx context.Context, b *seb.Broker, i int, _ string) error {
			_, err := b.Consumer("wide", fmt.Sprint("made", i)).Commit(ctx, seb.Offsets{199: 1})
			return err
		},
		"queues": func(ctx context.Context, b *seb.Broker, i int, _ string) error {
			_, _, err := b.Queue("t", fmt.Sprint("queue", i)).Set(ctx, seb.QueueUpdate{}, seb.Latest)
			return err
		},
		"push targets": func(ctx context.Context, b *seb.Broker, i int, _ string) error {
			_, _, _, err := b.Queue("t", fmt.Sprint("made", i%40)).SetPush(ctx, seb.PushUpdate{URL: new("https://example.com/" + long + long + fmt.Sprint(i))})
			return err
		},
		"work that is done with gaps": func(ctx context.Context, b *seb.Broker, i int, token string) error {
			if i%2 == 0 {
				return nil
			}
			return b.Queue("t", "q").Ack(ctx, token)
		},
		"work that is put back": func(ctx context.Context, b *seb.Broker, i int, token string) error {
			return b.Queue("t", "q").Nack(ctx, seb.NackOptions{Reason: long}, token)
		},
		"API keys": func(ctx context.Context, b *seb.Broker, i int, _ string) error {
			_, _, err := b.CreateKey(ctx, seb.KeyOptions{Name: fmt.Sprint("key", i), Scopes: seb.ScopeAdmin, Topics: []string{"*", long}})
			return err
		},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				const callers = 200
				first := open(t, memory, immediate())
				mustCreateTopic(t, first, "wide", 200)
				if _, err := first.Append(t.Context(), "wide", values("v"), seb.ToPartition(199)); err != nil {
					t.Fatal(err)
				}
				mustAppend(t, first, "t", strings.Split(strings.Repeat("v ", callers), " ")...)
				for i := range 4 {
					mustCreateTopic(t, first, fmt.Sprint("small", i), 1)
				}
				for i := range 40 {
					mustSet(t, first.Queue("t", fmt.Sprint("made", i)), seb.QueueUpdate{})
				}
				if _, _, err := first.Consumer("t", "c").ResetTo(t.Context(), seb.Offsets{0: 1}); err != nil {
					t.Fatal(err)
				}
				for i := range 20 {
					if _, _, err := first.Consumer("wide", fmt.Sprint("made", i)).Create(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				mustSet(t, first.Queue("t", "q"), seb.QueueUpdate{})
				opts := smallState()
				room, ok := rooms[kind]
				if !ok {
					room = 14_000
				}
				opts.StateMemory = first.StateBytes() + room
				opts.Address = "http://b"
				b := open(t, faulty, opts)
				given := tokens(mustReceive(t, b.Queue("t", "q"), callers, 0))
				for len(given) < callers {
					given = append(given, tokens(mustReceive(t, b.Queue("t", "q"), callers-len(given), 0))...)
				}
				release := make(chan struct{})
				defer faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))()
				var wg sync.WaitGroup
				wg.Go(func() {
					if _, err := b.Consumer("t", "c").Commit(t.Context(), seb.Offsets{0: 1}); err != nil {
						t.Error(err) // this commit waits in the store, so that all requests below share the next one
					}
				})
				synctest.Wait()
				errs := make([]error, callers)
				for i := range callers {
					wg.Go(func() { errs[i] = do(t.Context(), b, i, given[i]) })
				}
				synctest.Wait()
				close(release)
				wg.Wait()
				refused := 0
				for _, err := range errs {
					if err == nil || seb.CodeOf(err) == seb.CodeConsumerNotFound || seb.CodeOf(err) == seb.CodeOffsetConflict || seb.CodeOf(err) == seb.CodeInvalidRequest {
						continue
					}
					wantCode(t, err, seb.CodeOverStateBudget)
					wantOutcome(t, err, seb.NotCommitted)
					refused++
				}
				// Appends that share batches are refused together.
				shared := strings.Contains(kind, "append") || kind == "idempotency keys" || kind == "delays"
				if refused == 0 || refused == callers && !shared {
					t.Errorf("%d of %d were refused", refused, callers)
				}
				if used := b.StateBytes(); used > opts.StateMemory {
					t.Errorf("the state takes %d bytes of %d; %d of %d were refused", used, opts.StateMemory, refused, callers)
				}
			})
		})
	}
}

// When the state is full, API keys can still be created and revoked, consumers can read, workers can
// answer, and records and topics can be deleted.
func TestFullStateCanStillBeLockedReadAndEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b, other := open(t, memory, smallState()), open(t, memory, smallState())
		mustCreateTopic(t, b, "t", 1)
		mustSet(t, b.Queue("t", "q"), seb.QueueUpdate{})
		fill(t, b, "t")
		_, err := other.Append(t.Context(), "t", values("v"))
		wantCode(t, err, seb.CodeOverStateBudget)
		_, _, err = b.CreateTopic(t.Context(), "more", seb.TopicOptions{})
		wantCode(t, err, seb.CodeOverStateBudget)

		c := b.Consumer("t", "c")
		f, err := c.Follower(t.Context(), seb.AllPartitions)
		if err != nil {
			t.Fatal("a consumer by its first read:", err)
		}
		records, err := f.Next(t.Context(), seb.FetchOptions{Limit: 5})
		if err != nil || len(records) != 5 {
			t.Fatal(records, err)
		}
		if _, err := c.Commit(t.Context(), seb.After(records...)); err != nil {
			t.Error("its position:", err)
		}
		q := b.Queue("t", "q")
		if err := q.Ack(t.Context(), tokens(mustReceive(t, q, 3, 0))...); err != nil {
			t.Error("work that is done:", err)
		}
		if _, _, err := b.Consumer("t", "d").Create(t.Context()); err != nil {
			t.Error("a consumer that is created:", err)
		}
		if _, err := b.UpdateTopic(t.Context(), "t", seb.TopicUpdate{Retention: new(1000 * time.Hour)}); err != nil {
			t.Error("a retention that is set:", err)
		}
		_, secret := createKey(t, b, seb.KeyOptions{Name: "ops"})
		ctx := asCaller(t, b, bySecret(secret))
		k, _ := createKey(t, b, seb.KeyOptions{Name: "revoked"})
		if _, err := b.RevokeKey(ctx, k.ID); err != nil {
			t.Error("a key that is revoked:", err)
		}
		if used := b.StateBytes(); used > fullBytes {
			t.Errorf("the state takes %d bytes of %d", used, fullBytes)
		}
		end, err := b.Topic(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.DeleteRecords(ctx, "t", 0, end.Partitions[0].End-1); err != nil {
			t.Error("a start that moves:", err)
		}
		for _, b := range []*seb.Broker{b, other} {
			time.Sleep(2 * time.Second) // longer than StaleMax
			if _, err := b.Append(t.Context(), "t", values("v")); err != nil {
				t.Error("there is room behind that:", err)
			}
		}
		fill(t, b, "t")
		if err := b.DeleteTopic(ctx, "t"); err != nil {
			t.Error(err)
		}
		if _, err := b.Append(t.Context(), "u", values("v")); err != nil {
			t.Error("there is room behind that:", err)
		}
	})
}

// Brokers that take queues over, or hand out records of new partitions, leave room for the first API key.
func TestOwnersOfQueuesLeaveRoomForKeys(t *testing.T) {
	const queues, partitions = 8, 200
	queue := func(b *seb.Broker, i int) *seb.Queue { return b.Queue("t", fmt.Sprint("q", i)) }
	prepare := func(t *testing.T, topicPartitions int32) *seb.Broker {
		opts := immediate()
		opts.StateMemory = 100_000
		b := open(t, objstore.NewMemory(), opts)
		mustCreateTopic(t, b, "t", topicPartitions)
		if _, err := b.Append(t.Context(), "t", values("v", "v", "v"), seb.ToPartition(0)); err != nil {
			t.Fatal(err)
		}
		for i := range queues {
			mustSet(t, queue(b, i), seb.QueueUpdate{})
		}
		return b
	}
	check := func(t *testing.T, b *seb.Broker, first string) {
		if used := b.StateBytes(); used > 100_000 {
			t.Errorf("the state takes %d bytes of 100000", used)
		}
		if err := queue(b, 0).Ack(t.Context(), first); err != nil {
			t.Error("an acknowledgement in order:", err)
		}
		_, secret := createKey(t, b, seb.KeyOptions{Name: "ops"})
		ctx := asCaller(t, b, bySecret(secret))
		if _, err := b.DeleteRecords(ctx, "t", 0, 2); err != nil {
			t.Error("a start that moves:", err)
		}
		if err := b.DeleteTopic(ctx, "full"); err != nil {
			t.Error(err)
		}
		if _, err := b.Queue("t", fmt.Sprint("q", queues-1)).Receive(ctx, seb.ReceiveOptions{}); err != nil {
			t.Error("a queue when there is room again:", err)
		}
	}
	t.Run("takeovers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := prepare(t, partitions)
			fill(t, b, "full")
			refused, first := 0, ""
			for i := range queues {
				got, err := queue(b, i).Receive(t.Context(), seb.ReceiveOptions{})
				if i == 0 && len(got) == 1 {
					first = got[0].Token
				}
				if err == nil && len(got) == 1 {
					continue
				}
				refused++
				wantCode(t, err, seb.CodeOverStateBudget)
				if of, ok := errors.AsType[*seb.Error](err); !ok || of.Hint == "" {
					t.Error("no hint:", err)
				}
			}
			if refused == 0 || refused == queues {
				t.Errorf("%d of %d takeovers were refused", refused, queues)
			}
			check(t, b, first)
		})
	})
	t.Run("new partitions", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := prepare(t, 1)
			var first []string
			for i := range queues {
				first = append(first, tokens(mustReceive(t, queue(b, i), 1, 0))...)
			}
			if _, err := b.UpdateTopic(t.Context(), "t", seb.TopicUpdate{Partitions: new(int32(partitions))}); err != nil {
				t.Fatal(err)
			}
			fill(t, b, "full")
			for i := range queues {
				mustReceive(t, queue(b, i), 1, 0) // the owner moves its dispatch limits
			}
			time.Sleep(10 * time.Second)
			check(t, b, first[0])
		})
	})
}

// The state forgets idempotency keys and delays when a commit is applied. If a full state refused every
// append, no commit could free memory. So memory that the next commit will free counts as room.
func TestWhatIsForgottenWithTimeMakesRoomByItself(t *testing.T) {
	for what, option := range map[string]func(i int) seb.AppendOption{
		"idempotency keys": func(i int) seb.AppendOption { return seb.IdempotencyKey(fmt.Sprint(i)) },
		"delays":           func(int) seb.AppendOption { return seb.Delay(24 * time.Hour) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, objstore.NewMemory(), smallState())
				mustCreateTopic(t, b, "t", 1)
				var err error
				for i := 0; err == nil && i < 1000; i++ {
					_, err = b.Append(t.Context(), "t", values("v"), option(i))
				}
				wantCode(t, err, seb.CodeOverStateBudget)
				time.Sleep(26 * time.Hour)
				for range 10 {
					if _, err := b.Append(t.Context(), "t", values("v")); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// An idle broker whose state is full learns at the next append that another broker has made room.
func TestRoomThatAnotherBrokerMakesIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b, other := open(t, memory, smallState()), open(t, memory, smallState())
		mustCreateTopic(t, b, "t", 1)
		fill(t, b, "t")
		if err := other.DeleteTopic(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // longer than StaleMax
		if _, err := b.Append(t.Context(), "u", values("v")); err != nil {
			t.Error(err)
		}
	})
}
