package commitlog

import (
	"context"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// moveOn lets another broker commit up to last, checkpoint that, and delete
// what it no longer needs once D has passed.
func (r *rig) moveOn(last format.Seq) {
	r.Helper()
	b := r.open()
	from, _ := b.Position()
	b.fill(last)
	b.checkpoint()
	r.sleep(testDelay)
	for s := from + 1; s <= last; s++ {
		r.remove(format.LogKey(s))
	}
}

// The claim is on its way when the broker falls asleep; when it wakes, its slot
// is long gone, and the store takes the commit.
func TestBrokerThatSleptDoesNotAcknowledgeAGhost(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.mustCommit(1, "before")
		a.store.On(objstore.VerbCreate, format.LogKey(2), storetest.Times(1,
			func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
				r.moveOn(6)
				return next(context.WithoutCancel(ctx), q) // success, in a slot that was deleted
			}))
		_, err := a.commit(t.Context(), "ghost")
		requireIs(t, err, ErrUnknown)
		a.requireAt(6)
		if n := a.store.Count(objstore.VerbCreate, format.LogPrefix); n != 2 || a.builds != 2 {
			t.Fatalf("%d Creates, %d builds", n, a.builds)
		}
		a.mustCommit(7, "after")
		b := r.open()
		b.requireAt(7)
		requireEqual(t, b.applied, a.applied)
	})
}

// The same with the reply lost: the slot is read, and holds the broker's own ghost.
func TestBrokerThatSleptDoesNotRecogniseItsGhost(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.mustCommit(1, "before")
		a.store.On(objstore.VerbCreate, format.LogKey(2), storetest.Times(1,
			func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
				r.moveOn(6)
				return storetest.LoseReply(context.WithoutCancel(ctx), q, next)
			}))
		_, err := a.commit(t.Context(), "ghost")
		requireIs(t, err, ErrUnknown)
		a.requireAt(6)
		if n := a.store.Count(objstore.VerbCreate, format.LogKey(2)); n > 2 {
			t.Fatalf("%d Creates", n)
		}
		creates := a.store.Count(objstore.VerbCreate, format.LogPrefix)
		a.mustLook()
		a.mustLook()
		if n := a.store.Count(objstore.VerbCreate, format.LogPrefix); n != creates {
			t.Fatal("the claim was sent again")
		}
	})
}

// A claim that was not sent moves on, since it can't be in the log.
func TestBrokerThatSleptBeforeItsClaimCommitsOnTop(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.mustCommit(1, "before")
		r.moveOn(6)
		a.mustCommit(7, "after")
		if n := a.store.Count(objstore.VerbCreate, format.LogPrefix); n != 2 {
			t.Fatalf("%d Creates", n)
		}
		r.requireOnce("after")
		b := r.open()
		requireEqual(t, b.applied, a.applied)
	})
}

func TestFollowerThatSleptLoadsTheCheckpoint(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.mustCommit(1, "before")
		r.moveOn(6)
		a.mustLook()
		a.requireAt(6)
		if a.Stats().Loads.Load() != 1 {
			t.Fatalf("%d loads", a.Stats().Loads.Load())
		}
	})
}

// The local clock may stand still while the machine sleeps: the store's alone must do.
func TestLeaseEndsByTheStoresClockAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.newBroker()
		a.clock.Boot = func() time.Duration { return 1 }
		if err := a.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.mustCommit(1, "before")
		r.moveOn(6)
		_, err := a.commit(t.Context(), "ghost") // it can't know, so it sends it
		requireIs(t, err, ErrUnknown)
		a.requireAt(6)
		a.mustCommit(7, "after")
	})
}

// By the local clock a lease begins when its List was sent, not when it was answered.
func TestLeaseBeginsWhenItsListIsSent(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.newBroker()
		a.store.On(objstore.VerbList, format.CheckpointPrefix, storetest.Delay(10*time.Second))
		sent := time.Now()
		if err := a.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.sleep(time.Until(sent.Add(testSpan - 1)))
		if !a.Covers(time.Now()) {
			t.Fatal("the lease ended early")
		}
		r.sleep(1)
		if a.Covers(time.Now()) {
			t.Fatal("the lease goes on")
		}
	})
}

func TestCheckpointThatVanishesIsListedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(3)
		a.checkpoint()
		b := r.newBroker()
		b.store.On(objstore.VerbGet, format.CheckpointKey(3), func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
			a.fill(6)
			a.checkpoint()
			r.remove(format.CheckpointKey(3))
			return next(ctx, q)
		})
		if err := b.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.requireAt(6)
		if n := b.store.Count(objstore.VerbList, format.CheckpointPrefix); n != 2 {
			t.Fatalf("%d Lists", n)
		}
	})
}
