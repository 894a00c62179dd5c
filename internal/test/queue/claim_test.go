package queue_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// A record's lease has ended, and the owner is counting the next attempt, when the late worker puts the
// record back through another broker. If the owner counted the attempt twice, the next worker could not
// acknowledge the record.
func TestRecordThatIsPutBackWhileItsNextAttemptIsCountedHasOneNextAttempt(t *testing.T) {
	for at := 29500 * time.Millisecond; at < 31*time.Second; at += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			store := objstore.NewMemory()
			owner := open(t, storetest.Slow(store, 50*time.Millisecond), kit.InVirtualTime(seb.Options{Batching: seb.Timed(time.Second, 1<<20)}))
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
			time.Sleep(10 * time.Second) // everything on its way has arrived
			mustAck(t, q, second...)
		})
	}
}

// A record's lease has ended when the late worker puts the record back with a delay, through the owner or
// another broker. The owner learns of the delay while it is counting the next attempt, and must keep to
// the delay.
func TestRecordThatIsPutBackWhileItsNextAttemptIsCountedRests(t *testing.T) {
	for i := range 30 {
		at, through := 29500*time.Millisecond+time.Duration(i/2)*100*time.Millisecond, i%2
		synctest.Test(t, func(t *testing.T) {
			store := objstore.NewMemory()
			owner := open(t, storetest.Slow(store, 50*time.Millisecond), kit.InVirtualTime(seb.Options{Batching: seb.Timed(time.Second, 1<<20)}))
			brokers := []*seb.Broker{owner, open(t, store, immediate())}
			mustCreateTopic(t, owner, "t", 1)
			q := owner.Queue("t", "work")
			mustSet(t, q, seb.QueueUpdate{})
			appendTo(t, owner, 0, 1)
			first := mustReceive(t, q, 1, 0)
			var rests atomic.Pointer[time.Time]
			time.AfterFunc(at, func() {
				if brokers[through].Queue("t", "work").Nack(t.Context(), seb.NackOptions{Delay: ptr(5 * time.Minute)}, first[0].Token) == nil {
					rests.Store(ptr(time.Now().Add(5 * time.Minute)))
				}
			})
			second := mustReceive(t, q, 1, 10*time.Minute)
			wantHanded(t, second, "[0#2]")
			if until := rests.Load(); until != nil && time.Until(*until) > 0 {
				t.Errorf("put back after %v through broker %d, and handed out %v too early", at, through, time.Until(*until))
			}
			mustAck(t, q, second...)
		})
	}
}

// A hundred records that allow one attempt are redriven, and one of them is received. If all attempts
// had been claimed for possible receivers, all records would become dead letters again when their
// owner is killed, without any delivery.
func TestNoMoreAttemptsAreCountedThanReceiversWant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, records := objstore.NewMemory(), 100
		b := openOnly(t, storetest.Slow(store, 50*time.Millisecond), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1)})
		appendTo(t, b, 0, records)
		if err := q.Nack(t.Context(), seb.NackOptions{}, tokens(mustReceive(t, q, records, 0))...); err != nil {
			t.Fatal(err)
		}
		if n, err := q.Redrive(t.Context(), seb.RedriveOptions{}); n.Records != records || err != nil {
			t.Fatalf("%d redriven, %v", n, err)
		}
		wantHanded(t, mustReceive(t, q, 1, time.Minute), "[0#1]")
		kill(t, b)
		b = openOnly(t, store, immediate())
		q = b.Queue("t", "work")
		if n := len(mustReceive(t, q, records, time.Minute)); n != records-1 {
			t.Errorf("%d are handed out after a crash, want all but one", n)
		}
		if info, err := q.Describe(t.Context()); err != nil || info.Dead != 0 && info.Dead != 1 {
			t.Errorf("%+v, %v", info, err)
		}
		kill(t, b)
	})
}

// Several receivers wait at the same time. They must get all records that come due at once, with one
// commit or two.
func TestEveryReceiverGetsItsNextAttemptCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, storetest.Slow(objstore.NewMemory(), 50*time.Millisecond), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, b, 0, 50)
		lost := time.Now()
		mustReceive(t, q, 50, 0) // no worker answers for these
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for range 5 {
					if len(mustReceive(t, q, 1, time.Minute)) != 1 {
						t.Error("a receiver got nothing")
					}
				}
			})
		}
		wg.Wait()
		if took := time.Since(lost.Add(30 * time.Second)); took > 2*time.Second {
			t.Errorf("it took %v after the leases", took)
		}
	})
}

// A worker that has failed sends an extension after its answer. The extension must not delay the
// record for longer than the worker, or the queue, asked for.
func TestRecordThatWasPutBackIsNotExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b := openOnly(t, store, kit.InVirtualTime(immediate()))
		q := queueOf(t, b, 2, 1)
		ms := mustReceive(t, q, 2, 0)
		if err := q.Nack(t.Context(), seb.NackOptions{Delay: ptr(time.Minute)}, tokens(ms)...); err != nil {
			t.Fatal(err)
		}
		_, err := q.Extend(t.Context(), time.Hour, ms[0].Token)
		wantCode(t, err, seb.CodeLeaseLost)
		kill(t, b)
		q = open(t, store, kit.InVirtualTime(immediate())).Queue("t", "work")
		mustReceive(t, q, 2, 0)
		_, err = q.Extend(t.Context(), time.Hour, ms[1].Token) // the next owner knows from the log that the record was put back
		wantCode(t, err, seb.CodeLeaseLost)
		wantHanded(t, mustReceive(t, q, 2, time.Minute+time.Second), "[0#2 1#2]")
	})
}

// A receiver that does not wait gets a record that is ready for another attempt, although the owner first has to
// count that attempt with a commit: after the worker has put the record back, after the lease has ended, and after
// a redrive.
func TestReceiveWithoutWaitGetsRecordsForTheirNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, storetest.Slow(objstore.NewMemory(), 50*time.Millisecond), kit.InVirtualTime(seb.Options{Batching: seb.Timed(time.Second, 1<<20)}))
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(3)})
		appendTo(t, b, 0, 1)
		wantHanded(t, mustReceive(t, q, 1, 0), "[0#1]")
		time.Sleep(31 * time.Second) // the lease ends
		second := mustReceive(t, q, 1, 0)
		wantHanded(t, second, "[0#2]")
		if err := q.Nack(t.Context(), seb.NackOptions{Delay: ptr(time.Duration(0))}, second[0].Token); err != nil {
			t.Fatal(err)
		}
		third := mustReceive(t, q, 1, 0)
		wantHanded(t, third, "[0#3]")
		if err := q.Nack(t.Context(), seb.NackOptions{Delay: ptr(time.Duration(0))}, third[0].Token); err != nil {
			t.Fatal(err)
		}
		wantHanded(t, mustReceive(t, q, 1, 0), "[]")
		if n, err := q.Redrive(t.Context(), seb.RedriveOptions{}); err != nil || n.Records != 1 {
			t.Fatalf("redrive: %+v, %v", n, err)
		}
		mustAck(t, q, mustReceive(t, q, 1, 0)...)
	})
}
