package queue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/test/kit"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// The first receiver makes the broker take the queue over. If that receiver does not wait for the
// takeover, the broker still gets the queue.
func TestReceiverThatGoesAwayDuringATakeoverCostsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, storetest.Slow(objstore.NewMemory(), 50*time.Millisecond), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1)})
		appendTo(t, b, 0, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 75*time.Millisecond)
		defer cancel()
		if got, err := q.Receive(ctx, seb.ReceiveOptions{Wait: time.Minute}); err == nil {
			t.Fatalf("received %s, before the queue was taken over", handed(got))
		}
		time.Sleep(time.Second)
		ms := mustReceive(t, q, 1, time.Second)
		wantHanded(t, ms, "[0#1]")
		mustAck(t, q, ms...)
	})
}

// The first receiver gives up during a takeover. Another receiver that waits for the same takeover
// still gets its records.
func TestReceiverThatGoesAwayDuringATakeoverTakesNobodyWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, storetest.Slow(objstore.NewMemory(), 50*time.Millisecond), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, b, 0, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 75*time.Millisecond)
			defer cancel()
			if got, err := q.Receive(ctx, seb.ReceiveOptions{Wait: time.Minute}); err == nil {
				t.Errorf("received %s, before the queue was taken over", handed(got))
			}
		}()
		synctest.Wait()
		ms := mustReceive(t, q, 1, time.Minute)
		wantHanded(t, ms, "[0#1]")
		mustAck(t, q, ms...)
	})
}

// A takeover is on its way when the broker is told to shut down. No record may become uncertain.
func TestBrokerThatGoesDuringATakeoverLeavesNoDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b := openOnly(t, storetest.Slow(store, 50*time.Millisecond), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1)})
		appendTo(t, b, 0, 1)
		shutdown := make(chan error, 1)
		time.AfterFunc(75*time.Millisecond, func() { shutdown <- b.Shutdown(t.Context()) })
		got, err := q.Receive(t.Context(), seb.ReceiveOptions{Wait: time.Minute})
		if err := <-shutdown; err != nil {
			t.Fatal(err)
		}
		if err == nil && len(got) > 0 {
			return // the receiver was faster than the shutdown, and has the record
		}
		time.Sleep(time.Second)
		wantHanded(t, mustReceive(t, open(t, store, immediate()).Queue("t", "work"), 1, time.Second), "[0#1]")
	})
}

// Waiting receivers are told in time that the store is slow. Once the store has the takeover, the
// broker knows that it owns the queue.
func TestTakeoverThatTheStoreTakesLateCostsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		opts := kit.InVirtualTime(immediate())
		opts.AppendTimeout = 5 * time.Second
		b := open(t, faulty, opts)
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1)})
		appendTo(t, b, 0, 1)
		release := make(chan struct{})
		remove := faulty.On(objstore.VerbCreate, "log/", storetest.Hold(release))
		for range 2 {
			began := time.Now()
			_, err := q.Receive(t.Context(), seb.ReceiveOptions{Wait: time.Minute})
			wantCode(t, err, seb.CodeStoreUnavailable)
			if waited := time.Since(began); waited > 20*time.Second { // this includes the wait for a sync
				t.Errorf("told after %v", waited)
			}
		}
		remove()
		close(release)
		ms := mustReceive(t, q, 1, time.Second)
		wantHanded(t, ms, "[0#1]")
		mustAck(t, q, ms...)
	})
}
