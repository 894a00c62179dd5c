package commitlog

import (
	"context"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// moveOn lets another broker commit up to slot last, write a checkpoint, and, after D, delete
// what the log no longer needs.
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

// The broker sleeps while its Create is on the way. When it wakes, its slot was deleted long
// ago, so the Create succeeds.
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

// The same with a lost reply: the broker reads the slot and finds its own commit, a ghost in a
// slot that was deleted before.
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

// A claim that was never sent may go to a later slot, since it can't be in the log.
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

// The local clock may stop while the machine sleeps: then the store's clock alone must end the
// lease.
func TestLeaseEndsByTheStoresClockAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.newBroker()
		a.clock.Boot = func() time.Duration { return 1 }
		if err := a.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.mustCommit(1, "before")
		r.moveOn(6)
		_, err := a.commit(t.Context(), "ghost") // the broker can't know better, so it sends the claim
		requireIs(t, err, ErrUnknown)
		a.requireAt(6)
		a.mustCommit(7, "after")
	})
}

// By the local clock, a lease begins when its List is sent, not when the answer arrives.
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
