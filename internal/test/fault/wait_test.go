package fault_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// answer is what a waiting reader got, and after how long.
type answer struct {
	seb.Fetched
	err  error
	took time.Duration
}

// fetching begins a fetch that may wait at the end of a partition.
func fetching(ctx context.Context, b *seb.Broker, topic string, at seb.Offset, wait time.Duration) <-chan answer {
	done := make(chan answer, 1)
	begun := time.Now()
	go func() {
		f, err := b.Fetch(ctx, topic, 0, seb.At(at), seb.FetchOptions{Wait: wait})
		done <- answer{f, err, time.Since(begun)}
	}()
	synctest.Wait()
	return done
}

func TestReadAtLogEndWaits(t *testing.T) {
	tests := map[string]struct {
		act  func(t *testing.T, b, foreign *seb.Broker)
		took [2]time.Duration // the least and the most that the read may take
		want string           // the expected record; "" if none
		code seb.Code
	}{
		"for a commit of the same broker": {
			act:  func(t *testing.T, b, _ *seb.Broker) { mustAppend(t, b, "t", "own") },
			took: [2]time.Duration{time.Minute, time.Minute}, want: "own"},
		"for a commit of another": {
			act:  func(t *testing.T, _, foreign *seb.Broker) { mustAppend(t, foreign, "t", "foreign") },
			took: [2]time.Duration{time.Minute, time.Minute + 10*time.Second}, want: "foreign"},
		"until its time is up": {
			act:  func(*testing.T, *seb.Broker, *seb.Broker) {},
			took: [2]time.Duration{time.Hour, time.Hour}},
		"until the topic is deleted": {
			act: func(t *testing.T, b, _ *seb.Broker) {
				if err := b.DeleteTopic(t.Context(), "t"); err != nil {
					t.Error(err)
				}
			},
			took: [2]time.Duration{time.Minute, time.Minute}, code: seb.CodeTopicNotFound},
		"until another broker deletes the topic": {
			act: func(t *testing.T, _, foreign *seb.Broker) {
				if err := foreign.DeleteTopic(t.Context(), "t"); err != nil {
					t.Error(err)
				}
			},
			took: [2]time.Duration{time.Minute, time.Minute + 10*time.Second}, code: seb.CodeTopicNotFound},
		"until the broker is closed": {
			act: func(t *testing.T, b, _ *seb.Broker) {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			},
			took: [2]time.Duration{time.Minute, time.Minute}, code: seb.CodeBrokerClosed},
		"until the broker is killed": {
			act:  func(t *testing.T, b, _ *seb.Broker) { kill(t, b) },
			took: [2]time.Duration{time.Minute, time.Minute}, code: seb.CodeBrokerClosed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := objstore.NewMemory()
				b, foreign := openOnly(t, store, immediate()), open(t, store, immediate())
				defer b.Close()
				mustCreateTopic(t, b, "t", 1)
				done := fetching(t.Context(), b, "t", 0, time.Hour)
				time.Sleep(time.Minute)
				test.act(t, b, foreign)
				got := <-done
				if got.took < test.took[0] || got.took > test.took[1] {
					t.Errorf("answered after %v, want %v", got.took, test.took)
				}
				switch {
				case test.code != "":
					if e := wantError(t, got.err, test.code); e.Outcome != "" {
						t.Errorf("a read has no outcome: %v", e)
					}
				case got.err != nil:
					t.Error(got.err)
				case test.want == "" && len(got.Records) > 0, test.want != "" && (len(got.Records) != 1 || string(got.Records[0].Value) != test.want):
					t.Errorf("read %v, want %q", got.Records, test.want)
				}
			})
		})
	}
}

// A reader that begins to wait learns soon of other brokers' commits, even if there were none for
// long. The syncs of earlier reads must not have made the interval long.
func TestFirstReaderToWaitForSomeTimeIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b, foreign := open(t, faulty, immediate()), open(t, memory, immediate())
		mustCreateTopic(t, b, "t", 1)
		at := seb.Offset(0)
		for range 3 {
			for range 30 { // reads that don't wait
				wantAtEnd(t, b)
				time.Sleep(time.Second)
			}
			done := fetching(t.Context(), b, "t", at, time.Hour)
			time.Sleep(100 * time.Millisecond)
			at = mustAppend(t, foreign, "t", "v") + 1
			if got := <-done; got.err != nil || len(got.Records) != 1 || got.took > time.Second {
				t.Errorf("%d records after %v, %v", len(got.Records), got.took, got.err)
			}
			time.Sleep(time.Minute)
		}
		// A client that waits again at once, as clients that poll do, costs little more than one
		// long wait: at most one more sync a minute, since each read that stops at the end may need
		// one.
		before := faulty.Count(objstore.VerbGet, "")
		for range 60 {
			if got := <-fetching(t.Context(), b, "t", at, time.Minute); got.err != nil || len(got.Records) != 0 {
				t.Fatal(got.Records, got.err)
			}
		}
		if n := faulty.Count(objstore.VerbGet, "") - before; n > 360+60+10 {
			t.Errorf("%d GETs in an hour of polls that wait", n)
		}
	})
}

func TestWaitingReaderEndsWhenTheBrokerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b := openOnly(t, memory, immediate())
		defer kill(t, b)
		mustAppend(t, b, "t", "v")
		done := fetching(t.Context(), b, "t", 1, time.Hour)
		// A commit of another log is put into the next slot.
		replaceByForeignCommit(t, memory, 3)
		got := <-done
		wantCode(t, got.err, seb.CodeBrokerStopped)
		if got.took > 11*time.Second {
			t.Errorf("it took %v to notice", got.took)
		}
		_, err := b.Append(t.Context(), "t", values("v"))
		wantCode(t, err, seb.CodeBrokerStopped)
		wantOutcome(t, err, seb.NotCommitted)
	})
}

// A caller that waits for something that will not come learns that it won't come.
func TestShutdownWakesEveryWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := kit.InVirtualTime(seb.Options{Batching: seb.Timed(time.Hour, 64<<20), Memory: 8 << 20})
		b := openOnly(t, objstore.NewMemory(), opts)
		mustCreateTopic(t, b, "t", 1)
		woken := map[string]chan error{}
		wait := func(name string, f func() error) {
			done := make(chan error, 1)
			woken[name] = done
			go func() { done <- f() }()
			synctest.Wait()
		}
		wait("read", func() error {
			_, err := b.Fetch(t.Context(), "t", 0, seb.Earliest, seb.FetchOptions{Wait: time.Hour})
			return err
		})
		wait("follower", func() error {
			for _, err := range b.Follow(t.Context(), "t", 0, seb.Latest) {
				if err != nil {
					return err
				}
			}
			return nil
		})
		release, err := b.Reserve(t.Context(), 2<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		wait("reservation", func() error {
			for {
				if _, err := b.Reserve(t.Context(), 2<<20); err != nil {
					return err
				}
			}
		})
		// The append fills the batch, which is committed early only because of the shutdown.
		wait("append", func() error { _, err := b.Append(t.Context(), "t", values("v")); return err })
		begun := time.Now()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := <-woken["append"]; err != nil {
			t.Errorf("append: %v", err)
		}
		for _, name := range []string{"read", "follower", "reservation"} {
			if err := <-woken[name]; err != nil && seb.CodeOf(err) != seb.CodeBrokerClosed && seb.CodeOf(err) != seb.CodeOverMemoryBudget {
				t.Errorf("%s: %v", name, err)
			}
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("the last one woke after %v", took)
		}
	})
}

func TestFollowIsWokenByEveryCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b, foreign := open(t, store, immediate()), open(t, store, immediate())
		mustCreateTopic(t, b, "t", 1)
		ctx, cancel := context.WithCancel(t.Context())
		type seen struct {
			value string
			at    time.Time
		}
		got := make(chan seen)
		ended := make(chan error, 1)
		go func() {
			for r, err := range b.Follow(ctx, "t", 0, seb.Earliest) {
				if err != nil {
					ended <- err
					return
				}
				got <- seen{string(r.Value), time.Now()}
			}
		}()
		for i := range 20 {
			sent := time.Now()
			mustAppend(t, b, "t", "own")
			if s := <-got; s.value != "own" || s.at != sent {
				t.Errorf("%q came %v after its commit", s.value, s.at.Sub(sent))
			}
			time.Sleep(100 * time.Millisecond)
			sent = time.Now()
			mustAppend(t, foreign, "t", "foreign")
			// While other brokers commit, the interval between syncs is short.
			if s := <-got; s.value != "foreign" || i > 0 && s.at.Sub(sent) > 250*time.Millisecond {
				t.Errorf("%q came %v after its commit", s.value, s.at.Sub(sent))
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow ended with %v", err)
		}
	})
}

func TestIdleBrokerSendsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		mustAppend(t, open(t, memory, immediate()), "t", "v")
		b := open(t, faulty, immediate())
		hour := func(when string, atMost int) {
			t.Helper()
			before := faulty.Count("", "")
			time.Sleep(time.Hour)
			if n := faulty.Count("", "") - before; n > atMost {
				t.Errorf("%d requests in an hour %s, want at most %d", n, when, atMost)
			}
		}
		hour("after recovery", 0)
		for range 100 {
			mustAppend(t, b, "t", "v")
		}
		hour("after traffic", 0)
		ctx, cancel := context.WithCancel(t.Context())
		done := fetching(ctx, b, "t", 101, 24*time.Hour)
		hour("with a reader that waits", 3600/10+10)
		cancel()
		<-done
		hour("after the reader left", 0)
		faulty.SetDown(true)
		_ = b.Status()
		hour("while the store is down", 0)
		faulty.SetDown(false)
	})
}

func TestReadTimeOutDeliversWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		writer := open(t, memory, immediate())
		// Each record is in its own object, and recovery reads none of them.
		for _, v := range []string{"a", "b", "c"} {
			mustAppend(t, writer, "t", large(v, 1<<20))
		}
		b := open(t, faulty, immediate())
		faulty.On(objstore.VerbGet, format.LogKey(3), storetest.Delay(2*time.Second)) // holds up the read of b
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		f, err := b.Fetch(ctx, "t", 0, seb.Earliest, seb.FetchOptions{MaxBytes: 10 << 20})
		if err != nil || len(f.Records) != 1 || f.Next != 1 || string(f.Records[0].Value[:1]) != "a" {
			t.Errorf("read %d records, next is %d, %v; want the first", len(f.Records), f.Next, err)
		}
		f, err = b.Fetch(t.Context(), "t", 0, seb.At(f.Next), seb.FetchOptions{MaxBytes: 10 << 20})
		if err != nil || len(f.Records) != 2 {
			t.Errorf("then %d records, %v", len(f.Records), err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		_, err = b.Fetch(ctx, "t", 0, seb.At(3), seb.FetchOptions{Wait: time.Second})
		wantCode(t, err, seb.CodeCanceled)
	})
}

func TestTopicDeletedWhileAppendsAreQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := open(t, faulty, immediate())
		mustAppend(t, b, "t", "old")
		old, err := b.Topic(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		faulty.On(objstore.VerbCreate, "log/", storetest.Hold(release))
		first, err := b.AppendAsync(t.Context(), "t", values("under way"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := open(t, memory, immediate()).DeleteTopic(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		queued, err := b.AppendAsync(t.Context(), "t", values("queued"))
		if err != nil {
			t.Fatal(err)
		}
		uploaded, err := b.AppendAsync(t.Context(), "t", values(large("uploaded", 5<<20)))
		if err != nil {
			t.Fatal(err)
		}
		close(release) // the deletion takes the slot that the first broker claims
		for _, p := range []*seb.Pending{first, queued, uploaded} {
			_, err := p.Wait(t.Context())
			wantCode(t, err, seb.CodeTopicNotFound)
			wantOutcome(t, err, seb.NotCommitted)
		}
		// A topic created later under the same name shares nothing with the deleted one.
		if at := mustAppend(t, b, "t", "new"); at != 0 {
			t.Errorf("the new topic's first record is at %d", at)
		}
		again := open(t, memory, immediate())
		for _, b := range []*seb.Broker{b, again} {
			wantValues(t, b, "t", "new")
			topic, err := b.Topic(t.Context(), "t")
			if err != nil || topic.ID == old.ID {
				t.Errorf("%+v, %v has the id of the deleted topic", topic, err)
			}
		}
		if used := kit.MemoryInUse(b); used != 0 {
			t.Errorf("%d bytes are still taken", used)
		}
	})
}
