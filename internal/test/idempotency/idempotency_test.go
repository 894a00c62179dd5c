package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/internal/test/loglines"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func mustAppendKeyed(t testing.TB, b *seb.Broker, key string, vs ...string) seb.Appended {
	t.Helper()
	a, err := b.Append(t.Context(), "t", values(vs...), seb.IdempotencyKey(key))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// wantReplay fails unless a is the answer first, marked as replayed.
func wantReplay(t testing.TB, a, first seb.Appended) {
	t.Helper()
	first.Replayed = true
	if diff := cmp.Diff(first, a); diff != "" {
		t.Errorf("the retry's answer (-want +got):\n%s", diff)
	}
}

func TestRetryWithTheSameKeyGetsTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		opts := immediate()
		opts.CheckpointCommits = 3
		b := open(t, memory, opts)
		other := open(t, memory, opts)
		mustCreateTopic(t, b, "t", 3)
		first, err := b.Append(t.Context(), "t", []seb.Record{{Key: []byte("a")}, {Key: []byte("b"), Value: []byte("x")}, {}}, seb.IdempotencyKey("k"))
		if err != nil || first.Replayed || first.Count != 3 {
			t.Fatalf("the first answer is %+v, %v", first, err)
		}
		again := func(b *seb.Broker) {
			t.Helper()
			a, err := b.Append(t.Context(), "t", []seb.Record{{Key: []byte("a")}, {Key: []byte("b"), Value: []byte("x")}, {}}, seb.IdempotencyKey("k"))
			if err != nil {
				t.Fatal(err)
			}
			wantReplay(t, a, first)
		}
		again(b)
		again(other) // which has not synced since
		for range 4 {
			mustAppend(t, b, "t", "more")
		}
		again(open(t, memory, opts)) // a broker that started from a checkpoint
		total := 0
		for p := range int32(3) {
			total += len(readAll(t, b, "t", p))
		}
		if total != 3+4 {
			t.Errorf("%d records, want 7", total)
		}
	})
}

func TestAnotherAppendUnderAUsedKeyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b := open(t, memory, immediate())
		other := open(t, memory, immediate())
		mustCreateTopic(t, b, "t", 2)
		stamped := func() []seb.Record { return []seb.Record{{Value: []byte("v"), Timestamp: time.UnixMilli(7)}} }
		if _, err := b.Append(t.Context(), "t", stamped(), seb.IdempotencyKey("k"), seb.ToPartition(0)); err != nil {
			t.Fatal(err)
		}
		tests := map[string]struct {
			records []seb.Record
			opts    []seb.AppendOption
		}{
			"another value":     {[]seb.Record{{Value: []byte("w"), Timestamp: time.UnixMilli(7)}}, []seb.AppendOption{seb.ToPartition(0)}},
			"another partition": {stamped(), []seb.AppendOption{seb.ToPartition(1)}},
			"no partition":      {stamped(), nil},
			"another time":      {values("v"), []seb.AppendOption{seb.ToPartition(0)}},
			"a condition":       {stamped(), []seb.AppendOption{seb.ToPartition(0), seb.IfOffset(1)}},
			"a key":             {[]seb.Record{{Key: []byte{}, Value: []byte("v"), Timestamp: time.UnixMilli(7)}}, []seb.AppendOption{seb.ToPartition(0)}},
			"a header":          {[]seb.Record{{Headers: []seb.Header{{}}, Value: []byte("v"), Timestamp: time.UnixMilli(7)}}, []seb.AppendOption{seb.ToPartition(0)}},
			"two records":       {append(stamped(), stamped()...), []seb.AppendOption{seb.ToPartition(0)}},
		}
		for name, test := range tests {
			for _, b := range []*seb.Broker{b, other} {
				_, err := b.Append(t.Context(), "t", test.records, append(test.opts, seb.IdempotencyKey("k"))...)
				if seb.CodeOf(err) != seb.CodeIdempotencyKeyReused || seb.OutcomeOf(err) != seb.NotCommitted {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		wantValues(t, b, "t", "v")
		mustAppend(t, b, "u", "v")
		if a, err := b.Append(t.Context(), "u", values("w"), seb.IdempotencyKey("k")); err != nil || a.Replayed {
			t.Errorf("the same key for another topic: %+v, %v", a, err)
		}
	})
}

func TestKeyOfADeletedTopicIsFree(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	mustCreateTopic(t, b, "t", 1)
	mustAppendKeyed(t, b, "k", "old")
	if err := b.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if a := mustAppendKeyed(t, b, "k", "old"); a.Replayed {
		t.Errorf("the answer is %+v", a)
	}
	wantValues(t, b, "t", "old")
}

// A broker that has not heard of the deletion knows the key in the old topic, or learns of it while
// the append is on its way. The result of the old append is no answer for the new topic.
func TestKeyOfATopicThatWasDeletedElsewhereIsFree(t *testing.T) {
	for name, known := range map[string]bool{"the key is known": true, "the key is learned": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := objstore.NewMemory()
				b, other := open(t, memory, immediate()), open(t, memory, immediate())
				mustCreateTopic(t, b, "t", 1)
				wantValues(t, other, "t")
				mustAppendKeyed(t, b, "k", "v")
				if known {
					mustAppendKeyed(t, other, "k", "v")
				}
				if err := b.DeleteTopic(t.Context(), "t"); err != nil {
					t.Fatal(err)
				}
				mustCreateTopic(t, b, "t", 1)
				a, err := other.Append(t.Context(), "t", values("v"), seb.IdempotencyKey("k"))
				if seb.CodeOf(err) == seb.CodeTopicNotFound { // the broker learned of it too late to begin again
					wantOutcome(t, err, seb.NotCommitted)
					a, err = other.Append(t.Context(), "t", values("v"), seb.IdempotencyKey("k"))
				}
				if err != nil || a.Replayed {
					t.Errorf("the append to the new topic: %+v, %v", a, err)
				}
				wantValues(t, other, "t", "v")
			})
		})
	}
}

// While the first append is under way, its retries wait for it. It is withdrawn only when all of its
// callers have given up.
func TestRetriesJoinTheAppendThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := open(t, faulty, immediate())
		mustCreateTopic(t, b, "t", 1)
		release := make(chan struct{})
		defer faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))()
		async := func(key, v string) *seb.Pending {
			t.Helper()
			p, err := b.AppendAsync(t.Context(), "t", values(v), seb.IdempotencyKey(key))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return p
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		giveUp := func(p *seb.Pending, want seb.Outcome) {
			t.Helper()
			for range 2 { // the second call changes nothing
				_, err := p.Wait(gone)
				wantCode(t, err, seb.CodeCanceled)
				wantOutcome(t, err, want)
			}
		}
		async("sealed", "first") // this append is under way at once
		x1, x2 := async("x", "x"), async("x", "x")
		y1, y2 := async("y", "y"), async("y", "y")
		if _, err := b.AppendAsync(t.Context(), "t", values("z"), seb.IdempotencyKey("x")); seb.CodeOf(err) != seb.CodeIdempotencyKeyReused {
			t.Errorf("another append under a key that is under way: %v", err)
		}
		giveUp(x1, seb.Unknown)
		giveUp(y1, seb.Unknown)
		giveUp(y2, seb.NotCommitted)
		y3 := async("y", "y anew")
		close(release)
		a, err := x2.Wait(t.Context())
		if err != nil || !a.Replayed {
			t.Errorf("the retry's answer is %+v, %v", a, err)
		}
		if a, err := y3.Wait(t.Context()); err != nil || a.Replayed {
			t.Errorf("the answer after all had given up is %+v, %v", a, err)
		}
		wantValues(t, b, "t", "first", "x", "y anew")
		wantReplay(t, mustAppendKeyed(t, b, "x", "x"), a)
		if n := kit.MemoryInUse(b); n != 0 {
			t.Errorf("%d bytes are still taken", n)
		}
	})
}

// The first broker holds the append, in a batch with others, while a retry through the second broker
// is committed. Then the first broker must commit only the other appends.
func TestAppendWhoseRetryWasFasterElsewhereIsAnsweredAsThat(t *testing.T) {
	for _, size := range []int{1, 6 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				referred := dataIsThere(t, memory, faulty)
				b := open(t, faulty, immediate())
				mustCreateTopic(t, b, "t", 1)
				other := open(t, memory, immediate())
				release := make(chan struct{})
				undo := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))
				var pending []*seb.Pending
				async := func(v string, opts ...seb.AppendOption) {
					t.Helper()
					p, err := b.AppendAsync(t.Context(), "t", values(v), opts...)
					if err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					pending = append(pending, p)
				}
				async("under way") // the following appends share a commit
				async(large("before", size))
				async(large("keyed", size), seb.IdempotencyKey("k"))
				async(large("other key", size), seb.IdempotencyKey("o"))
				async(large("after", size))
				async(large("only", size), seb.IdempotencyKey("l"))
				elsewhere := mustAppendKeyed(t, other, "k", large("keyed", size))
				alone := mustAppendKeyed(t, other, "l", large("only", size))
				undo()
				close(release)
				want := []seb.Offset{2, 3, 0, 4, 5, 1}
				for i, p := range pending {
					a, err := p.Wait(t.Context())
					if err != nil || a.Ranges[0].Offset != want[i] || a.Replayed != (i == 2 || i == 5) {
						t.Errorf("append %d: %+v, %v", i, a, err)
					}
				}
				vs := []string{large("keyed", size), large("only", size), "under way", large("before", size), large("other key", size), large("after", size)}
				wantValues(t, b, "t", vs...)
				time.Sleep(2 * time.Second) // after that, the other's last sync is too old
				wantValues(t, other, "t", vs...)
				wantReplay(t, mustAppendKeyed(t, b, "k", large("keyed", size)), elsewhere)
				wantReplay(t, mustAppendKeyed(t, b, "l", large("only", size)), alone)
				if a := mustAppendKeyed(t, other, "o", large("other key", size)); !a.Replayed || a.Ranges[0].Offset != 4 {
					t.Errorf("%+v", a)
				}
				if size > 1 && referred() == 0 {
					t.Error("no data object was used")
				}
				if n := kit.MemoryInUse(b); n != 0 {
					t.Errorf("%d bytes are still taken", n)
				}
			})
		})
	}
}

func TestRetryAfterAnUnknownOutcomeIsExact(t *testing.T) {
	for name, land := range map[string]bool{"the commit came through": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				dying := openOnly(t, faulty, immediate())
				mustAppend(t, dying, "t", "old")
				var late storetest.Late
				faulty.On(objstore.VerbCreate, format.LogPrefix, late.Fault)
				pending, err := dying.AppendAsync(t.Context(), "t", values("once"), seb.IdempotencyKey("k"))
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // until the PUT was sent
				kill(t, dying)
				_, err = pending.Wait(t.Context())
				wantOutcome(t, err, seb.Unknown)
				if land {
					late.Release()
				}
				b := open(t, memory, immediate())
				if a := mustAppendKeyed(t, b, "k", "once"); a.Replayed != land || a.Ranges[0].Offset != 1 {
					t.Errorf("the retry's answer is %+v", a)
				}
				late.Release()
				wantValues(t, b, "t", "old", "once")
			})
		})
	}
}

func TestKeysAreForgottenAfterADayAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := immediate()
		opts.Limits.IdempotencyKeys = 2
		b := open(t, objstore.NewMemory(), opts)
		mustCreateTopic(t, b, "t", 1)
		mustAppendKeyed(t, b, "a", "a")
		time.Sleep(time.Hour)
		mustAppendKeyed(t, b, "b", "b")
		_, err := b.Append(t.Context(), "t", values("c"), seb.IdempotencyKey("c"))
		wantCode(t, err, seb.CodeIdempotencyKeysFull)
		wantOutcome(t, err, seb.NotCommitted)
		time.Sleep(23*time.Hour + 59*time.Minute)
		if a := mustAppendKeyed(t, b, "a", "a"); !a.Replayed {
			t.Errorf("forgotten within a day: %+v", a)
		}
		time.Sleep(2 * time.Hour)
		if a := mustAppendKeyed(t, b, "a", "a"); a.Replayed {
			t.Errorf("remembered after 26 hours: %+v", a)
		}
		mustAppendKeyed(t, b, "c", "c") // now "b" is forgotten too
		wantValues(t, b, "t", "a", "b", "a", "c")
	})
}

func TestIdempotencyKeysAreForgottenByTheStoresClock(t *testing.T) {
	for _, off := range []time.Duration{48 * time.Hour, -48 * time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, shifted(objstore.NewMemory(), offBy(off)), wallOff(-off))
				mustCreateTopic(t, b, "t", 1)
				mustAppendKeyed(t, b, "a", "a")
				time.Sleep(24 * time.Hour)
				if a := mustAppendKeyed(t, b, "a", "a"); !a.Replayed {
					t.Errorf("forgotten within a day: %+v", a)
				}
				time.Sleep(2 * time.Hour)
				if a := mustAppendKeyed(t, b, "a", "a"); a.Replayed {
					t.Errorf("remembered after 26 hours: %+v", a)
				}
			})
		})
	}
}

// A broker without room for a new key may not know yet that the log already remembers this key.
func TestRetryIsKnownWhereThereIsNoRoomForItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b := open(t, memory, immediate())
		opts := immediate()
		opts.Limits.IdempotencyKeys = 1
		full := open(t, memory, opts)
		mustCreateTopic(t, b, "t", 1)
		mustAppendKeyed(t, full, "a", "a")
		first := mustAppendKeyed(t, b, "b", "b")
		wantReplay(t, mustAppendKeyed(t, full, "b", "b"), first)
		_, err := full.Append(t.Context(), "t", values("c"), seb.IdempotencyKey("c"))
		wantCode(t, err, seb.CodeIdempotencyKeysFull)
	})
}

// A broker sleeps over an append for longer than the log remembers the key of the append's retry. When
// it wakes, it must not commit the append.
func TestAppendThatSleptForADayIsNotCommittedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := open(t, faulty, immediate())
		mustCreateTopic(t, b, "t", 1)
		release := make(chan struct{})
		undo := faulty.On("", "", storetest.Hold(release))
		sleeping, err := b.AppendAsync(t.Context(), "t", values("once"), seb.IdempotencyKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		other := open(t, memory, immediate())
		mustAppendKeyed(t, other, "k", "once")
		time.Sleep(30 * time.Hour)
		mustAppend(t, other, "t", "later") // with this commit, the log forgets the key
		undo()
		close(release)
		_, err = sleeping.Wait(t.Context())
		wantOutcome(t, err, seb.Unknown) // its timeout ended long ago
		mustAppend(t, b, "t", "last")
		wantValues(t, b, "t", "once", "later", "last")
	})
}

func TestIdempotencyKeysAreChecked(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{})
	for _, key := range []string{"", strings.Repeat("k", 256)} {
		_, err := b.Append(t.Context(), "t", values("v"), seb.IdempotencyKey(key))
		wantCode(t, err, seb.CodeInvalidRequest)
	}
	if _, err := b.Append(t.Context(), "t", values("v"), seb.IdempotencyKey(strings.Repeat("k", 255))); err != nil {
		t.Error(err)
	}
}

// Many callers send the same few appends through three brokers at the same time.
func TestManyRetriesAtOnceAppendOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.Slow(objstore.NewMemory(), 5*time.Millisecond)
		var bs []*seb.Broker
		for range 3 {
			bs = append(bs, open(t, store, immediate()))
		}
		mustCreateTopic(t, bs[0], "t", 1)
		const appends, tries = 20, 9
		var (
			mu    sync.Mutex
			where = map[int]seb.Offset{}
			first = map[int]int{}
			wg    sync.WaitGroup
		)
		for i := range appends * tries {
			wg.Go(func() {
				n := i % appends
				a, err := bs[i%3].Append(t.Context(), "t", values(fmt.Sprint(n)), seb.IdempotencyKey(fmt.Sprint(n)))
				mu.Lock()
				defer mu.Unlock()
				at, known := where[n]
				if err != nil || known && at != a.Ranges[0].Offset {
					t.Errorf("append %d: %+v, %v; another try stands at %d", n, a, err, at)
					return
				}
				where[n] = a.Ranges[0].Offset
				if !a.Replayed {
					first[n]++
				}
			})
		}
		wg.Wait()
		if got := readAll(t, bs[0], "t", 0); len(got) != appends {
			t.Errorf("%d records: %v", len(got), got)
		}
		for n := range appends {
			if first[n] != 1 {
				t.Errorf("append %d was answered %d times as the first", n, first[n])
			}
		}
	})
}

// A retry gets the first answer, even if the append would be refused now: once the topic has two
// partitions, records without a key have no partition of their own.
func TestRetryOfAConditionAfterPartitionsWereAdded(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	mustCreateTopic(t, b, "t", 1)
	once := func() (seb.Appended, error) {
		return b.Append(t.Context(), "t", values("a"), seb.IfOffset(0), seb.IdempotencyKey("k"))
	}
	if _, err := once(); err != nil {
		t.Fatal(err)
	}
	two := int32(2)
	if _, err := b.UpdateTopic(t.Context(), "t", seb.TopicUpdate{Partitions: &two}); err != nil {
		t.Fatal(err)
	}
	again, err := once()
	if err != nil || !again.Replayed || len(again.Ranges) != 1 || again.Ranges[0] != (seb.Range{Count: 1}) {
		t.Errorf("the retry got %+v, %v", again, err)
	}
}

// From 80 % of the keys on, the broker warns at each further tenth. The error at the maximum says what helps.
func TestKeysThatRunOutAreNoticedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		opts := immediate()
		opts.Limits.IdempotencyKeys = 10
		opts.Logger = loglines.Text(t, &log, slog.LevelInfo)
		b := open(t, objstore.NewMemory(), opts)
		mustCreateTopic(t, b, "t", 1)
		for i, warnings := range []int{0, 0, 0, 0, 0, 0, 0, 1, 2, 3} {
			mustAppendKeyed(t, b, fmt.Sprint(i), "v")
			synctest.Wait()
			if got := strings.Count(log.String(), "level=WARN"); got != warnings {
				t.Fatalf("%d warnings with %d keys, want %d:\n%s", got, i+1, warnings, log.String())
			}
		}
		if warned := log.String(); !strings.Contains(warned, "80% of --idempotency-keys-max") || !strings.Contains(warned, "idempotency_keys=8 ") {
			t.Errorf("logged:\n%s", warned)
		}
		wantKeys := func(want float64) {
			t.Helper()
			values := map[string]float64{}
			for _, f := range b.Metrics() {
				if strings.HasPrefix(f.Name, "seb_idempotency_keys") {
					values[f.Name] = f.Series[0].Value
				}
			}
			if diff := cmp.Diff(map[string]float64{"seb_idempotency_keys": want, "seb_idempotency_keys_limit": 10}, values); diff != "" {
				t.Error(diff)
			}
		}
		wantKeys(10)
		_, err := b.Append(t.Context(), "t", values("v"), seb.IdempotencyKey("new"))
		wantCode(t, err, seb.CodeIdempotencyKeysFull)
		full, _ := errors.AsType[*seb.Error](err)
		if !strings.Contains(full.Hint, "--idempotency-keys-max") || strings.Contains(full.Hint, "without") {
			t.Errorf("the hint is %q", full.Hint)
		}
		time.Sleep(26 * time.Hour)
		wantKeys(0)
	})
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
