package dispatch_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/format"
)

// mayTake tells whether this broker may take the queue over.
func (f *fake) mayTake(deaf bool) bool {
	f.t.Helper()
	err := f.all.MayTake(f.owner(), deaf)
	var elsewhere *dispatch.ElsewhereError
	if err != nil && !errors.As(err, &elsewhere) {
		f.t.Fatal(err)
	}
	return err == nil
}

func TestLostQueueIsNotTakenBackBeforeItsOwnerIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		if f.own(format.SessionKey{2}, 1); !f.mayTake(false) {
			t.Error("a queue whose owner can't be asked is not taken over")
		}
		if err := f.all.TakeOver(t.Context(), f.owner(), false, 1); err != nil {
			t.Fatal(err)
		}
		f.own(format.SessionKey{2}, 3)
		for range 3 {
			if f.mayTake(false) || f.mayTake(true) {
				t.Error("a queue is taken back from an owner that shows itself")
			}
			time.Sleep(dispatch.OwnerSilence)
			f.commit(&format.WindowMoved{Queue: 1, Epoch: 3, Window: reach})
		}
		time.Sleep(dispatch.OwnerSilence + time.Second)
		if !f.mayTake(false) {
			t.Error("a queue is not taken back from an owner that is silent")
		}
	})
}

// A receiver may ask whether its broker may take the queue back as soon as the state shows the new owner.
func TestLostQueueIsNotTakenBackBeforeTheLossIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.open()
		f.between = func() {
			if f.owner().Session != (format.SessionKey{2}) || f.all.Of(1) == nil {
				t.Error("the state does not show the new owner, or the dispatcher has ended already")
			}
			if f.mayTake(false) || f.mayTake(true) {
				t.Error("a queue is taken back from an owner that has just taken it over")
			}
		}
		f.own(format.SessionKey{2}, 2)
		if f.between != nil || f.mayTake(false) || f.mayTake(true) {
			t.Error("a queue is taken back from an owner that shows itself")
		}
	})
}

func TestOwnerWithAnAddressMustBeAskedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.commit(
			&format.QueueOwned{Queue: 1, Epoch: 1, Windows: []format.Offset{reach}, Address: "http://other"},
			&format.SessionNamed{Session: format.SessionKey{2}, Queue: 1, Epoch: 1},
		)
		time.Sleep(dispatch.OwnerSilence + time.Second)
		if f.mayTake(false) {
			t.Error("a queue is taken from an owner that was not asked")
		}
		if !f.mayTake(true) {
			t.Error("a queue is not taken from an owner that does not answer")
		}
	})
}

// A commit of another broker opens no dispatcher here, even while this broker has a takeover under
// way.
func TestTakeoverThatAnotherBrokerWinsOpensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.before = func() { f.own(format.SessionKey{2}, 1) }
		if err := f.all.TakeOver(t.Context(), f.owner(), false, 1); err != nil {
			t.Fatal(err)
		}
		if o := f.owner(); o.Epoch != 1 || o.Session != (format.SessionKey{2}) || f.all.Of(1) != nil {
			t.Errorf("the owner is %+v, or the queue has a dispatcher here", o)
		}
	})
}

func TestTakeoverGoesOnWithoutItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		f.before = func() { cancel(); <-release }
		if err := f.all.TakeOver(ctx, f.owner(), false, 1); !errors.Is(err, dispatch.ErrUndecided) {
			t.Fatalf("the takeover of a caller that went away ended with %v", err)
		}
		close(release)
		f.tasks.Wait()
		if f.all.Of(1) == nil {
			t.Error("the takeover did not go on")
		}
	})
}

func TestCallersShareOneTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		before, release := f.owner(), make(chan struct{})
		f.before = func() { <-release }
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				if err := f.all.TakeOver(t.Context(), before, false, 1); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(release)
		callers.Wait()
		if n := f.syncs.Load(); n != 1 {
			t.Errorf("eight callers began %d takeovers", n)
		}
		if o := f.owner(); o.Epoch != 1 || f.all.Of(1) == nil {
			t.Errorf("after the takeover of eight callers the owner is %+v", o)
		}
	})
}

func TestNoTakeoverBeginsAfterTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.open()
		f.all.Release(t.Context())
		if err := f.all.TakeOver(t.Context(), f.owner(), false, 1); !errors.Is(err, dispatch.ErrClosed) {
			t.Errorf("a takeover after the release ended with %v", err)
		}
		if o := f.owner(); o.Owned || f.all.Of(1) != nil {
			t.Errorf("the released queue has the owner %+v, or a dispatcher", o)
		}
	})
}

// Release waits for a takeover that is under way, and then releases its queue too.
func TestReleaseWaitsForRunningTakeovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		release := make(chan struct{})
		f.before = func() { <-release }
		go func() { _ = f.all.TakeOver(t.Context(), f.owner(), false, 1) }()
		synctest.Wait()
		released := make(chan struct{})
		go func() {
			defer close(released)
			f.all.Release(t.Context())
		}()
		synctest.Wait()
		select {
		case <-released:
			t.Fatal("the release did not wait for the takeover")
		default:
		}
		close(release)
		<-released
		if o := f.owner(); o.Epoch != 1 || o.Owned {
			t.Errorf("the queue has the owner %+v after the release", o)
		}
	})
}
