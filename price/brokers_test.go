package price

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// Two brokers that are not connected, with appends at any time, make the commits that the budget allows. When one of them has closed,
// the other one makes as many.
func TestBrokersShareABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		perSecond := 1.0
		now := time.Now().UTC()
		left := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC).Sub(now)
		o := BudgetOptions{Prices: amazon, Linger: 10 * time.Millisecond, MaxLinger: 5 * time.Second, Bytes: 4 << 20}
		o.Dollars = perSecond * left.Seconds() * amazon.ClassA / 1e6 / (1 - elseShare)
		var brokers [2]*seb.Broker
		for i := range brokers {
			opts := kit.InVirtualTime(seb.Options{Batching: NewBudget(o)})
			b, err := seb.Open(t.Context(), storetest.Slow(store, 20*time.Millisecond), opts)
			if err != nil {
				t.Fatal(err)
			}
			brokers[i] = b
		}
		// puts returns how many commits the brokers make in an hour, and how long an append takes at most.
		puts := func(brokers ...*seb.Broker) (n int, longest time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			before := brokers[0].Status().Applied
			var all sync.WaitGroup
			var mu sync.Mutex
			for _, b := range brokers {
				for range 2 {
					all.Go(func() {
						for ctx.Err() == nil {
							begun := time.Now()
							if _, err := b.Append(t.Context(), "t", []seb.Record{{Value: []byte("v")}}); err != nil {
								t.Error(err)
								return
							}
							mu.Lock()
							longest = max(longest, time.Since(begun))
							mu.Unlock()
							time.Sleep(time.Millisecond)
						}
					})
				}
			}
			all.Wait()
			return int(brokers[0].Status().Applied - before), longest
		}
		for what, of := range map[string][]*seb.Broker{"both": brokers[:], "one": brokers[:1]} {
			n, longest := puts(of...)
			t.Logf("%s: %d commits, an append takes %v at most", what, n, longest)
			if want := 3600 * perSecond; float64(n) < 0.95*want || float64(n) > 1.05*want+60 { // at their start, they have a minute's
				t.Errorf("%s: %d commits in an hour, want %.0f", what, n, want)
			}
			if longest > 6*time.Second {
				t.Errorf("%s: an append took %v", what, longest)
			}
		}
		var spent float64
		for _, use := range brokers[0].Usage().Month {
			spent += amazon.OfRequests(use)
		}
		if want := amazon.OfRequests(seb.StoreUse{Creates: int64(store.Count(objstore.VerbCreate, ""))}); spent < 0.97*want || spent > 1.3*want {
			t.Errorf("the log says that $%v are spent; the creates alone cost $%v", spent, want)
		}
		for _, b := range brokers {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
