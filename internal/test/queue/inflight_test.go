package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

func inFlight(t testing.TB, most int) *seb.InFlight {
	t.Helper()
	f, err := seb.NewInFlight(most)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// bounded receives as many records as there is room for, and waits up to wait for the first.
func bounded(t testing.TB, q *seb.Queue, f *seb.InFlight, wait time.Duration) []seb.Message {
	t.Helper()
	got, err := q.Receive(t.Context(), seb.ReceiveOptions{Max: 100, Wait: wait, InFlight: f})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestWorkerHasNoMoreInFlightThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, b, 0, 20)
		f := inFlight(t, 3)
		ms := bounded(t, q, f, 0)
		wantHanded(t, ms, "[0#1 1#1 2#1]")
		began := time.Now()
		wantHanded(t, bounded(t, q, f, 5*time.Second), "[]")
		if took := time.Since(began); took != 5*time.Second {
			t.Fatalf("without room it waited %v", took)
		}
		// Each way in which a record stops being in flight makes room for one record.
		later := func(do func() error) {
			t.Helper()
			done := make(chan error, 1)
			go func() {
				time.Sleep(time.Second)
				done <- do()
			}()
			began := time.Now()
			got := bounded(t, q, f, time.Minute)
			if err := <-done; err != nil || len(got) != 1 || time.Since(began) > 2*time.Second {
				t.Fatalf("got %s after %v, %v", handed(got), time.Since(began), err)
			}
			ms = append(ms, got...)
		}
		later(func() error { return q.Ack(t.Context(), ms[0].Token) })
		later(func() error { return q.Nack(t.Context(), seb.NackOptions{Delay: ptr(time.Hour)}, ms[1].Token) })
		later(func() error { return q.Return(ms[2:3]) })
		if err := q.Ack(t.Context(), tokens(ms[3:])...); err != nil {
			t.Fatal(err)
		}
		if n, err := q.Purge(t.Context()); err != nil || n == 0 {
			t.Fatalf("purged %d, %v", n, err)
		}
		appendTo(t, b, 0, 5)
		wantHanded(t, bounded(t, q, f, time.Second), "[20#1 21#1 22#1]")
	})
}

func TestLeaseThatRunsOutMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{BackoffMin: ptr(time.Hour)})
		appendTo(t, b, 0, 5)
		f := inFlight(t, 2)
		ms := bounded(t, q, f, 0)
		wantHanded(t, ms, "[0#1 1#1]")
		if _, err := q.Extend(t.Context(), 5*time.Minute, ms[1].Token); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		got := bounded(t, q, f, time.Minute)
		if took := time.Since(began); len(got) != 1 || took != 30*time.Second {
			t.Fatalf("got %s after %v, want one after the lease of 30s", handed(got), took)
		}
		wantHanded(t, bounded(t, q, f, 29*time.Second), "[]")
	})
}

// A worker without room waits, but not in line with the others.
func TestFullWorkerLeavesRecordsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{Lease: ptr(time.Hour)})
		appendTo(t, b, 0, 1)
		f := inFlight(t, 1)
		first := bounded(t, q, f, 0)
		full, free := make(chan []seb.Message, 1), make(chan []seb.Message, 1)
		go func() { full <- bounded(t, q, f, time.Minute) }()
		synctest.Wait()
		go func() { free <- mustReceive(t, q, 1, time.Minute) }()
		synctest.Wait()
		began := time.Now()
		appendTo(t, b, 0, 2)
		wantHanded(t, <-free, "[1#1]")
		mustAck(t, q, first...)
		wantHanded(t, <-full, "[2#1]")
		if took := time.Since(began); took > time.Second {
			t.Fatalf("it took %v", took)
		}
	})
}

// A waiting broker syncs, so that it learns of acknowledgements through other brokers.
func TestAckThroughAnotherBrokerMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b, other := open(t, store, immediate()), open(t, store, immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{Lease: ptr(time.Hour)})
		appendTo(t, b, 0, 3)
		f := inFlight(t, 1)
		for _, want := range []string{"[0#1]", "[1#1]", "[2#1]"} {
			began := time.Now()
			ms := bounded(t, q, f, time.Minute)
			wantHanded(t, ms, want)
			if took := time.Since(began); took > 5*time.Second {
				t.Fatalf("it took %v", took)
			}
			mustAck(t, other.Queue("t", "work"), ms...)
		}
	})
}

func TestInFlightIsBounded(t *testing.T) {
	for _, most := range []int{0, -1, 1001} {
		if f, err := seb.NewInFlight(most); f != nil || seb.CodeOf(err) != seb.CodeInvalidRequest {
			t.Errorf("%d: %v", most, err)
		}
	}
}
