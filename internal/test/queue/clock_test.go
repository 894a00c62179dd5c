package queue_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
)

func appendDelayed(t *testing.T, b *seb.Broker, o seb.AppendOption) {
	t.Helper()
	if _, err := b.Append(t.Context(), "t", values("later"), o); err != nil {
		t.Fatal(err)
	}
}

// wantAfter checks when the next record of a queue is handed out: not before then + d, and not after
// then + d + late.
func wantAfter(t *testing.T, q *seb.Queue, then time.Time, d, late time.Duration) []seb.Message {
	t.Helper()
	ms := mustReceive(t, q, 1, time.Until(then)+d+late+time.Minute)
	if after := time.Since(then); len(ms) == 0 || after < d-ticks || after > d+late+ticks {
		t.Fatalf("%d records were handed out after %v, want one after %v", len(ms), after, d)
	}
	return ms
}

// ticks is longer than the commits of one instant take by the log's time, which goes on by 1 µs at least from commit to commit.
const ticks = 20 * time.Microsecond

func TestDelaysDoNotDependOnHowFarTheStoresClockIsOff(t *testing.T) {
	for _, off := range []time.Duration{2 * time.Hour, 5 * time.Second, 0, -5 * time.Second, -2 * time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, shifted(objstore.NewMemory(), offBy(off)), immediate())
				q := queueOf(t, b, 0, 0)
				began := time.Now()
				appendDelayed(t, b, seb.Delay(4*time.Second))
				ms := wantAfter(t, q, began, 4*time.Second, 0)

				began = time.Now()
				if err := q.Nack(t.Context(), seb.NackOptions{Delay: ptr(3 * time.Second)}, tokens(ms)...); err != nil {
					t.Fatal(err)
				}
				mustAck(t, q, wantAfter(t, q, began, 3*time.Second, 0)...)

				began = time.Now()
				appendDelayed(t, b, seb.DeliverAt(began.Add(off+6*time.Second))) // by the store's clock
				wantAfter(t, q, began, 6*time.Second, 0)
			})
		})
	}
}

func TestWallClocksOfBrokersDecideNothingAboutQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		appends, owns, next := open(t, store, wallOff(2*time.Hour)), openOnly(t, store, wallOff(-3*time.Hour)), open(t, store, wallOff(5*time.Hour))
		queueOf(t, appends, 0, 0)
		q := owns.Queue("t", "work")
		wantHanded(t, mustReceive(t, q, 1, 0), "[]")

		began := time.Now()
		appendDelayed(t, appends, seb.Delay(20*time.Second))
		ms := wantAfter(t, q, began, 20*time.Second, 2*time.Second)

		began = time.Now()
		if err := appends.Queue("t", "work").Nack(t.Context(), seb.NackOptions{Delay: ptr(20 * time.Second)}, tokens(ms)...); err != nil {
			t.Fatal(err)
		}
		ms = wantAfter(t, q, began, 20*time.Second, 2*time.Second)
		mustAck(t, q, ms...)

		began = time.Now()
		appendDelayed(t, appends, seb.Delay(time.Minute))
		time.Sleep(10 * time.Second)
		kill(t, owns)
		wantAfter(t, next.Queue("t", "work"), began, time.Minute, 2*time.Second)
	})
}

// The dates of answers vary within the margin, like the dates of front ends whose clocks differ.
func TestDelaysAreExactWhileTheStoresDatesSwing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		swing := func() time.Duration { return time.Duration(n.Add(1)*7%15-7) * time.Minute }
		b := open(t, shifted(objstore.NewMemory(), swing), immediate())
		q := queueOf(t, b, 0, 0)
		for i := range 20 {
			began := time.Now()
			appendDelayed(t, b, seb.Delay(5*time.Second))
			ms := wantAfter(t, q, began, 5*time.Second, 0)
			if i%2 == 0 {
				began = time.Now()
				if err := q.Nack(t.Context(), seb.NackOptions{Delay: ptr(5 * time.Second)}, tokens(ms)...); err != nil {
					t.Fatal(err)
				}
				ms = wantAfter(t, q, began, 5*time.Second, 0)
			}
			mustAck(t, q, ms...)
		}
	})
}

// When the store's clock is set back, the log's time stands still: it stays at the last commit's time
// until the store's clock has caught up.
func TestDelaysGoByElapsedTimeWhileTheLogsTimeStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var off atomic.Int64
		b := open(t, shifted(objstore.NewMemory(), func() time.Duration { return time.Duration(off.Load()) }), immediate())
		q := queueOf(t, b, 20, 1)
		off.Store(int64(-10 * time.Minute))
		mustAck(t, q, mustReceive(t, q, 19, 0)...)
		for range 20 {
			appendTo(t, b, 0, 1) // so that the broker notices
		}
		for left := 20; left > 0; {
			ms := mustReceive(t, q, left, time.Second)
			mustAck(t, q, ms...)
			left -= len(ms)
		}
		ms := mustReceive(t, q, 1, time.Second)
		wantHanded(t, ms, "[39#1]")
		for range 3 {
			began := time.Now()
			if err := q.Nack(t.Context(), seb.NackOptions{Delay: ptr(8 * time.Second)}, tokens(ms)...); err != nil {
				t.Fatal(err)
			}
			ms = wantAfter(t, q, began, 8*time.Second, 0)
		}
	})
}

// A takeover uses the store's time. A single answer with a wrong date does not change that time.
func TestTakeoverGoesByTheStoresTimeAndNotByOneWildDate(t *testing.T) {
	for _, wild := range []time.Duration{-14 * time.Minute, 14 * time.Minute} {
		t.Run(wild.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := objstore.NewMemory()
				owner := openOnly(t, store, immediate())
				q := queueOf(t, owner, 0, 0)
				wantHanded(t, mustReceive(t, q, 1, 0), "[]")
				began := time.Now()
				appendDelayed(t, owner, seb.Delay(5*time.Minute))
				appendTo(t, owner, 0, 1)
				ms := mustReceive(t, q, 1, 0)
				wantHanded(t, ms, "[1#1]")
				if err := q.Nack(t.Context(), seb.NackOptions{Delay: ptr(4 * time.Minute)}, tokens(ms)...); err != nil {
					t.Fatal(err)
				}
				kill(t, owner)

				var next atomic.Int64
				b := open(t, shifted(store, func() time.Duration { return time.Duration(next.Swap(0)) }), immediate())
				time.Sleep(time.Minute)
				next.Store(int64(wild))
				if _, err := b.Append(t.Context(), "other", values("x")); err != nil {
					t.Fatal(err)
				}
				again := b.Queue("t", "work")
				ms = wantAfter(t, again, began, 4*time.Minute, 2*time.Second)
				wantHanded(t, ms, "[1#2]")
				mustAck(t, again, ms...)
				wantHanded(t, wantAfter(t, again, began, 5*time.Minute, 2*time.Second), "[0#2]")
			})
		})
	}
}

// A worker that got its record from the previous owner puts it back before the new owner has scanned
// that record.
func TestDelayOfARecordThatTheNewOwnerHasNotComeToGoesByElapsedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		owner := openOnly(t, store, immediate())
		q := queueOf(t, owner, 2, 1)
		ms := mustReceive(t, q, 2, 0)
		kill(t, owner)

		var off atomic.Int64
		b := open(t, shifted(store, func() time.Duration { return time.Duration(off.Load()) }), immediate())
		q = b.Queue("t", "work")
		if _, err := q.Extend(t.Context(), time.Minute, ms[0].Token); err != nil { // this takes the queue over
			t.Fatal(err)
		}
		off.Store(int64(10 * time.Minute))
		for range 10 {
			if _, err := b.Append(t.Context(), "other", values("x")); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := q.Nack(t.Context(), seb.NackOptions{Delay: ptr(5 * time.Second)}, ms[1].Token); err != nil {
			t.Fatal(err)
		}
		wantHanded(t, wantAfter(t, q, began, 5*time.Second, 0), "[1#2]")
	})
}

// No client receives for an hour, so the owner learns late of what another broker has appended.
func TestDelayThatHasPassedBeforeTheOwnerReadsItIsNotWaitedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		owns, appends := open(t, store, immediate()), open(t, store, immediate())
		q := queueOf(t, owns, 0, 0)
		wantHanded(t, mustReceive(t, q, 1, 0), "[]")
		time.Sleep(time.Minute)
		appendDelayed(t, appends, seb.Delay(30*time.Minute))
		time.Sleep(time.Hour)
		wantAfter(t, q, time.Now(), 0, 0)
	})
}

// If the store's clock was ahead and is set back, the log's time stays ahead. A broker that lost a
// queue must still take it over when the owner has been silent for long.
func TestSilenceOfAnOwnerIsNotMeasuredByTheStoresClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		ahead.Store(int64(30 * time.Minute))
		store := shifted(objstore.NewMemory(), func() time.Duration { return time.Duration(ahead.Load()) })
		first, second := open(t, store, kit.InVirtualTime(immediate())), openOnly(t, store, kit.InVirtualTime(immediate()))
		q := queueOf(t, first, 0, 0)
		appendDelayed(t, first, seb.Delay(0))
		appendDelayed(t, first, seb.Delay(0))
		mustAck(t, q, mustReceive(t, q, 1, 0)...)
		mustAck(t, second.Queue("t", "work"), mustReceive(t, second.Queue("t", "work"), 1, time.Minute)...)
		appendDelayed(t, first, seb.Delay(0))
		kill(t, second)

		ahead.Store(0)
		for range 20 { // so that most of the dates that this broker remembers are right
			mustAppend(t, first, "other", "v")
		}
		began := time.Now()
		for {
			ms, err := q.Receive(t.Context(), seb.ReceiveOptions{Max: 1})
			if err == nil && len(ms) > 0 {
				break
			}
			if err != nil && seb.CodeOf(err) != seb.CodeQueueElsewhere {
				t.Fatal(err)
			}
			if time.Since(began) > 2*time.Minute {
				t.Fatalf("nothing is handed out: %v", err)
			}
			time.Sleep(time.Second)
		}
	})
}

// The delays of records may be in the commit that makes a broker the owner, or in the next commit. The
// answer to the first commit may change, by a lot, what the broker takes for the store's time.
func TestNewOwnerWaitsForTheDelaysOfItsFirstCommit(t *testing.T) {
	for right := range int64(20) { // how many answers have right dates before the store's clock jumps
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int64
			jump := func() time.Duration {
				if n.Add(1) <= right {
					return 0
				}
				return 10 * time.Minute
			}
			opts := immediate()
			opts.Batching = seb.Timed(time.Second, 1<<20)
			b := open(t, shifted(objstore.NewMemory(), jump), kit.InVirtualTime(opts))
			q := queueOf(t, b, 0, 0)
			if right%2 == 0 {
				mustCreateTopic(t, b, "more", 1)
			}
			began := time.Now()
			p, err := b.AppendAsync(t.Context(), "t", values("later"), seb.Delay(17*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			wantAfter(t, q, began, 17*time.Second, 2*time.Second)
			if _, err := p.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
