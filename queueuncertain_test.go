package seb_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// freshAfterKill kills the owner of a queue, and returns how many of the remaining records the next
// owner hands out at once.
func freshAfterKill(t *testing.T, b *seb.Broker, store objstore.Store) (n int) {
	t.Helper()
	kill(t, b)
	next := open(t, store, kit.InVirtualTime(immediate())).Queue("t", "work")
	for {
		ms := mustReceive(t, next, 1000, 0)
		if len(ms) == 0 {
			return n
		}
		for _, m := range ms {
			if m.Attempt != 1 {
				t.Fatalf("offset %d goes out as attempt %d before the lease is over", m.Offset, m.Attempt)
			}
		}
		n += len(ms)
	}
}

// One of twenty records was handed out, so the next owner must not hold back all of them as uncertain, however
// many partitions they are in.
func TestLostOwnerOfASmallQueueHoldsBackFewRecords(t *testing.T) {
	for _, partitions := range []int32{1, 3, 20, 100} {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d partitions, done %t", partitions, done), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := objstore.NewMemory()
					b := openOnly(t, store, kit.InVirtualTime(immediate()))
					mustCreateTopic(t, b, "t", partitions)
					q := b.Queue("t", "work")
					mustSet(t, q, seb.QueueUpdate{})
					for i := range int32(20) {
						appendTo(t, b, i%partitions, 1)
					}
					ms := mustReceive(t, q, 1, 0)
					if done {
						mustAck(t, q, ms...)
					}
					if n := freshAfterKill(t, b, store); n < 11 {
						t.Errorf("of 19 records that nobody got, %d are handed out before the lease is over", n)
					}
				})
			})
		}
	}
}

// While records of many partitions are handed out one by one, only about a second of deliveries is uncertain.
func TestUncertainRecordsDoNotGrowWithThePartitions(t *testing.T) {
	for _, partitions := range []int32{1, 10, 100} {
		synctest.Test(t, func(t *testing.T) {
			const each, taken = 50, 30
			store := objstore.NewMemory()
			b := openOnly(t, store, kit.InVirtualTime(immediate()))
			mustCreateTopic(t, b, "t", partitions)
			q := b.Queue("t", "work")
			mustSet(t, q, seb.QueueUpdate{})
			for i := range partitions {
				appendTo(t, b, i, each)
			}
			for range taken {
				mustAck(t, q, mustReceive(t, q, 1, 0)...)
				time.Sleep(time.Second)
			}
			if held := each*int(partitions) - taken - freshAfterKill(t, b, store); held > 16 {
				t.Errorf("%d partitions: %d records are held back after one was taken each second", partitions, held)
			}
		})
	}
}

// Some time after a burst of deliveries, the dispatch limit is as close to the delivered records as that of
// a queue that was always slow.
func TestDispatchLimitFallsWhenDeliveriesSlowDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b := openOnly(t, store, kit.InVirtualTime(immediate()))
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		if _, err := b.Append(t.Context(), "t", batchOf(6000, 1)); err != nil {
			t.Fatal(err)
		}
		done := 0
		work := func(most int) {
			ms := mustReceive(t, q, most, 0)
			mustAck(t, q, ms...)
			done += len(ms)
		}
		for range 5 {
			work(1000)
		}
		if done < 4000 {
			t.Fatalf("five receives of 1000 got %d", done)
		}
		for range 60 {
			time.Sleep(2 * time.Second)
			work(1)
		}
		if n := freshAfterKill(t, b, store); n < 6000-done-40 {
			t.Errorf("of %d records that nobody got, %d are handed out before the lease is over", 6000-done, n)
		}
	})
}

// A worker that takes one record after the other costs no commits other than those of its
// acknowledgements, at any speed.
func TestDispatchLimitMovesWithOtherCommits(t *testing.T) {
	for _, work := range []time.Duration{0, 100 * time.Millisecond, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			_, faulty := newFaulty()
			opts := kit.InVirtualTime(immediate())
			opts.Batching = seb.Timed(250*time.Millisecond, 1<<20)
			b := open(t, storetest.Slow(faulty, 30*time.Millisecond), opts)
			mustCreateTopic(t, b, "t", 1)
			q := b.Queue("t", "work")
			mustSet(t, q, seb.QueueUpdate{})
			if _, err := b.Append(t.Context(), "t", batchOf(300, 1)); err != nil {
				t.Fatal(err)
			}
			mustAck(t, q, mustReceive(t, q, 1, 0)...) // takes the queue over
			before := faulty.Count(objstore.VerbCreate, "log/")
			for range 200 {
				began := time.Now()
				ms := mustReceive(t, q, 1, time.Minute)
				if waited := time.Since(began); waited > 0 {
					t.Fatalf("offset %d was waited for %v", ms[0].Offset, waited)
				}
				time.Sleep(work)
				mustAck(t, q, ms...)
				synctest.Wait() // until the broker knows that its commit has proven the end of the log, so that it does not sync
			}
			if n := faulty.Count(objstore.VerbCreate, "log/") - before; n != 200 {
				t.Errorf("200 acknowledgements took %d commits, with %v of work each", n, work)
			}
		})
	}
}

// The commit that appends records also raises the dispatch limit, so that waiting workers get the records at
// once.
func TestWorkersOfAnIdleQueueGetWhatIsAppendedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 50
		b, q := openQueueOn(t, storetest.Slow(objstore.NewMemory(), 50*time.Millisecond), 1, seb.QueueUpdate{})
		mustAck(t, q, mustReceive(t, q, 1, 0)...)
		var all []<-chan []seb.Message
		for range workers {
			all = append(all, waiting(t, q, 10*time.Minute))
		}
		time.Sleep(5 * time.Minute)
		if _, err := b.Append(t.Context(), "t", batchOf(workers, 1)); err != nil {
			t.Fatal(err)
		}
		began, n := time.Now(), 0
		for _, got := range all {
			n += len(<-got)
		}
		if waited := time.Since(began); n != workers || waited > 0 {
			t.Errorf("%d workers have got their records %v after they were appended", n, waited)
		}
	})
}

// The next owner keeps the uncertain records as a range, and not one by one. When their lease is over and it
// hands them out, it knows only few of them one by one.
func TestWhatIsHeldBackTakesNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b := openOnly(t, store, kit.InVirtualTime(immediate()))
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		if _, err := b.Append(t.Context(), "t", batchOf(5000, 1)); err != nil {
			t.Fatal(err)
		}
		out := 0
		for out < 3000 {
			out += len(mustReceive(t, q, 1000, time.Second))
		}
		kill(t, b)
		q = open(t, store, kit.InVirtualTime(immediate())).Queue("t", "work")
		known := func(when string, most int) {
			t.Helper()
			if n := seb.KnownRecords(q); n > most {
				t.Errorf("%s the owner knows %d records", when, n)
			}
		}
		mustAck(t, q, mustReceive(t, q, 10, 0)...)
		known("while the lease lasts", 0)
		for done := 10; done < 5000; {
			ms := mustReceive(t, q, 10, time.Minute)
			if len(ms) == 0 {
				t.Fatalf("%d records come no more", 5000-done)
			}
			known("when it is over", 30)
			mustAck(t, q, ms...)
			done += len(ms)
		}
		wantLeft(t, q, 0)
	})
}

// A queue's info distinguishes records that wait for the leases of a lost owner from ready ones, in queues of
// either order, until they are answered, extended, or handed out again.
func TestHeldBackRecordsAreShown(t *testing.T) {
	for _, order := range []seb.QueueOrder{seb.OrderNone, seb.OrderKey} {
		t.Run(string(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := objstore.NewMemory()
				b := openOnly(t, store, kit.InVirtualTime(immediate()))
				mustCreateTopic(t, b, "t", 1)
				q := b.Queue("t", "work")
				mustSet(t, q, seb.QueueUpdate{Order: &order})
				appendTo(t, b, 0, 100)
				ms := mustReceive(t, q, 10, 0)
				again := ms[9]
				if err := q.Nack(t.Context(), seb.NackOptions{Delay: ptr(time.Duration(0))}, again.Token); err != nil {
					t.Fatal(err)
				}
				for again.Attempt == 1 { // records with an entry in the log for their attempt are held back too
					again = mustReceive(t, q, 1, time.Second)[0]
					time.Sleep(time.Second) // until its attempt is in the log
				}
				kill(t, b)
				q = open(t, store, kit.InVirtualTime(immediate())).Queue("t", "work")
				fresh := mustReceive(t, q, 1, 0)
				want := func(what string, ready, held, leased, later int64) {
					t.Helper()
					info := describe(t, q)
					if info.Ready != ready || info.Leased != leased || info.Delayed != later || (held >= 0 && info.Held != held) {
						t.Fatalf("%s: %d ready, %d held, %d leased, %d delayed; want %d, %d, %d, %d", what, info.Ready, info.Held, info.Leased, info.Delayed, ready, held, leased, later)
					}
					if (info.Held == 0) != info.HeldUntil.IsZero() {
						t.Fatalf("%s: %d held until %v", what, info.Held, info.HeldUntil)
					}
				}
				info := describe(t, q)
				held := info.Held
				// 10 records were with workers. There were 11 deliveries in the last seconds, so at most 11 others are held.
				if held < 10 || held > 10+11 || info.Ready+held+1 != 100 {
					t.Fatalf("%d are held, %d are ready", held, info.Ready)
				}
				if left := time.Until(info.HeldUntil); left != 30*time.Second {
					t.Errorf("they are held for %v", left)
				}
				mustAck(t, q, ms[0])
				want("one is done", 99-held, held-1, 1, 0)
				if _, err := q.Extend(t.Context(), time.Hour, ms[1].Token); err != nil {
					t.Fatal(err)
				}
				want("one is extended", 99-held, held-2, 2, 0)
				if err := q.Nack(t.Context(), seb.NackOptions{Delay: ptr(time.Hour)}, ms[2].Token); err != nil {
					t.Fatal(err)
				}
				want("one is put back", 99-held, held-3, 2, 1)
				mustAck(t, q, fresh...)
				time.Sleep(30 * time.Second)
				want("the lease is over", 99-held+held-3, 0, 1, 1)
				seen := map[seb.Offset]bool{}
				for len(seen) < 96 {
					got := mustReceive(t, q, 7, 2*time.Second)
					for _, m := range got {
						seen[m.Offset] = true
					}
					mustAck(t, q, got...)
					if len(got) == 0 {
						break
					}
				}
				want("all others are done", 0, 0, 1, 1)
			})
		})
	}
}
