package seb_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// TestRecordThatIsPutBackWhileItsNextAttemptIsCountedHasOneNextAttempt: its lease has
// ended, and its owner has the next attempt counted, when its worker says through another
// broker that it failed. If the owner counted twice, the worker that gets it next could
// not acknowledge it.
func TestRecordThatIsPutBackWhileItsNextAttemptIsCountedHasOneNextAttempt(t *testing.T) {
	for at := 29500 * time.Millisecond; at < 31*time.Second; at += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			store := objstore.NewMemory()
			owner := open(t, storetest.Slow(store, 50*time.Millisecond), seb.InVirtualTime(seb.Options{Batching: seb.Timed(time.Second, 1<<20)}))
			other := open(t, store, immediate())
			mustCreateTopic(t, owner, "t", 1)
			q := owner.Queue("t", "work")
			mustSet(t, q, seb.QueueUpdate{})
			appendTo(t, owner, 0, 1)
			first := mustReceive(t, q, 1, 0)
			wantHanded(t, first, "[0#1]")
			time.AfterFunc(at, func() {
				if err := other.Queue("t", "work").Nack(t.Context(), seb.NackOptions{Delay: ptr(time.Duration(0))}, first[0].Token); err != nil {
					t.Errorf("put back after %v: %v", at, err)
				}
			})
			second := mustReceive(t, q, 1, time.Minute)
			wantHanded(t, second, "[0#2]")
			time.Sleep(10 * time.Second) // whatever is on its way has come
			mustAck(t, q, second...)
		})
	}
}

// TestRecordThatIsPutBackWhileItsNextAttemptIsCountedRests: its lease has ended when its
// worker says through another broker for how long it is not to be tried again. Its owner
// learns that while it has the next attempt counted, and must keep to it.
func TestRecordThatIsPutBackWhileItsNextAttemptIsCountedRests(t *testing.T) {
	for at := 29500 * time.Millisecond; at < 31*time.Second; at += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			store := objstore.NewMemory()
			owner := open(t, storetest.Slow(store, 50*time.Millisecond), seb.InVirtualTime(seb.Options{Batching: seb.Timed(time.Second, 1<<20)}))
			other := open(t, store, immediate())
			mustCreateTopic(t, owner, "t", 1)
			q := owner.Queue("t", "work")
			mustSet(t, q, seb.QueueUpdate{})
			appendTo(t, owner, 0, 1)
			first := mustReceive(t, q, 1, 0)
			var rests atomic.Pointer[time.Time]
			time.AfterFunc(at, func() {
				if other.Queue("t", "work").Nack(t.Context(), seb.NackOptions{Delay: ptr(5 * time.Minute)}, first[0].Token) == nil {
					rests.Store(ptr(time.Now().Add(5 * time.Minute)))
				}
			})
			second := mustReceive(t, q, 1, 10*time.Minute)
			wantHanded(t, second, "[0#2]")
			if until := rests.Load(); until != nil && time.Until(*until) > 0 {
				t.Errorf("put back after %v, and handed out %v too early", at, time.Until(*until))
			}
			mustAck(t, q, second...)
		})
	}
}
