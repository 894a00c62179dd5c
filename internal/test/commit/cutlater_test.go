package commit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// laterCut is what a waiting Cut has returned, and after how long.
type laterCut struct {
	seb.Cut
	err  error
	took time.Duration
}

// cutLater begins a Cut of topic a that waits for a commit after a time.
func cutLater(ctx context.Context, b *seb.Broker, later time.Time) <-chan laterCut {
	done := make(chan laterCut, 1)
	begun := time.Now()
	go func() {
		cut, err := b.Cut(ctx, []string{"a"}, seb.CutOptions{Later: later})
		done <- laterCut{cut, err, time.Since(begun)}
	}()
	synctest.Wait()
	return done
}

func stillWaits(t *testing.T, done <-chan laterCut) {
	t.Helper()
	select {
	case x := <-done:
		t.Fatalf("Cut returned %+v", x)
	default:
	}
}

func TestCutWaitsForALaterCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustAppend(t, b, "a", "x")
		first := mustCut(t, b, "a")
		if x := <-cutLater(t.Context(), b, first.LogTime.Add(-time.Microsecond)); x.err != nil || x.took != 0 || !x.LogTime.Equal(first.LogTime) {
			t.Errorf("a cut after an earlier time: %+v", x)
		}
		next, far := make([]<-chan laterCut, 100), cutLater(t.Context(), b, first.LogTime.Add(time.Hour))
		for i := range next {
			next[i] = cutLater(t.Context(), b, first.LogTime)
		}
		time.Sleep(time.Minute)
		mustAppend(t, b, "other", "y")
		for _, done := range next {
			if x := <-done; x.err != nil || x.took != time.Minute || !x.LogTime.After(first.LogTime) || x.Topics[0].Ends[0] != 1 {
				t.Fatalf("%+v", x)
			}
		}
		time.Sleep(58 * time.Minute)
		mustAppend(t, b, "a", "z")
		synctest.Wait()
		stillWaits(t, far)
		time.Sleep(time.Minute + time.Second)
		mustAppend(t, b, "a", "z")
		if x := <-far; x.err != nil || x.took != time.Hour+time.Second || x.Topics[0].Ends[0] != 3 || x.LogTime.Sub(first.LogTime) < time.Hour {
			t.Errorf("%+v", x)
		}
	})
}

func TestCutThatWaitsEnds(t *testing.T) {
	for name, test := range map[string]struct {
		act  func(t *testing.T, b *seb.Broker, cancel func())
		want seb.Code
	}{
		"with the topic": {func(t *testing.T, b *seb.Broker, _ func()) {
			if err := b.DeleteTopic(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}, seb.CodeTopicNotFound},
		"with its context": {func(_ *testing.T, _ *seb.Broker, cancel func()) { cancel() }, seb.CodeCanceled},
		"with the broker": {func(t *testing.T, b *seb.Broker, _ func()) {
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}, seb.CodeBrokerClosed},
		"with a broker that is killed": {func(t *testing.T, b *seb.Broker, _ func()) { kit.Kill(t, b) }, seb.CodeBrokerClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := kit.OpenOnly(t, objstore.NewMemory(), immediate())
				defer b.Close() // some tests have closed it
				mustAppend(t, b, "a", "x")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := cutLater(ctx, b, mustCut(t, b, "a").LogTime)
				time.Sleep(time.Minute)
				stillWaits(t, done)
				test.act(t, b, cancel)
				if x := <-done; seb.CodeOf(x.err) != test.want || x.took != time.Minute || x.Topics != nil {
					t.Errorf("%+v", x)
				}
				if x := <-cutLater(t.Context(), b, time.Unix(0, 0)); test.want != seb.CodeCanceled && seb.CodeOf(x.err) != test.want {
					t.Errorf("a later cut: %+v", x)
				}
			})
		})
	}
}

// An idle log with one broker: the wait causes no request, however long it lasts. The store's time is an estimate then, whose age
// grows.
func TestCutThatWaitsCausesNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		b := open(t, store, immediate())
		mustAppend(t, b, "a", "x")
		cut := mustCut(t, b, "a")
		if cut.StoreTimeAge != 0 || time.Until(cut.StoreTime).Abs() > time.Second {
			t.Errorf("right after a commit: %+v", cut)
		}
		time.Sleep(2 * time.Hour) // until the jobs of a log that has just become idle are done
		before := store.Count("", "")
		old := mustCutLater(t, b, time.Unix(0, 0))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		done := cutLater(ctx, b, cut.LogTime)
		if x := <-done; seb.CodeOf(x.err) != seb.CodeCanceled || x.took != 3*time.Hour {
			t.Errorf("%+v", x)
		}
		now := mustCutLater(t, b, time.Unix(0, 0))
		if n := store.Count("", "") - before; n != 0 {
			t.Errorf("%d requests to the store", n)
		}
		if now.StoreTimeAge-old.StoreTimeAge != 3*time.Hour || time.Until(now.StoreTime).Abs() > time.Second {
			t.Errorf("%v old, then %v old: %v at %v", old.StoreTimeAge, now.StoreTimeAge, now.StoreTime, time.Now())
		}
		if cut := mustCut(t, b, "a"); cut.StoreTimeAge != 0 {
			t.Errorf("after a sync: %v", cut.StoreTimeAge)
		}
	})
}

func mustCutLater(t *testing.T, b *seb.Broker, later time.Time) seb.Cut {
	t.Helper()
	x := <-cutLater(t.Context(), b, later)
	if x.err != nil {
		t.Fatal(x.err)
	}
	return x.Cut
}

// Brokers that are not connected: the wait learns of commits of the other one as a reader that follows does, as long as
// the other one has committed lately.
func TestCutWaitsForACommitOfAnUnconnectedBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		store := storetest.NewFaulty(memory)
		other := open(t, memory, immediate())
		mustAppend(t, other, "a", "x")
		b := open(t, store, immediate()) // the log has a commit of a moment ago, which is not its own
		for range 3 {
			done := cutLater(t.Context(), b, mustCut(t, b, "a").LogTime)
			time.Sleep(time.Minute)
			mustAppend(t, other, "a", "y")
			if x := <-done; x.err != nil || x.took > time.Minute+10*time.Second {
				t.Errorf("%+v", x)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := cutLater(ctx, b, mustCut(t, b, "a").LogTime)
		before := store.Count("", "")
		time.Sleep(10 * time.Minute)
		if n := store.Count("", "") - before; n < 30 || n > 120 {
			t.Errorf("%d requests in the first 10 minutes", n)
		}
		time.Sleep(2 * time.Hour)
		before = store.Count("", "")
		time.Sleep(time.Hour)
		if n := store.Count("", "") - before; n != 0 {
			t.Errorf("%d requests long after the last commit of the other broker", n)
		}
		stillWaits(t, done)
		cancel()
		<-done
	})
}
