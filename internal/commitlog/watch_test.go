package commitlog

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

const watchedAnswer = 30 * time.Millisecond // what a store in these tests takes for a request

// lognormal returns a fault that takes a random time for each request, watchedAnswer in the median. before is the share of that
// time after which the store executes the request.
func lognormal(seed uint64, before float64) storetest.Fault {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, seed)) // guarded by mu
	return func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
		mu.Lock()
		d := float64(watchedAnswer) * math.Exp(0.4*rng.NormFloat64())
		mu.Unlock()
		a, err := storetest.Delay(time.Duration(before*d))(ctx, q, next)
		late := make(chan struct{})
		time.AfterFunc(time.Duration((1-before)*d), func() { close(late) })
		return storetest.HoldReply(late)(ctx, q, func(context.Context, storetest.Request) (storetest.Answer, error) { return a, err })
	}
}

// commitMarked commits like the engine: after its turn has come, and with a mark that says when session wants its next slot.
func (b *broker) commitMarked(session byte, pause uint16) {
	build := b.build("x")
	b.AwaitTurn(b.Context())
	_, err := b.Commit(b.Context(), func(n Next) (*format.Commit, [][]byte) {
		c, payload := build(n)
		c.Entries = append(marked(session, pause).Entries, c.Entries...)
		return c, payload
	}, func(err error) { b.Error(err) })
	if err != nil {
		b.Error(err)
	}
}

// A broker wins its first slot soon beside brokers that commit all the time, although it hears nothing from them. So it does
// when it has committed nothing for long.
func TestBrokerWithoutTurnsWinsSoon(t *testing.T) {
	for _, x := range []struct {
		others int
		before float64
	}{{1, 0.5}, {1, 1}, {3, 0.5}} {
		var first, later []time.Duration
		mostLost, mostGets := uint64(0), 0
		for seed := range uint64(12) {
			inBubble(t, func(t *testing.T, r *rig) {
				var all []*broker
				for i := range x.others + 1 {
					b := r.open()
					own := *r
					own.nonces = uint64(i) << 32 // nonces must be unique among all brokers
					b.rig = &own
					b.store.On("", "", lognormal(100*seed+uint64(i), x.before))
					all = append(all, b)
				}
				var done atomic.Bool
				var wg sync.WaitGroup
				for i, b := range all[1:] {
					wg.Go(func() {
						for !done.Load() {
							b.commitMarked(byte(i+1), 0)
						}
					})
				}
				b := all[0]
				for _, took := range []*[]time.Duration{&first, &later} {
					r.sleep(contendedFor + time.Second) // the others leave no gaps for it
					gets, lost := b.store.Count(objstore.VerbGet, ""), b.Stats().LostRaces.Load()
					begun := time.Now()
					b.commitMarked(100, none)
					*took = append(*took, time.Since(begun))
					gets, lost = b.store.Count(objstore.VerbGet, "")-gets, b.Stats().LostRaces.Load()-lost
					if most := 256 + int(lost)*(watchGets+8); gets > most { // 256: to read what the others have written meanwhile
						t.Errorf("%d Gets for %d lost races, want at most %d", gets, lost, most)
					}
					mostLost, mostGets = max(mostLost, lost), max(mostGets, gets)
				}
				done.Store(true)
				wg.Wait()
			})
		}
		for i, took := range [][]time.Duration{first, later} {
			slices.Sort(took)
			median, most := took[len(took)/2], took[len(took)-1]
			t.Logf("beside %d others, commit %d takes %v in the median, and %v at most", x.others, i+1, median, most)
			if median > 60*watchedAnswer || most > 200*watchedAnswer {
				t.Errorf("beside %d others, commit %d takes %v in the median, and %v at most", x.others, i+1, median, most)
			}
		}
		t.Logf("at most %d lost races and %d Gets", mostLost, mostGets)
	}
}

// outrun lets a win the first slots before b's Creates of them reach the store.
func (r *rig) outrun(slots format.Seq) (a, b *broker) {
	r.Helper()
	a, b = r.open(), r.open()
	b.store.On("", "", storetest.Delay(watchedAnswer))
	for s := range slots {
		b.store.On(objstore.VerbCreate, format.LogKey(s+1), func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
			a.mustCommit(s+1, "a")
			return next(ctx, q)
		})
	}
	return a, b
}

// during calls f when the n-th Get of slot s reaches b's store.
func (b *broker) during(s format.Seq, n int, f func()) {
	b.store.On(objstore.VerbGet, format.LogKey(s), storetest.After(n-1, storetest.Times(1, func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
		f()
		return next(ctx, q)
	})))
}

// gets returns how many Gets of slot s the broker has sent.
func (b *broker) gets(s format.Seq) int { return b.store.Count(objstore.VerbGet, format.LogKey(s)) }

func TestWatchOfAnIdleLogEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, b := r.outrun(watchLost)
		begun := time.Now()
		b.mustCommit(3, "b")
		// A Get and a Create for each lost race, the watch, and the last Create.
		if took, want := time.Since(begun), (2*watchLost+watchPatience+1)*watchedAnswer; took < want || took > want+watchedAnswer/2 {
			t.Errorf("it took %v, want %v", took, want)
		}
		if n, most := b.gets(3)+b.gets(4), watchAhead*watchPatience*watchRate+2; n <= watchRate || n > most || b.gets(5) > 0 {
			t.Errorf("%d Gets of slots 3 and 4, want at most %d; %d of slot 5", n, most, b.gets(5))
		}
		if len(b.reports) > 0 {
			t.Error(b.reports)
		}
		gets := b.store.Count(objstore.VerbGet, "")
		b.mustCommit(4, "next")
		if b.store.Count(objstore.VerbGet, "") != gets {
			t.Error("a broker that has lost no race reads the log before its claim")
		}
	})
}

// The store was slow some time ago. A watch does not take as long as its answers took then.
func TestWatchOfAFastStoreIsShort(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, b := r.outrun(watchLost)
		b.turns.answer = 10 * time.Second
		begun := time.Now()
		b.mustCommit(3, "b")
		if took, want := time.Since(begun), (2*watchLost+2*watchPatience+1)*watchedAnswer; took > want+watchedAnswer/2 {
			t.Errorf("it took %v, want %v", took, want)
		}
	})
}

// Another broker wins the next slot during the watch. The claim of the slot after it is sent soon, without the rest of the
// Gets.
func TestWatchEndsWithTheNextCommit(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.outrun(watchLost)
		var appeared, claimed time.Time
		b.during(3, 10, func() {
			a.mustCommit(3, "a")
			appeared = time.Now()
		})
		b.store.On(objstore.VerbCreate, format.LogKey(4), func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
			claimed = time.Now()
			return next(ctx, q)
		})
		b.mustCommit(4, "b")
		if late := claimed.Add(-watchedAnswer).Sub(appeared); late < 0 || late > watchedAnswer/watchRate { // the fault comes after the delay
			t.Errorf("the claim was sent %v after the commit appeared", late)
		}
		if n := b.gets(3) + b.gets(4); n > 2+watchAhead*(watchRate*2+1) {
			t.Errorf("%d Gets", n)
		}
	})
}

// A commit that is there when the watch begins may be old. So the watch goes on with the next slot.
func TestWatchGoesOnAfterAnOldCommit(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.outrun(watchLost)
		b.during(3, 2, func() { a.mustCommit(3, "old") })
		b.during(4, 10, func() { a.mustCommit(4, "new") })
		b.mustCommit(5, "b")
		if b.Stats().LostRaces.Load() != watchLost {
			t.Errorf("%d lost races", b.Stats().LostRaces.Load())
		}
	})
}

// Connected brokers send each other their commits, so none has to watch the log.
func TestConnectedBrokersDoNotWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, b := r.outrun(watchLost + 2)
		b.Connect(linked{})
		b.mustCommit(watchLost+3, "b")
		if n := b.gets(watchLost + 3); n > 1 {
			t.Errorf("%d Gets of the same slot", n)
		}
	})
}

// Another broker that is connected may write a commit during the watch. It needs no Get.
func TestToldCommitEndsTheWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.outrun(watchLost)
		gets := 0
		b.during(3, 10, func() {
			r.sleep(time.Millisecond) // after the next Gets are sent
			a.mustCommit(3, "a")
			gets = b.gets(3)
			b.mustTell(3)
		})
		b.mustCommit(4, "b")
		if gets < 2 || b.gets(3) != gets {
			t.Errorf("%d Gets, %d after the commit was told", gets, b.gets(3)-gets)
		}
	})
}

// A broker that loses whatever it does stops to watch the log.
func TestWatchesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const races = watchLost + watchesMax + 10
		_, b := r.outrun(races)
		b.mustCommit(races+1, "b")
		watched := 0
		for s := range format.Seq(races + 2) {
			if b.gets(s+1) > watchRate {
				watched++
			}
		}
		if watched != watchesMax+1 { // the last watch reads one slot more
			t.Errorf("%d slots were watched", watched)
		}
		if n, most := b.store.Count(objstore.VerbGet, format.LogPrefix), watchesMax*watchGets+2*races; n > most {
			t.Errorf("%d Gets, want at most %d", n, most)
		}
	})
}

// The context ends during the watch. Commit has sent no claim then, and returns when all Gets have ended.
func TestContextEndsDuringTheWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, b := r.outrun(watchLost)
		var running, most atomic.Int64
		b.store.On(objstore.VerbGet, format.LogKey(3), storetest.After(1, func(ctx context.Context, _ storetest.Request, _ storetest.Next) (storetest.Answer, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-ctx.Done()
			r.sleep(time.Second) // the store takes long to end a request
			return storetest.Answer{}, ctx.Err()
		}))
		ctx, cancel := context.WithTimeout(t.Context(), (2*watchLost+2)*watchedAnswer)
		defer cancel()
		_, err := b.commit(ctx, "b")
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnknown) {
			t.Errorf("the error is %v", err)
		}
		if running.Load() != 0 || most.Load() < 2 {
			t.Errorf("%d Gets run after the Commit, and %d ran during the watch", running.Load(), most.Load())
		}
		if len(b.reports) > 0 {
			t.Error(b.reports)
		}
	})
}

// The first error ends the watch. The broker claims the next slot.
func TestErrorEndsTheWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, b := r.outrun(watchLost)
		b.store.On(objstore.VerbGet, format.LogKey(3), storetest.After(1, storetest.Fail))
		b.mustCommit(3, "b")
		if len(b.reports) != 1 {
			t.Errorf("the reports are %v", b.reports)
		}
		if n := b.gets(3); n > watchRate+2 { // those that were sent before the first one failed
			t.Errorf("%d Gets", n)
		}
	})
}

// A damaged answer counts like that to any other Get, whether or not further Gets of the watch are damaged, too.
func TestDamageDuringTheWatch(t *testing.T) {
	bent := storetest.FlipByte(format.PrologueSize)
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.outrun(watchLost)
		b.during(3, 2, func() { a.mustCommit(3, "a") })
		b.store.On(objstore.VerbGet, format.LogKey(3), bent)
		_, err := b.commit(t.Context(), "b")
		requireIs(t, err, format.ErrCorrupt)
		if n := len(b.reports); n != damagedReadsMax-1 {
			t.Errorf("the log halted after %d damaged answers: %v", n+1, b.reports)
		}
		b.requireAt(2)
	})
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.outrun(watchLost)
		b.during(3, 2, func() { a.mustCommit(3, "a") })
		b.store.On(objstore.VerbGet, format.LogKey(3), storetest.Times(damagedReadsMax, bent)) // the first one is a 404
		b.mustCommit(4, "b")
		requireEqual(t, b.applied[:3], a.applied)
	})
}

// The head of a commit may be larger than what a Get of the watch reads.
func TestWatchFindsALargeHead(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.outrun(watchLost)
		b.during(3, 10, func() {
			if _, err := a.Commit(t.Context(), func(Next) (*format.Commit, [][]byte) {
				return &format.Commit{Entries: []format.Entry{&format.UnknownEntry{Kind: 100, Body: bytes.Repeat([]byte("x"), 2*watchRead)}}}, nil
			}, func(error) {}); err != nil {
				t.Error(err)
			}
		})
		b.mustCommit(4, "b")
		requireEqual(t, b.applied[:3], a.applied)
		if n := b.gets(3); n > 2+2*watchRate+1 || len(b.reports) > 0 {
			t.Errorf("%d Gets, reports: %v", n, b.reports)
		}
	})
}
