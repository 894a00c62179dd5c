package fault_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestStoreDownFor30Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		opts := immediate()
		opts.AppendTimeout = 10 * time.Second
		b := open(t, faulty, opts)
		mustAppend(t, b, "t", "before")
		faulty.SetDown(true)
		outage := time.Now()

		appendLater := func(v string, after time.Duration) <-chan error {
			done := make(chan error, 1)
			go func() {
				time.Sleep(after)
				_, err := b.Append(t.Context(), "t", values(v))
				done <- err
			}()
			return done
		}
		inFlight := appendLater("in flight", 0)                // its PUT was sent
		gathering := appendLater("gathering", time.Second)     // waits behind the first, but not long enough
		patient := appendLater("patient", 25*time.Second)      // waits long enough
		late := appendLater("after the outage", 2*time.Minute) // succeeds after the outage

		err := <-inFlight
		wantCode(t, err, seb.CodeStoreUnavailable)
		wantOutcome(t, err, seb.Unknown)
		if took := time.Since(outage); took != opts.AppendTimeout {
			t.Errorf("answered after %v", took)
		}
		err = <-gathering
		wantCode(t, err, seb.CodeStoreUnavailable)
		wantOutcome(t, err, seb.NotCommitted)
		if b.Status().Err == nil {
			t.Error("the broker calls itself ready")
		}
		if _, err := b.Fetch(t.Context(), "t", 0, seb.Earliest, seb.FetchOptions{}); err != nil {
			t.Errorf("a read of records in memory: %v", err)
		}
		time.Sleep(30*time.Second - time.Since(outage))
		faulty.SetDown(false)
		if err := <-patient; err != nil {
			t.Errorf("the caller that waited long enough got %v", err)
		}
		if took := time.Since(outage); took > 36*time.Second {
			t.Errorf("the broker went on after %v", took)
		}
		if err := <-late; err != nil {
			t.Error(err)
		}
		if err := b.Status().Err; err != nil {
			t.Errorf("the broker is not ready again: %v", err)
		}
		wantValues(t, b, "t", "before", "in flight", "patient", "after the outage")
		wantValues(t, open(t, memory, immediate()), "t", "before", "in flight", "patient", "after the outage")
	})
}

func TestAppendToUnknownTopicWhileTheStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := open(t, faulty, immediate())
		mustCreateTopic(t, b, "t", 1)
		faulty.SetDown(true)
		_, err := b.Append(t.Context(), "unknown", values("v"))
		wantCode(t, err, seb.CodeStoreUnavailable)
		wantOutcome(t, err, seb.NotCommitted)
		_, err = b.Fetch(t.Context(), "unknown", 0, seb.Earliest, seb.FetchOptions{})
		wantCode(t, err, seb.CodeStoreUnavailable) // not that the topic does not exist
		faulty.SetDown(false)
		mustAppend(t, b, "unknown", "w")
		wantValues(t, open(t, memory, immediate()), "unknown", "w")
	})
}

func TestCanceledCallerLeavesItsNeighboursBatchWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b := open(t, memory, kit.InVirtualTime(seb.Options{Batching: seb.Timed(time.Second, 1<<20)}))
		mustCreateTopic(t, b, "t", 2)
		const callers = 9
		var (
			wg      sync.WaitGroup
			cancels [callers]context.CancelFunc
			got     [callers]seb.Appended
			errs    [callers]error
		)
		for i := range callers {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cancels[i] = cancel
			wg.Go(func() {
				// Partition 1 gets only one record, from the middle caller.
				rs, ps := values(fmt.Sprint(i, ".0"), fmt.Sprint(i, ".1"), fmt.Sprint(i, ".2")), []int32{0, 0, 0}
				if i == 4 {
					ps[1] = 1
				}
				got[i], errs[i] = b.Append(ctx, "t", rs, seb.ToPartitions(ps))
			})
			synctest.Wait()
		}
		gone := map[int]bool{0: true, 4: true, 8: true} // first, middle, last
		for i := range gone {
			cancels[i]()
		}
		synctest.Wait()
		before := len(keys(t, memory, format.LogPrefix))
		wg.Wait()
		var want []string
		for i := range callers {
			if gone[i] {
				wantCode(t, errs[i], seb.CodeCanceled)
				wantOutcome(t, errs[i], seb.NotCommitted)
				continue
			}
			wantRange := []seb.Range{{Offset: seb.Offset(len(want)), Count: 3}}
			if diff := cmp.Diff(wantRange, got[i].Ranges); diff != "" || errs[i] != nil {
				t.Errorf("caller %d: %v %s", i, errs[i], diff)
			}
			want = append(want, fmt.Sprint(i, ".0"), fmt.Sprint(i, ".1"), fmt.Sprint(i, ".2"))
		}
		if n := len(keys(t, memory, format.LogPrefix)); n != before+1 {
			t.Errorf("%d commits, want one for all", n-before)
		}
		again := open(t, memory, immediate())
		wantValues(t, again, "t", want...)
		if got := readAll(t, again, "t", 1); len(got) != 0 {
			t.Errorf("partition 1 holds %q", got)
		}
		if used := kit.MemoryInUse(b); used != 0 {
			t.Errorf("%d bytes are still taken", used)
		}
	})
}

func TestWithdrawnAppendNeverReportsSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), kit.InVirtualTime(seb.Options{Batching: seb.Timed(time.Second, 1<<20)}))
		mustCreateTopic(t, b, "t", 1)
		p, err := b.AppendAsync(t.Context(), "t", values("withdrawn"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = p.Wait(ctx)
		wantOutcome(t, err, seb.NotCommitted)
		<-p.Done()
		_, err = p.Wait(t.Context())
		wantCode(t, err, seb.CodeCanceled)
		wantOutcome(t, err, seb.NotCommitted)
		wantValues(t, b, "t")
	})
}

func TestSlowStoreTakesAppendsInFewCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		faulty.On(objstore.VerbCreate, "", storetest.Delay(2*time.Second))
		b := open(t, faulty, immediate())
		mustCreateTopic(t, b, "t", 1)
		var wg sync.WaitGroup
		begun := time.Now()
		for i := range 200 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				sent := time.Now()
				if _, err := b.Append(t.Context(), "t", values(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
				if took := time.Since(sent); took > 4*time.Second {
					t.Errorf("append %d took %v, more than the commit under way and its own", i, took)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begun); took > 6*time.Second {
			t.Errorf("200 appends within 2 s took %v", took)
		}
		if n := len(keys(t, memory, format.LogPrefix)); n > 5 {
			t.Errorf("%d commits", n)
		}
		if n := len(readAll(t, b, "t", 0)); n != 200 {
			t.Errorf("%d records", n)
		}
	})
}

func TestThrottlingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := open(t, faulty, immediate())
		mustCreateTopic(t, b, "t", 1)
		// Requests of all verbs are refused in the first 3 of every 10 seconds.
		heal := faulty.On("", "", func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
			if time.Now().Second()%10 < 3 {
				return storetest.Fail(ctx, r, next)
			}
			return next(ctx, r)
		})
		var want []string
		for i := range 300 {
			want = append(want, fmt.Sprint(i))
			if at := mustAppend(t, b, "t", want[i]); at != seb.Offset(i) {
				t.Fatalf("record %d at %d", i, at)
			}
			time.Sleep(150 * time.Millisecond)
		}
		heal()
		wantValues(t, open(t, memory, immediate()), "t", want...)
	})
}

// The bubble fails the test if a goroutine outlives the broker.
func TestShutdownWhileTheStoreHangsEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		opts := immediate()
		opts.CheckpointCommits = 2
		mustAppend(t, open(t, memory, immediate()), "t", large("not read by recovery", 1<<20))
		b := openOnly(t, faulty, opts)
		never := make(chan struct{})
		faulty.On("", "", storetest.Hold(never))
		outcome := map[string]chan error{}
		begin := func(name string, f func() error) {
			done := make(chan error, 1)
			outcome[name] = done
			go func() { done <- f() }()
			synctest.Wait()
		}
		appending := func(v string) func() error {
			return func() error { _, err := b.Append(t.Context(), "t", values(v)); return err }
		}
		begin("sent", appending("sent"))
		begin("gathering", appending("gathering"))
		begin("upload", appending(large("upload", 5<<20)))
		begin("read", func() error {
			_, err := b.Fetch(t.Context(), "t", 0, seb.Earliest, seb.FetchOptions{})
			return err
		})
		begin("wait", func() error {
			_, err := b.Fetch(t.Context(), "t", 0, seb.At(1), seb.FetchOptions{Wait: time.Hour})
			return err
		})
		begin("look", func() error { _, err := b.Topic(t.Context(), "unknown"); return err })
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		// The final checkpoint can't be written to the hanging store. Shutdown may return an error
		// for that.
		_ = b.Shutdown(ctx)
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("shutdown took %v", took)
		}
		for name, done := range outcome {
			synctest.Wait()
			select {
			case err := <-done:
				if err == nil {
					t.Errorf("%s: no error", name)
				}
				if name == "sent" {
					wantOutcome(t, err, seb.Unknown)
				}
				if name == "gathering" {
					wantOutcome(t, err, seb.NotCommitted)
				}
			default:
				t.Errorf("%s still waits", name)
			}
		}
		select {
		case <-b.Stopped():
		default:
			t.Error("the broker has not stopped")
		}
		_, err := b.Append(t.Context(), "t", values("v"))
		wantCode(t, err, seb.CodeBrokerClosed)
		wantOutcome(t, err, seb.NotCommitted)
	})
}

func TestShutdownCommitsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b := openOnly(t, storetest.Slow(memory, 50*time.Millisecond), kit.InVirtualTime(seb.Options{Batching: seb.Timed(time.Hour, 1<<30)}))
		mustCreateTopic(t, b, "t", 1)
		p, err := b.AppendAsync(t.Context(), "t", values("held"))
		if err != nil {
			t.Fatal(err)
		}
		q, err := b.AppendAsync(t.Context(), "t", values(large("held too", 5<<20)))
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("closing took %v", took)
		}
		for _, p := range []*seb.Pending{p, q} {
			if _, err := p.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := b.Close(); err != nil {
			t.Errorf("closing twice: %v", err)
		}
		wantValues(t, open(t, memory, immediate()), "t", "held", large("held too", 5<<20))
	})
}

// A directory whose fsync failed never answers again. A broker that keeps asking would look alive, and
// its callers would wait.
func TestStoreThatStopsEndsTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := openOnly(t, faulty, immediate())
		mustAppend(t, b, "t", "v")
		faulty.On("", "", func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
			return storetest.Answer{}, objstore.ErrStopped
		})
		_, err := b.Append(t.Context(), "t", values("w"))
		if o := seb.OutcomeOf(err); o != seb.Unknown { // its Create was sent
			t.Errorf("%v has outcome %q", err, o)
		}
		<-b.Stopped()
		wantCode(t, b.Status().Err, seb.CodeBrokerStopped)
		_, err = b.Append(t.Context(), "t", values("x"))
		wantCode(t, err, seb.CodeBrokerStopped)
		wantOutcome(t, err, seb.NotCommitted)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A load balancer sends no requests to a broker that is not ready. So the broker must notice without
// requests that the store is back.
func TestBrokerWithoutRequestsLearnsThatTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := open(t, faulty, immediate())
		faulty.SetDown(true)
		if _, err := b.Topic(t.Context(), "t"); err == nil || b.Status().Err == nil {
			t.Fatalf("%v, %+v", err, b.Status())
		}
		time.Sleep(time.Hour)
		if b.Status().Err == nil {
			t.Error("ready while the store is down")
		}
		faulty.SetDown(false)
		time.Sleep(20 * time.Second)
		if err := b.Status().Err; err != nil {
			t.Error(err)
		}
		before := faulty.Count("", "")
		time.Sleep(time.Hour)
		if n := faulty.Count("", "") - before; n != 0 {
			t.Errorf("%d requests in an idle hour after that", n)
		}
	})
}

// The syncs before an append is begun are part of its time, and not only the wait for the commit.
func TestAppendTimeoutIncludesSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		opts := immediate()
		opts.AppendTimeout = 2 * time.Second
		b := open(t, faulty, opts)
		mustCreateTopic(t, b, "t", 1)
		undo := faulty.On(objstore.VerbGet, "", func(ctx context.Context, _ storetest.Request, _ storetest.Next) (storetest.Answer, error) {
			<-ctx.Done()
			return storetest.Answer{}, ctx.Err()
		})
		part := seb.CommitAppend{Topic: "t", Records: values("v"), Options: []seb.AppendOption{seb.ToPartition(1)}}
		for name, write := range map[string]func() error{
			"append": func() error { _, err := b.Append(t.Context(), "t", part.Records, part.Options...); return err },
			"commit": func() error {
				_, err := b.Commit(t.Context(), seb.Commit{Appends: []seb.CommitAppend{part}})
				return err
			},
			"topic":    func() error { _, _, err := b.CreateTopic(t.Context(), "u", seb.TopicOptions{}); return err },
			"consumer": func() error { _, _, err := b.Consumer("t", "c").Create(t.Context()); return err },
		} {
			start := time.Now()
			err := write()
			if took := time.Since(start); took != opts.AppendTimeout {
				t.Errorf("%s: it took %v", name, took)
			}
			wantCode(t, err, seb.CodeStoreUnavailable)
			wantOutcome(t, err, seb.NotCommitted)
		}
		undo()
		time.Sleep(time.Minute)
		mustAppend(t, b, "t", "w")
		wantValues(t, open(t, memory, immediate()), "t", "w")
	})
}
