package fault_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// The tests in this file are about faults that other queues are known for.

// wantLost fails unless every token is refused because another worker may have its record.
func wantLost(t testing.TB, err error) {
	t.Helper()
	var tokens *seb.TokensError
	if !errors.As(err, &tokens) {
		t.Fatalf("got %v, want refused tokens", err)
	}
	for _, err := range tokens.Errors {
		wantCode(t, err, seb.CodeLeaseLost)
		wantOutcome(t, err, seb.NotCommitted)
	}
}

// A record of a worker that is gone is handed out again when its lease ends, and not before, even if
// its broker ended with the worker.
func TestLockDoesNotOutliveItsWorker(t *testing.T) {
	for _, broker := range []string{"stays", "is closed", "is killed"} {
		t.Run(broker, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := objstore.NewMemory()
				opts := kit.InVirtualTime(immediate())
				b := openOnly(t, memory, opts)
				mustCreateTopic(t, b, "t", 1)
				q := b.Queue("t", "work")
				mustSet(t, q, seb.QueueUpdate{Lease: ptr(20 * time.Second)})
				appendTo(t, b, 0, 1)
				wantHanded(t, mustReceive(t, q, 1, 0), "[0#1]")
				time.Sleep(10 * time.Second)
				left := 10 * time.Second
				switch broker {
				case "is closed":
					if err := b.Close(); err != nil {
						t.Fatal(err)
					}
				case "is killed":
					kill(t, b)
				}
				if broker != "stays" {
					b = openOnly(t, memory, opts)
					q, left = b.Queue("t", "work"), 20*time.Second // the new owner knows no leases, so it waits for the length of one
				}
				began := time.Now()
				wantHanded(t, mustReceive(t, q, 1, time.Minute), "[0#2]")
				if waited := time.Since(began); waited < left-time.Second || waited > left+time.Second {
					t.Errorf("it was handed out again after %v, want %v", waited, left)
				}
				kill(t, b)
			})
		})
	}
}

// Of two workers that had the same record, only the one that got it last is told that its work counts.
func TestWorkerThatOutlivesItsLockCompletesNothing(t *testing.T) {
	for _, first := range []string{"the late one", "the other"} {
		t.Run(first+" answers first", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := objstore.NewMemory()
				_, q := openQueueOn(t, memory, 1, seb.QueueUpdate{})
				other := open(t, memory, kit.InVirtualTime(immediate()))
				late := mustReceive(t, q, 1, 0)
				again := mustReceive(t, q, 1, time.Minute)
				wantHanded(t, again, "[0#2]")
				if first == "the other" {
					mustAck(t, q, again...)
				}
				// Neither the owner nor another broker accepts any answer of the late worker.
				for _, q := range []*seb.Queue{q, other.Queue("t", "work")} {
					wantLost(t, q.Ack(t.Context(), late[0].Token))
					wantLost(t, q.Nack(t.Context(), seb.NackOptions{}, late[0].Token))
				}
				_, err := q.Extend(t.Context(), time.Minute, late[0].Token)
				if seb.CodeOf(err) != seb.CodeLeaseLost {
					t.Fatal(err)
				}
				if first == "the late one" {
					mustAck(t, q, again...)
				}
				mustAck(t, q, again...) // the same answer, sent again
				wantLeft(t, q, 0)
			})
		})
	}
}

// A broker was stopped while it owned the queue, and another broker took the queue over. What the
// first one hands out after that, for about a second, is refused as soon as the other hands it out.
// After that it hands out nothing.
func TestExpiredOwnerCommitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		_, q := openQueueOn(t, memory, 3, seb.QueueUpdate{Lease: ptr(10 * time.Second)})
		held := mustReceive(t, q, 1, 0)
		wantHanded(t, held, "[0#1]")
		next := open(t, memory, kit.InVirtualTime(immediate()))
		took := next.Queue("t", "work")
		wantHanded(t, mustReceive(t, took, 3, 0), "[]") // all records may be with workers: the new owner waits for one lease
		// Within a second, the old owner learns that it is not the owner.
		time.Sleep(1100 * time.Millisecond)
		_, err := q.Receive(t.Context(), seb.ReceiveOptions{})
		wantCode(t, err, seb.CodeQueueElsewhere)
		_, err = q.Extend(t.Context(), time.Minute, held[0].Token)
		wantCode(t, err, seb.CodeQueueElsewhere)
		wantHanded(t, mustReceive(t, took, 3, time.Minute), "[0#2 1#2 2#2]")
		wantLost(t, q.Ack(t.Context(), held[0].Token))
		wantLeft(t, took, 3)
	})
}

// An owner's commit to dead-letter a record comes after another broker has taken over. It must be
// refused: the record may be with a worker that has a lease of the new owner.
func TestExpiredOwnerMakesNoDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		_, q := openQueueOn(t, faulty, 1, seb.QueueUpdate{Lease: ptr(10 * time.Second), MaxAttempts: ptr(1)})
		ms := mustReceive(t, q, 1, 0)
		release, before := make(chan struct{}), faulty.Count(objstore.VerbCreate, "log/")
		faulty.On(objstore.VerbCreate, "log/", storetest.Hold(release))
		go func() {
			_, _ = q.Receive(t.Context(), seb.ReceiveOptions{Wait: 20 * time.Second}) // so that a receiver notices that the lease ends
		}()
		time.Sleep(11 * time.Second)
		if n := faulty.Count(objstore.VerbCreate, "log/"); n == before {
			t.Fatal("the owner parks nothing")
		}
		next := open(t, memory, kit.InVirtualTime(immediate())).Queue("t", "work")
		if _, err := next.Extend(t.Context(), time.Hour, ms[0].Token); err != nil {
			t.Fatal(err)
		}
		close(release)
		time.Sleep(20 * time.Second)
		wantHanded(t, mustReceive(t, next, 1, 0), "[]")
		if info, err := next.Describe(t.Context()); err != nil || info.Dead > 0 || info.Epoch != 2 {
			t.Errorf("%+v, %v", info, err)
		}
		mustAck(t, next, ms...)
		wantLeft(t, next, 0)
	})
}

// Records become dead letters after as many attempts as the queue allows, whatever happens to brokers
// in between.
func TestRestartResetsNoAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		opts := kit.InVirtualTime(immediate())
		opts.CheckpointCommits = 3
		b := openOnly(t, memory, opts)
		mustCreateTopic(t, b, "t", 1)
		mustSet(t, b.Queue("t", "work"), seb.QueueUpdate{MaxAttempts: ptr(4)})
		appendTo(t, b, 0, 1)
		for n := range 4 {
			wantHanded(t, mustReceive(t, b.Queue("t", "work"), 1, 2*time.Minute), fmt.Sprintf("[0#%d]", n+1))
			if n%2 == 0 {
				kill(t, b)
			} else if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			b = openOnly(t, memory, opts)
		}
		q := b.Queue("t", "work")
		wantHanded(t, mustReceive(t, q, 1, 2*time.Minute), "[]")
		if info, err := q.Describe(t.Context()); err != nil || info.Dead != 1 {
			t.Fatalf("%+v, %v", info, err)
		}
		kill(t, b)
	})
}

// After a restart, every record that was not acknowledged is handed out again, even if later ones were
// acknowledged.
func TestAcknowledgingSkipsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		opts := kit.InVirtualTime(immediate())
		b := openOnly(t, memory, opts)
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, b, 0, 7)
		ms := mustReceive(t, q, 7, 0)
		mustAck(t, q, ms[6], ms[2], ms[4])
		kill(t, b)
		b = openOnly(t, memory, opts)
		q = b.Queue("t", "work")
		ms = mustReceive(t, q, 7, time.Minute)
		wantHanded(t, ms, "[0#2 1#2 3#2 5#2]")
		mustAck(t, q, ms...)
		wantLeft(t, q, 0)
		kill(t, b)
	})
}

// Tokens are refused if their deliveries can't have been made, or were made by another queue.
func TestNobodyAcknowledgesWhatItWasNotGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, q := openQueue(t, 5, seb.QueueUpdate{})
		ms := mustReceive(t, q, 1, 0)
		stem := ms[0].Token[:len(ms[0].Token)-len("0.1")]
		for _, made := range []string{"0.2", "5.1", "99.1", "9223372036854775807.1"} {
			wantLost(t, q.Ack(t.Context(), stem+made))
			wantLost(t, q.Nack(t.Context(), seb.NackOptions{}, stem+made))
		}
		for _, bad := range []string{"", "x", stem, stem + "0.0", stem + "-1.1", stem + "00.1", ms[0].Token + " "} {
			wantCode(t, q.Ack(t.Context(), ms[0].Token, bad), seb.CodeInvalidRequest)
		}
		mustSet(t, b.Queue("t", "other"), seb.QueueUpdate{})
		wantLost(t, b.Queue("t", "other").Ack(t.Context(), ms[0].Token))
		wantLeft(t, q, 5) // a valid token next to an invalid one does nothing either
		mustAck(t, q, ms...)
		wantLeft(t, q, 4)
	})
}

// After refused calls, with one token or with all, the state is as it was before.
func TestRefusedCallChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, q := openQueue(t, 2, seb.QueueUpdate{Lease: ptr(10 * time.Second)})
		late := mustReceive(t, q, 2, 0)
		again := mustReceive(t, q, 2, time.Minute)
		wantHanded(t, again, "[0#2 1#2]")
		synctest.Wait() // a receiver returns a moment before the status shows the commit
		before := b.Status().Applied
		wantLost(t, q.Nack(t.Context(), seb.NackOptions{Delay: ptr(time.Hour)}, late[0].Token, late[1].Token))
		synctest.Wait()
		if after := b.Status().Applied; after != before {
			t.Errorf("refused calls made %d commits", after-before)
		}
		err := q.Ack(t.Context(), late[0].Token, again[1].Token)
		var each *seb.TokensError
		if !errors.As(err, &each) || each.Errors[1] != nil || seb.CodeOf(each.Errors[0]) != seb.CodeLeaseLost {
			t.Fatal(err)
		}
		wantLeft(t, q, 1)
		began := time.Now()
		wantHanded(t, mustReceive(t, q, 1, time.Minute), "[0#3]") // the delay of an hour was refused
		if waited := time.Since(began); waited > 10*time.Second {
			t.Errorf("after %v", waited)
		}
	})
}

// A receive without records returns when its wait is over, at once if it does not wait; and it returns
// records as soon as there are any.
func TestReceiveWaitsAsLongAsItWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b, q := openQueueOn(t, memory, 0, seb.QueueUpdate{})
		other := open(t, memory, kit.InVirtualTime(immediate()))
		mustReceive(t, q, 1, 0)
		for _, wait := range []time.Duration{0, 1500 * time.Millisecond, 20 * time.Second, 5 * time.Minute} {
			began := time.Now()
			wantHanded(t, mustReceive(t, q, 1, wait), "[]")
			if waited := time.Since(began); waited < wait || waited > wait+100*time.Millisecond {
				t.Errorf("it waited %v, and was asked to wait %v", waited, wait)
			}
		}
		for _, by := range []struct {
			*seb.Broker
			within time.Duration
		}{{b, 20 * time.Millisecond}, {other, 11 * time.Second}} {
			began := time.Now()
			done := make(chan struct{})
			go func() {
				defer close(done)
				mustAck(t, q, mustReceive(t, q, 1, time.Hour)...)
			}()
			time.Sleep(time.Minute)
			if _, err := by.Append(t.Context(), "t", values("x")); err != nil {
				t.Error(err)
			}
			<-done
			if waited := time.Since(began); waited > time.Minute+by.within {
				t.Errorf("it came %v after the append", waited-time.Minute)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := q.Receive(ctx, seb.ReceiveOptions{Wait: time.Minute})
		wantCode(t, err, seb.CodeCanceled)
	})
}

// A worker whose broker was lost can keep its record, even before any receive from the next owner.
func TestLeaseIsExtendedRightAfterATakeover(t *testing.T) {
	for _, order := range []seb.QueueOrder{seb.OrderNone, seb.OrderKey} {
		synctest.Test(t, func(t *testing.T) {
			memory := objstore.NewMemory()
			opts := kit.InVirtualTime(immediate())
			b := openOnly(t, memory, opts)
			mustCreateTopic(t, b, "t", 1)
			q := b.Queue("t", "work")
			mustSet(t, q, seb.QueueUpdate{Order: &order})
			appendTo(t, b, 0, 2)
			ms := mustReceive(t, q, 2, 0)
			kill(t, b)
			b = openOnly(t, memory, opts)
			q = b.Queue("t", "work")
			if _, err := q.Extend(t.Context(), 5*time.Minute, ms[1].Token); err != nil {
				t.Fatal(err)
			}
			again := mustReceive(t, q, 2, 4*time.Minute)
			wantHanded(t, again, "[0#2]")
			mustAck(t, q, again...)
			wantHanded(t, mustReceive(t, q, 2, 4*time.Minute), "[]")
			mustAck(t, q, ms[1])
			wantLeft(t, q, 0)
			kill(t, b)
		})
	}
}

// No worker may believe that it keeps a record that is done, was put back, is a dead letter, or was
// never handed out.
func TestOnlyLeasesAreExtendedRightAfterATakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		opts := kit.InVirtualTime(immediate())
		b := openOnly(t, memory, opts)
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1)})
		appendTo(t, b, 0, 3)
		ms := mustReceive(t, q, 3, 0)
		if err := q.Nack(t.Context(), seb.NackOptions{}, ms[0].Token); err != nil {
			t.Fatal(err)
		}
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(5)})
		if err := q.Nack(t.Context(), seb.NackOptions{Delay: ptr(time.Hour)}, ms[1].Token); err != nil {
			t.Fatal(err)
		}
		mustAck(t, q, ms[2])
		kill(t, b)
		b = openOnly(t, memory, opts)
		q = b.Queue("t", "work")
		never := strings.Replace(ms[0].Token, "/0:0.", "/0:7.", 1)
		for _, token := range append(tokens(ms), never) {
			if until, err := q.Extend(t.Context(), time.Hour, token); seb.CodeOf(err) != seb.CodeLeaseLost {
				t.Errorf("%s is kept until %v, %v", token, until, err)
			}
		}
		kill(t, b)
	})
}

// No worker may believe that a record that is done comes again.
func TestPutBackAfterDoneIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := openQueue(t, 1, seb.QueueUpdate{})
		ms := mustReceive(t, q, 1, 0)
		mustAck(t, q, ms...)
		wantLost(t, q.Nack(t.Context(), seb.NackOptions{}, ms[0].Token))
		mustAck(t, q, ms...)
	})
}

// A waiting worker causes no commits, except for a while after a takeover from a broker that may still
// run. During that time, the other broker must not take the queue back.
func TestIdleWorkersCostNoCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		_, q := openQueueOn(t, faulty, 0, seb.QueueUpdate{})
		idle := func(span time.Duration) int {
			before := faulty.Count(objstore.VerbCreate, "")
			for end := time.Now().Add(span); time.Now().Before(end); {
				wantHanded(t, mustReceive(t, q, 1, 20*time.Second), "[]")
			}
			return faulty.Count(objstore.VerbCreate, "") - before
		}
		mustReceive(t, q, 1, 0) // this takes the queue over
		if n := idle(time.Hour); n > 0 {
			t.Errorf("%d creates in an hour", n)
		}
		other := open(t, memory, kit.InVirtualTime(immediate()))
		mustReceive(t, other.Queue("t", "work"), 1, 0)
		time.Sleep(time.Minute) // the other broker is silent for so long that this one may take the queue back
		if n := idle(20 * time.Minute); n < 50 || n > 61 {
			t.Errorf("%d creates in the minutes after a takeover", n)
		}
		if n := idle(time.Hour); n > 0 {
			t.Errorf("%d creates in an hour, later", n)
		}
	})
}

// Many receivers come at the same time, before any broker owns the queue. A second takeover would make
// all records uncertain that the first one has handed out.
func TestBrokerTakesAQueueOverOnce(t *testing.T) {
	for range 40 {
		synctest.Test(t, func(t *testing.T) {
			_, q := openQueueOn(t, storetest.Slow(objstore.NewMemory(), time.Millisecond), 64, seb.QueueUpdate{})
			var wg sync.WaitGroup
			for i := range 64 {
				wg.Go(func() {
					time.Sleep(time.Duration(i%8) * time.Millisecond) // some come just during the takeover
					if _, err := q.Receive(t.Context(), seb.ReceiveOptions{Wait: time.Second}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			info, err := q.Describe(t.Context())
			if err != nil || info.Epoch != 1 || info.Leased != 64 {
				t.Fatalf("%+v, %v", info, err)
			}
		})
	}
}
