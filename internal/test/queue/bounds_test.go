package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/test/kit"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

func TestReceiveReturnsNoMoreBytesThanItMay(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	q := queueOf(t, b, 5, 100)
	for _, c := range []struct {
		bytes int64
		want  string
	}{{250, "[0#1 1#1]"}, {1, "[2#1]"}, {200, "[3#1 4#1]"}} {
		got, err := q.Receive(t.Context(), seb.ReceiveOptions{Max: 10, MaxBytes: c.bytes})
		if err != nil {
			t.Fatal(err)
		}
		wantHanded(t, got, c.want)
		if got[0].LeasedUntil.IsZero() {
			t.Error("the lease has no end")
		}
	}
	if info, err := q.Describe(t.Context()); err != nil || info.Leased != 5 || info.Received != 5 {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestDeadReturnsNoMoreBytesThanItMay(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	q := queueOf(t, b, 3, 100)
	mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1)})
	if err := q.Nack(t.Context(), seb.NackOptions{}, tokens(mustReceive(t, q, 3, 0))...); err != nil {
		t.Fatal(err)
	}
	dead, next, more, err := q.Dead(t.Context(), seb.DeadOptions{MaxBytes: 200})
	if err != nil || len(dead) != 2 || !more || next != (seb.Place{Offset: 2}) {
		t.Errorf("%+v, %v, %v, %v", dead, next, more, err)
	}
	if dead, _, more, err = q.Dead(t.Context(), seb.DeadOptions{From: next, MaxBytes: 1}); err != nil || len(dead) != 1 || more {
		t.Errorf("%+v, %v, %v", dead, more, err)
	}
}

func TestMessagesThatAreReturnedAreTheSameAttempt(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	q := queueOf(t, b, 2, 1)
	ms := mustReceive(t, q, 2, 0)
	if err := q.Return(ms[1:]); err != nil {
		t.Fatal(err)
	}
	again := mustReceive(t, q, 2, 0)
	wantHanded(t, again, "[1#1]")
	mustAck(t, q, ms[0], again[0])
	if err := q.Return(ms); err != nil { // returning records that are done has no effect
		t.Fatal(err)
	}
	wantHanded(t, mustReceive(t, q, 2, 0), "[]")
}

// A waiting receiver has no memory reserved. A receiver that is refused passes its turn on to the
// next.
func TestReceiveReservesWhenThereIsSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), kit.InVirtualTime(immediate()))
		q := queueOf(t, b, 0, 0)
		held, full := 0, false
		refused := errors.New("no room")
		reserve := func(context.Context) (func(), error) {
			if full {
				return nil, refused
			}
			held++
			return func() { held-- }, nil
		}
		first := make(chan error)
		go func() {
			_, err := q.Receive(t.Context(), seb.ReceiveOptions{Wait: time.Minute, Reserve: reserve})
			first <- err
		}()
		synctest.Wait()
		if held != 0 {
			t.Errorf("%d are held while nothing is there", held)
		}
		second := make(chan []seb.Message)
		go func() {
			got, err := q.Receive(t.Context(), seb.ReceiveOptions{Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			second <- got
		}()
		synctest.Wait()
		full = true
		began := time.Now()
		appendTo(t, b, 0, 1)
		if err := <-first; !errors.Is(err, refused) {
			t.Errorf("%v", err)
		}
		wantHanded(t, <-second, "[0#1]")
		if waited := time.Since(began); waited > time.Second {
			t.Errorf("the next had to wait for %v", waited)
		}
		full = false
		appendTo(t, b, 0, 1)
		if got, err := q.Receive(t.Context(), seb.ReceiveOptions{Reserve: reserve}); err != nil || len(got) != 1 || held != 1 {
			t.Errorf("%+v, %v, %d held", got, err, held)
		}
	})
}

// An owner that other brokers can ask need not show itself in the log: no broker takes its queue
// because of its silence.
func TestOwnerWithAnAddressKeepsItsQueueUntilItIsDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		at := func(address string) *seb.Broker {
			o := kit.InVirtualTime(immediate())
			o.Address = address
			return open(t, store, o)
		}
		one, two := at("http://127.0.0.1:1"), at("http://127.0.0.1:2")
		q := queueOf(t, one, 1, 1)
		wantHanded(t, mustReceive(t, q, 1, 0), "[0#1]")
		time.Sleep(time.Hour)
		other := two.Queue("t", "work")
		var e *seb.Error
		if _, err := other.Receive(t.Context(), seb.ReceiveOptions{}); !errors.As(err, &e) || e.Code != seb.CodeQueueElsewhere ||
			e.Address != "http://127.0.0.1:1" || e.Epoch != 1 {
			t.Fatal(err)
		}
		if err := other.TakeOver(t.Context(), e.Epoch); err != nil {
			t.Fatal(err)
		}
		if address, epoch, err := q.Owner(t.Context()); err != nil || address != "http://127.0.0.1:2" || epoch != 2 {
			t.Fatal(address, epoch, err)
		}
		wantHanded(t, mustReceive(t, other, 1, time.Hour), "[0#2]")
	})
}

func TestUpdateCreatesNoQueue(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	mustCreateTopic(t, b, "t", 1)
	q := b.Queue("t", "work")
	if _, err := q.Update(t.Context(), seb.QueueUpdate{Paused: ptr(true)}); seb.CodeOf(err) != seb.CodeQueueNotFound {
		t.Fatal(err)
	}
	mustSet(t, q, seb.QueueUpdate{})
	if info, err := q.Update(t.Context(), seb.QueueUpdate{Paused: ptr(true)}); err != nil || !info.Config.Paused {
		t.Fatalf("%+v, %v", info, err)
	}
}

func TestExtendByTheQueuesOwnLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), kit.InVirtualTime(immediate()))
		q := queueOf(t, b, 1, 1)
		mustSet(t, q, seb.QueueUpdate{Lease: ptr(10 * time.Minute)})
		ms, err := q.Receive(t.Context(), seb.ReceiveOptions{Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		until, err := q.Extend(t.Context(), 0, tokens(ms)...)
		if left := time.Until(until); err != nil || left != 10*time.Minute {
			t.Fatal(left, err)
		}
		wantHanded(t, mustReceive(t, q, 1, 9*time.Minute), "[]")
		wantHanded(t, mustReceive(t, q, 1, 2*time.Minute), "[0#2]")
	})
}

// Two brokers have the same address in their options. They must not take a queue from each other in
// turn.
func TestBrokersOfOneAddressDoNotTakeQueuesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		var queues []*seb.Queue
		for range 2 {
			o := kit.InVirtualTime(immediate())
			o.Address = "http://127.0.0.1:1"
			b := open(t, store, o)
			if queues == nil {
				queueOf(t, b, 0, 0)
			}
			queues = append(queues, b.Queue("t", "work"))
		}
		for i := range 6 {
			time.Sleep(2 * time.Second)
			_, err := queues[i%2].Receive(t.Context(), seb.ReceiveOptions{})
			var e *seb.Error
			switch {
			case i < 2 || i%2 == 1:
				if err != nil {
					t.Errorf("%d: %v", i, err)
				}
			case !errors.As(err, &e) || e.Code != seb.CodeQueueElsewhere || e.Address != "" || strings.Contains(e.Hint, "to that broker"): // the hint must not name an address
				t.Errorf("%d: %v", i, err)
			}
		}
		if _, epoch, err := queues[0].Owner(t.Context()); err != nil || epoch != 2 {
			t.Errorf("the owner is %d, %v", epoch, err)
		}
	})
}
