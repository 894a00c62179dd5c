package commitlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestCommitsAreFollowed(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		a.fill(3)
		b.mustLook()
		b.requireAt(3)
		b.mustCommit(4, "from b")
		a.mustLook()
		a.requireAt(4)
		if b.objects != 3 {
			t.Fatalf("%d of 3 small commits came along with their heads", b.objects)
		}
		if string(bytes.Join([][]byte{a.last.Entries[0].(*format.UnknownEntry).Body}, nil)) != "from b" {
			t.Fatalf("a read %+v", a.last)
		}
	})
}

func TestCommitOfAnIdleBrokerCostsOneRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.mustCommit(1, "x")
		before := a.store.Count("", "")
		a.mustCommit(2, "y")
		if n := a.store.Count("", "") - before; n != 1 {
			t.Fatalf("%d requests", n)
		}
	})
}

func TestNothingToCommit(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		before := a.store.Count("", "")
		c, err := a.Commit(t.Context(), func(Next) (*format.Commit, [][]byte) { return nil, nil }, func(error) {})
		if c != nil || err != nil || a.store.Count("", "") != before {
			t.Fatalf("got %v, %v", c, err)
		}
	})
}

func TestBuildGetsThePreviousSlot(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		c := a.mustCommit(1, "x")
		r.sleep(90 * time.Minute)
		var got Next
		if _, err := a.Commit(t.Context(), func(n Next) (*format.Commit, [][]byte) { got = n; return nil, nil }, func(error) {}); err != nil {
			t.Fatal(err)
		}
		requireEqual(t, got, Next{Seq: 2, Prev: c.Hash, Now: time.Now().UnixMicro()})
	})
}

func TestOwnCommitAfterALostReplyIsAcknowledgedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.store.On(objstore.VerbCreate, format.LogPrefix, storetest.Times(1, storetest.LoseReply))
		c := a.mustCommit(1, "once")
		if a.builds != 1 || len(a.reports) != 1 || a.Stats().UnknownCreates.Load() != 1 {
			t.Fatalf("%d builds, reports %v", a.builds, a.reports)
		}
		r.requireOnce("once")
		if a.Stats().ForeignCommits.Load() != 0 {
			t.Fatal("its own commit counts as another's")
		}
		if got, _ := format.DecodeCommit(r.get(format.LogKey(1))); got.Hash != c.Hash {
			t.Fatal("another commit stands in the slot")
		}
	})
}

func TestLostRaceIsRebuiltOnTop(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		a.mustCommit(1, "a")
		b.mustCommit(2, "b")
		r.requireOnce("b")
		if b.builds != 2 || b.Stats().LostRaces.Load() != 1 || b.Stats().ForeignCommits.Load() != 1 || !b.Contended() {
			t.Fatalf("%d builds, %d races lost, contended: %v", b.builds, b.Stats().LostRaces.Load(), b.Contended())
		}
		b.requireAt(2)
		r.sleep(contendedFor)
		if b.Contended() {
			t.Fatal("contended for ever")
		}
	})
}

func TestManyBrokersShareTheSlots(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const brokers, commits = 4, 25
		done := make(chan *broker)
		for i := range brokers {
			b := r.open()
			b.store.On("", "", storetest.Delay(20*time.Millisecond))
			// Nonces must be unique among all brokers.
			own := *r
			own.nonces = uint64(i) << 32
			b.rig = &own
			go func() {
				for n := range commits {
					if _, err := b.commit(t.Context(), fmt.Sprintf("%d/%d", i, n)); err != nil {
						t.Error(err)
					}
				}
				done <- b
			}()
		}
		var all []*broker
		for range brokers {
			all = append(all, <-done)
		}
		for _, b := range all {
			b.mustLook()
			b.requireAt(brokers * commits)
			requireEqual(t, b.applied, all[0].applied)
		}
		for i := range brokers {
			for n := range commits {
				r.requireOnce(fmt.Sprintf("%d/%d", i, n))
			}
		}
	})
}

func TestWinnerGivesWayWhileOthersCommit(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		a.store.On("", "", storetest.Delay(100*time.Millisecond))
		var paused time.Duration
		for n := range format.Seq(20) {
			b.mustLook()
			b.mustCommit(3*n+1, "b")
			a.mustLook()
			a.mustCommit(3*n+2, "a")
			begun := time.Now()
			a.AwaitTurn(t.Context())
			paused += time.Since(begun)
			a.mustCommit(3*n+3, "a again")
		}
		// An answer takes 100 ms, and so does a pause on average.
		if mean := paused / 20; mean < 30*time.Millisecond || mean > 180*time.Millisecond {
			t.Fatalf("after a win it pauses for %v", mean)
		}
		r.sleep(contendedFor)
		begun := time.Now()
		a.AwaitTurn(t.Context())
		a.mustCommit(61, "alone")
		if d := time.Since(begun); d != 100*time.Millisecond {
			t.Fatalf("alone, a commit takes %v", d)
		}
	})
}

func TestStoreThatSaysExistsAndThen404(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.store.On(objstore.VerbCreate, format.LogPrefix, storetest.Times(3,
			func(_ context.Context, q storetest.Request, _ storetest.Next) (storetest.Answer, error) {
				return storetest.Answer{Time: time.Now()}, fmt.Errorf("create %s: %w", q.Key, objstore.ErrExists)
			}))
		begun := time.Now()
		a.mustCommit(1, "x")
		if a.builds != 1 || a.store.Count(objstore.VerbCreate, format.LogPrefix) != 4 || time.Since(begun) == 0 {
			t.Fatalf("%d builds, %d Creates in %v", a.builds, a.store.Count(objstore.VerbCreate, format.LogPrefix), time.Since(begun))
		}
	})
}

func TestClaimOutlivesAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.mustCommit(1, "before")
		a.store.SetDown(true)
		time.AfterFunc(30*time.Hour, func() { a.store.SetDown(false) }) // longer than the lease
		a.mustCommit(2, "during")
		if a.builds != 2 {
			t.Fatalf("%d builds", a.builds)
		}
		// Pauses grow to seconds, so that an outage causes few requests.
		if n := len(a.reports); n < 30*3600/6 || n > 30*3600/2 {
			t.Fatalf("%d attempts in 30 hours", n)
		}
		r.requireOnce("during")
	})
}

func TestSyncGivesUpOnAStoreThatIsDown(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.store.SetDown(true)
		requireIs(t, a.Sync(t.Context()), storetest.ErrInjected)
		if n := a.store.Count(objstore.VerbGet, format.LogPrefix); n != attemptsMax {
			t.Fatalf("%d attempts", n)
		}
		a.store.SetDown(false)
		a.mustLook()
		b := r.newBroker()
		b.store.SetDown(true)
		requireIs(t, b.Recover(t.Context()), storetest.ErrInjected)
	})
}

func TestRequestsHaveADeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		remove := a.store.On("", "", storetest.Hold(nil))
		time.AfterFunc(time.Minute, remove)
		a.mustCommit(1, "x")
		if len(a.reports) < 2 || !errors.Is(a.reports[0], context.DeadlineExceeded) {
			t.Fatalf("reports: %v", a.reports)
		}
	})
}

func TestCommitEndsWithItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := a.commit(ended, "never sent")
		if !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknown) {
			t.Fatalf("before it was sent: %v", err)
		}

		// A List without an answer prevents that the claim is sent.
		r.sleep(testDelay / 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		remove := a.store.On(objstore.VerbList, "", storetest.Hold(nil))
		_, err = a.commit(ctx, "never sent")
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnknown) {
			t.Fatalf("while the lease is renewed: %v", err)
		}
		remove()
		a.mustLook() // must not send the abandoned claim
		if n := a.store.Count(objstore.VerbCreate, format.LogPrefix); n != 0 {
			t.Fatalf("%d Creates", n)
		}
		a.mustCommit(1, "first")

		var late storetest.Late
		a.store.On(objstore.VerbCreate, format.LogPrefix, late.Fault)
		ctx, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		_, err = a.commit(ctx, "sent")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnknown) {
			t.Fatalf("after it was sent: %v", err)
		}
		late.Release()
		a.mustLook()
		a.requireAt(2)
		r.requireOnce("sent")
		if strings.Contains(strings.Join(r.payloads(), " "), "never") {
			t.Fatalf("the log holds %q", r.payloads())
		}
	})
}

func TestCoversAndLag(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		if !a.Covers(time.Now()) || a.Covers(time.Time{}) {
			t.Fatal("a lease just begun does not cover now, or covers an answer without a date")
		}
		b.fill(3)
		a.store.On(objstore.VerbGet, format.LogKey(1), storetest.Times(1, storetest.Fail))
		a.store.On(objstore.VerbCreate, format.LogPrefix, storetest.Times(1, storetest.Fail))
		a.mustLook()
		a.requireAt(3)
		if a.Lag() != 0 {
			t.Fatalf("lag is %d", a.Lag())
		}
		r.sleep(testSpan)
		if a.Covers(time.Now()) {
			t.Fatal("the lease never ends")
		}
		if err := a.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !a.Covers(time.Now()) {
			t.Fatal("the lease is not renewed")
		}
	})
}
