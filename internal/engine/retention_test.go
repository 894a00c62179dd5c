package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// keep sets how long, and how many bytes, a topic keeps.
func keep(t *testing.T, e *engine.Engine, topic string, age time.Duration, bytes int64, past bool) {
	t.Helper()
	var id format.TopicID
	e.View(func(s *state.State) { id = s.Topic(topic).ID })
	putEntries(t, e, &format.TopicConfigured{Topic: id, Config: format.TopicConfig{RetentionMS: age.Milliseconds(), RetentionBytes: bytes}},
		&format.QueuesPassed{Topic: id, PastQueues: past})
}

// openWith opens an engine with other options than usual.
func openWith(t *testing.T, store objstore.Store, set func(o *engine.Options)) *engine.Engine {
	t.Helper()
	opts := options(t)
	set(&opts)
	e := engine.New(store, opts)
	if err := e.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Shutdown(nil); err != nil {
			t.Error(err)
		}
	})
	return e
}

// requests returns how many requests a store has got.
func requests(store *storetest.Faulty) (n int) {
	for _, verb := range []objstore.Verb{objstore.VerbCreate, objstore.VerbGet, objstore.VerbList, objstore.VerbDelete} {
		n += store.Count(verb, "")
	}
	return n
}

// bounds returns the start and the end of a topic's partition 0, and its bytes.
func bounds(e *engine.Engine, topic format.TopicID) (start, end format.Offset, bytes int64) {
	e.View(func(s *state.State) {
		p := &s.TopicByID(topic).Partitions[0]
		start, end, bytes = p.Start, p.End, p.Bytes
	})
	return start, end, bytes
}

// Retention deletes exactly the records whose commits are older than the topic's retention: those of the tail, those of commits that
// were merged into one batch of a segment, and the last ones when nothing is appended any longer.
func TestRecordsAreDeletedByAge(t *testing.T) {
	const every, age = 10 * time.Minute, 24 * time.Hour
	for _, commits := range []int{10, 100_000} { // after how many commits the broker compacts
		t.Run(fmt.Sprint(commits), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewFaulty(objstore.NewMemory())
				e := openWith(t, store, func(o *engine.Options) { o.CheckpointCommits = commits })
				topic := create(t, e, "t")
				if err := e.RaiseLevel(t.Context()); err != nil {
					t.Fatal(err)
				}
				keep(t, e, "t", age, 0, false)
				var at []time.Time // when each record was committed, at the latest
				slack := age/20 + time.Minute
				for range 10 * 144 {
					appendValues(t, e, topic, strings.Repeat("x", 100))
					at = append(at, time.Now())
					time.Sleep(every)
					start, _, _ := bounds(e, topic)
					if start > 0 && time.Since(at[start-1]) < age {
						t.Fatalf("record %d is deleted after %v", start-1, time.Since(at[start-1]))
					}
					if old := time.Since(at[start]); old > age+slack {
						t.Fatalf("record %d is %v old", start, old)
					}
				}
				time.Sleep(age + slack)
				if start, end, bytes := bounds(e, topic); start != end || int(end) != len(at) || bytes != 0 {
					t.Errorf("the partition has the offsets %d to %d and %d bytes when all records are over", start, end, bytes)
				}
				time.Sleep(5 * 24 * time.Hour) // until what is dead is deleted
				synctest.Wait()
				before := requests(store)
				time.Sleep(30 * 24 * time.Hour)
				if n := requests(store) - before; n != 0 {
					t.Errorf("%d requests in a month without traffic", n)
				}
				if data := keysOf(t, store, format.DataPrefix); len(data) > 0 {
					t.Errorf("the store has %v, although all records are deleted", data)
				}
			})
		})
	}
}

func noise(seed *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed.Uint32())
	}
	return string(b)
}

func TestRecordsAreDeletedBySize(t *testing.T) {
	for _, commits := range []int{10, 100_000} {
		t.Run(fmt.Sprint(commits), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := openWith(t, objstore.NewMemory(), func(o *engine.Options) { o.CheckpointCommits = commits })
				topic := create(t, e, "t")
				if err := e.RaiseLevel(t.Context()); err != nil {
					t.Fatal(err)
				}
				const most = 20_000
				keep(t, e, "t", 0, most, false)
				time.Sleep(2 * time.Hour)
				seed := rand.New(rand.NewPCG(1, 2))
				for i := range 2000 {
					appendValues(t, e, topic, noise(seed, 100)) // compaction can't compress it: the size counts as stored
					time.Sleep(time.Minute)
					_, _, bytes := bounds(e, topic)
					if i > 200 && bytes < most-1000 { // merged batches take fewer bytes
						t.Fatalf("after %d records, %d bytes are left", i, bytes)
					}
				}
				time.Sleep(5 * time.Minute)
				if start, _, bytes := bounds(e, topic); start == 0 || bytes > 2*most {
					t.Errorf("the partition starts at %d and has %d bytes", start, bytes)
				}
			})
		})
	}
}

// put is a change with these entries.
type put []format.Entry

func (x put) Apply(*state.Draft) ([]format.Entry, error) { return x, nil }

func putEntries(t *testing.T, e *engine.Engine, entries ...format.Entry) {
	t.Helper()
	if err := e.Commit(t.Context(), &engine.Request{Change: put(entries), Synced: true}); err != nil {
		t.Fatal(err)
	}
}

// keeping opens an engine with a topic that keeps records for an hour, and has 50 of them, one a minute.
func keeping(t *testing.T, store objstore.Store, set func(o *engine.Options)) (*engine.Engine, format.TopicID) {
	t.Helper()
	e := openWith(t, store, set)
	topic := create(t, e, "t")
	if err := e.RaiseLevel(t.Context()); err != nil {
		t.Fatal(err)
	}
	keep(t, e, "t", time.Hour, 0, false)
	for range 50 {
		appendValues(t, e, topic, "x")
		time.Sleep(time.Minute)
	}
	return e, topic
}

func wantStart(t *testing.T, e *engine.Engine, topic format.TopicID, want format.Offset) {
	t.Helper()
	synctest.Wait()
	if start, _, _ := bounds(e, topic); start != want {
		t.Errorf("the partition starts at %d instead of %d", start, want)
	}
}

// Records that a queue has not done stay, unless the topic's config says that they go all the same.
func TestQueueHoldsRecordsThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, topic := keeping(t, objstore.NewMemory(), func(*engine.Options) {})
		config := format.QueueConfig{LeaseMS: 30_000, BackoffMinMS: 1000, BackoffMaxMS: 60_000, Attempts: 5}
		putEntries(t, e, &format.QueueSet{ID: 1, Topic: topic, Name: "q", Config: config})
		time.Sleep(3 * time.Hour)
		wantStart(t, e, topic, 0)
		if r := e.Retention(topic); r.Queue != "q" || r.Waits != "" || !r.Next.IsZero() || r.Oldest.After(time.Now().Add(-3*time.Hour)) {
			t.Errorf("retention says %+v", r)
		}
		putEntries(t, e, &format.QueuePurged{Queue: 1, Partition: 0, Before: 20})
		time.Sleep(2 * time.Hour)
		wantStart(t, e, topic, 20)
		keep(t, e, "t", time.Hour, 0, true)
		time.Sleep(2 * time.Minute)
		wantStart(t, e, topic, 50)
	})
}

// A pass that another commit overtakes does not apply a config that is no longer the topic's.
func TestRetentionOfAnEarlierConfigDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, topic := keeping(t, objstore.NewMemory(), func(*engine.Options) {})
		var xs []state.Expiry
		e.View(func(s *state.State) {
			xs = s.Expiries(state.RetentionOptions{Now: time.Now().Add(2 * time.Hour).UnixMicro(), Front: func(format.TopicID, format.Partition) (f state.Front) { return f }})
			if len(xs) != 1 || xs[0].Start != 50 {
				t.Fatalf("after two more hours: %+v", xs)
			}
			d := s.Draft(time.Now().UnixMicro())
			if to := d.Expire(&xs[0]); to == nil || to.Start != 50 {
				t.Errorf("before the config has changed: %v", to)
			}
			if err := d.Take(&format.TopicConfigured{Topic: topic, Config: format.TopicConfig{RetentionMS: 30 * 24 * time.Hour.Milliseconds()}}); err != nil {
				t.Error(err)
			}
			if to := d.Expire(&xs[0]); to != nil {
				t.Errorf("behind an entry with another config: %v", to)
			}
		})
	})
}

// shifted is a store whose clock is wrong by a time that changes.
type shifted struct{ by atomic.Int64 }

func (x *shifted) store() *storetest.Faulty {
	f := storetest.NewFaulty(objstore.NewMemory())
	for _, verb := range []objstore.Verb{objstore.VerbCreate, objstore.VerbGet, objstore.VerbList} {
		f.On(verb, "", func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
			a, err := next(ctx, r)
			a.Time = a.Time.Add(time.Duration(x.by.Load()))
			return a, err
		})
	}
	return f
}

// A store's clock that is ahead, before the broker starts or after it, deletes nothing.
func TestClockThatIsAheadDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x shifted
		store := x.store()
		e, topic := keeping(t, store, func(*engine.Options) {})
		x.by.Store(int64(year))
		for range 30 { // in each minute, the store dates several answers
			appendValues(t, e, topic, "x")
			appendValues(t, e, topic, "x")
			time.Sleep(time.Minute)
		}
		wantStart(t, e, topic, 0)
		if r := e.Retention(topic); !strings.Contains(r.Waits, "differ by") {
			t.Errorf("retention says %+v", r)
		}
		time.Sleep(26 * time.Hour)
		wantStart(t, e, topic, 0)
	})
	synctest.Test(t, func(t *testing.T) {
		// The machine and the store are both a year ahead when a broker starts.
		var x shifted
		store := x.store()
		began := time.Now()
		e := engine.New(store, options(t))
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		topic := create(t, e, "t")
		if err := e.RaiseLevel(t.Context()); err != nil {
			t.Fatal(err)
		}
		keep(t, e, "t", time.Hour, 0, false)
		appendValues(t, e, topic, "x")
		if err := e.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		x.by.Store(int64(year))
		later := openWith(t, store, func(o *engine.Options) {
			o.Wall = func() time.Time { return time.Now().Add(year) }
			o.Boot = func() time.Duration { return time.Since(began) }
		})
		appendValues(t, later, topic, "x")
		time.Sleep(23 * time.Hour)
		wantStart(t, later, topic, 0)
		time.Sleep(3 * time.Hour) // now an operator has had a day to see it
		wantStart(t, later, topic, 2)
	})
}

// A broker leaves retention to the one that has won the last slot. If that one is gone, another one does it some minutes later.
func TestAnotherBrokerDeletesWhatTheLastWriterLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		other := openAs(t, format.SessionID{2}, store)
		opts := options(t)
		e := engine.New(store, opts)
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		topic := create(t, e, "t")
		if err := e.RaiseLevel(t.Context()); err != nil {
			t.Fatal(err)
		}
		keep(t, e, "t", time.Hour, 0, false)
		appendValues(t, e, topic, "x")
		if err := other.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.End()
		time.Sleep(time.Hour + 4*time.Minute)
		wantStart(t, other, topic, 0)
		if r := other.Retention(topic); !strings.Contains(r.Waits, "last commit") {
			t.Errorf("retention says %+v", r)
		}
		time.Sleep(15 * time.Minute)
		wantStart(t, other, topic, 1)
	})
}

// A partition that is larger than its topic keeps, but by less than its first batch, causes no requests.
func TestFullPartitionOfLargeBatchesCausesNoRequests(t *testing.T) {
	for _, commits := range []int{2, 100_000} {
		synctest.Test(t, func(t *testing.T) {
			store := storetest.NewFaulty(objstore.NewMemory())
			e := openWith(t, store, func(o *engine.Options) { o.CheckpointCommits = commits })
			topic := create(t, e, "t")
			seed := rand.New(rand.NewPCG(1, 2))
			keep(t, e, "t", 0, 1<<20, false)
			for range 6 {
				r := appending(topic, noise(seed, 100<<10), noise(seed, 100<<10))
				r.Bytes = 300 << 10
				commit(t, e, &engine.Request{Appends: []*engine.Append{r}})
				time.Sleep(10 * time.Minute)
			}
			appendValues(t, e, topic, "x")
			time.Sleep(5 * 24 * time.Hour)
			synctest.Wait()
			if _, _, bytes := bounds(e, topic); bytes < 1<<20*21/20 {
				t.Fatalf("the partition has only %d bytes", bytes)
			}
			before := requests(store)
			time.Sleep(24 * time.Hour)
			if n := requests(store) - before; n > 0 {
				t.Errorf("%d requests in a day without traffic", n)
			}
		})
	}
}

// A broker that did not write the last commit applies a limit of bytes too, if the writer is gone: also one that was restarted.
func TestSizeIsLimitedWhenTheLastWriterIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		e := engine.New(store, options(t))
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		topic := create(t, e, "t")
		keep(t, e, "t", 0, 2000, false)
		for range 100 {
			appendValues(t, e, topic, strings.Repeat("x", 100))
		}
		if err := e.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		e = open(t, store)
		time.Sleep(4 * time.Hour)
		if _, _, bytes := bounds(e, topic); bytes > 2200 {
			t.Errorf("the partition has %d bytes", bytes)
		}
	})
}

// The longest retention that a topic can have deletes nothing.
func TestLongestRetentionDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		e := openWith(t, store, func(*engine.Options) {})
		topic := create(t, e, "t")
		keep(t, e, "t", time.Duration(math.MaxInt64).Truncate(time.Millisecond), 0, false)
		appendValues(t, e, topic, "x")
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		before := requests(store)
		time.Sleep(24 * time.Hour)
		if n := requests(store) - before; n > 0 {
			t.Errorf("%d requests in a day without traffic", n)
		}
		wantStart(t, e, topic, 0)
	})
}

// A segment whose table can't be read stops the retention of its own partition only.
func TestLostSegmentDoesNotStopOtherTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		var lost atomic.Value
		lost.Store("")
		store.On(objstore.VerbGet, format.DataPrefix, func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
			if r.Key == lost.Load().(string) {
				return storetest.Answer{}, objstore.ErrNotFound
			}
			return next(ctx, r)
		})
		e := openWith(t, store, func(o *engine.Options) { o.CheckpointCommits = 20 })
		first, second := create(t, e, "t"), create(t, e, "u")
		keep(t, e, "t", 0, 3000, false)
		keep(t, e, "u", time.Hour, 0, false)
		seed := rand.New(rand.NewPCG(1, 2))
		for range 30 {
			appendValues(t, e, first, noise(seed, 50))
		}
		time.Sleep(2 * time.Minute)
		appendValues(t, e, first, noise(seed, 50))
		synctest.Wait()
		e.View(func(s *state.State) { lost.Store(s.Segments()[0].Ref.Key()) })
		other := openAs(t, format.SessionID{7}, store) // it has nothing in its cache
		for range 20 {
			appendValues(t, other, first, noise(seed, 50))
			appendValues(t, other, second, "x")
		}
		time.Sleep(3 * time.Hour)
		wantStart(t, other, second, 20)
		before := requests(store)
		time.Sleep(24 * time.Hour)
		if n := requests(store) - before; n > 100 {
			t.Errorf("%d requests in a day", n)
		}
	})
}

// The limits that topics had below level 6 delete nothing before somebody sets them again.
func TestLimitsFromBeforeTheLevelAreSetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		low := options(t)
		low.HoldLevel = true
		old := engine.New(store, low)
		if err := old.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		topic := create(t, old, "t")
		config := format.TopicConfig{RetentionMS: time.Hour.Milliseconds(), RetentionBytes: 100}
		putEntries(t, old, &format.TopicConfigured{Topic: topic, Config: config})
		for range 20 {
			appendValues(t, old, topic, "x")
		}
		if err := old.RaiseLevel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := old.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		e := open(t, store) // from a checkpoint
		time.Sleep(48 * time.Hour)
		appendValues(t, e, topic, "x")
		time.Sleep(time.Hour)
		wantStart(t, e, topic, 0)
		if r := e.Retention(topic); !strings.Contains(r.Waits, "set them again") {
			t.Errorf("retention says %+v", r)
		}
		putEntries(t, e, &format.TopicConfigured{Topic: topic, Config: config})
		time.Sleep(2 * time.Hour)
		wantStart(t, e, topic, 21)
	})
}

// Connected brokers don't take turns at deleting a few records each, although what a broker knows about the front of a partition no
// longer holds when another one has moved it.
func TestConnectedBrokersLeaveRetentionToOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		var es []*engine.Engine
		for i := range 2 {
			es = append(es, openWith(t, store, func(o *engine.Options) { o.Session, o.CheckpointCommits = format.SessionID{byte(i + 1)}, 1400 }))
		}
		connect(t, es[0], es[1])
		topic := create(t, es[0], "t")
		keep(t, es[0], "t", 48*time.Hour, 0, false)
		for range 1500 {
			appendValues(t, es[0], topic, "x")
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		before := es[0].Applied()
		time.Sleep(60 * time.Hour)
		wantStart(t, es[0], topic, 1500)
		if n := es[0].Applied() - before; n > 30 {
			t.Errorf("%d commits to delete the records of a day", n)
		}
	})
}

// A store that refuses deletes, or claims to have deleted what it still lists, does not cost requests for ever.
func TestCleanupThatFailsCausesFewRequests(t *testing.T) {
	for what, answer := range map[string]error{"refused": errors.New("409: a retention policy"), "ignored": nil} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewFaulty(objstore.NewMemory())
				e := openWith(t, store, func(o *engine.Options) { o.CheckpointCommits = 10 })
				topic := create(t, e, "t")
				for range 40 {
					appendValues(t, e, topic, "x")
					time.Sleep(time.Minute)
				}
				store.On(objstore.VerbDelete, "", func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
					return storetest.Answer{Time: time.Now()}, answer
				})
				if err := e.Commit(t.Context(), &engine.Request{Change: moveStart{topic, 40}, Synced: true}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(4 * 24 * time.Hour)
				deletes := store.Count(objstore.VerbDelete, "")
				if deletes == 0 {
					t.Fatal("nothing was to be deleted")
				}
				before := requests(store) - deletes
				time.Sleep(10 * 24 * time.Hour)
				if n := requests(store) - store.Count(objstore.VerbDelete, "") - before; n > 10*50 {
					t.Errorf("%d requests that are no deletes in ten days without traffic", n)
				}
			})
		})
	}
}
