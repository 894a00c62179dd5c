package fault_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/meshtest"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// A broker that is closed while it commits for all names the broker that goes on. So appends through the other brokers usually take
// no longer than three commits: the one that is under way, the last one of the broker that ends, and their own.
func TestClosedBrokerNamesWhoGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const answer = 30 * time.Millisecond
		var (
			memory  = objstore.NewMemory()
			mu      sync.Mutex
			brokers []*seb.Broker // by their addresses
			wins    []int
		)
		start := func() *seb.Broker {
			mu.Lock()
			i := len(brokers)
			brokers, wins = append(brokers, nil), append(wins, 0)
			mu.Unlock()
			store := storetest.NewFaulty(memory)
			store.On("", "", func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
				time.Sleep(answer)
				a, err := next(ctx, q)
				if q.Verb == objstore.VerbCreate && err == nil {
					mu.Lock()
					defer mu.Unlock()
					wins[i]++
				}
				return a, err
			})
			opts := immediate()
			opts.Address = fmt.Sprint(i)
			b := open(t, store, opts)
			mu.Lock()
			brokers[i] = b
			mu.Unlock()
			if i == 0 {
				mustCreateTopic(t, b, "t", 1)
			}
			mustAppend(t, b, "t", "v") // it writes a commit itself, so that the others know its address
			b.Peers().Open(seb.PeerOptions{Dial: func(_ context.Context, _ seb.SessionID, address string) (seb.PeerConn, error) {
				to, err := strconv.Atoi(address)
				if err != nil {
					return nil, err
				}
				near, far := meshtest.NewPipe(100)
				mu.Lock()
				defer mu.Unlock()
				go brokers[to].Peers().Serve(far, b.Session())
				return near, nil
			}})
			return b
		}
		for range 3 {
			start()
		}
		var (
			wg      sync.WaitGroup
			stopped = map[int]bool{}
			ends    = make(chan struct{})
			longest time.Duration // of the appends through brokers that go on
		)
		load := func(i int) {
			for range 4 {
				wg.Go(func() {
					for {
						select {
						case <-ends:
							return
						default:
						}
						mu.Lock()
						b, stop := brokers[i], stopped[i]
						mu.Unlock()
						if stop {
							return
						}
						begun := time.Now()
						_, err := b.Append(t.Context(), "t", values("v"))
						took := time.Since(begun)
						mu.Lock()
						switch {
						case stopped[i]: // it may refuse
						case err != nil:
							t.Error(err)
						default:
							longest = max(longest, took)
						}
						mu.Unlock()
					}
				})
			}
		}
		for i := range 3 {
			load(i)
		}
		var pauses []time.Duration
		for range 20 {
			time.Sleep(5 * time.Second)
			mu.Lock()
			before := slices.Clone(wins)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			winner, most := 0, 0
			for i := range wins {
				if n := wins[i] - before[i]; n > most {
					winner, most = i, n
				}
			}
			stopped[winner], longest = true, 0
			b := brokers[winner]
			mu.Unlock()
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second)
			mu.Lock()
			pauses = append(pauses, longest)
			mu.Unlock()
			start()
			mu.Lock()
			load(len(brokers) - 1)
			mu.Unlock()
		}
		close(ends)
		wg.Wait()
		slices.Sort(pauses)
		t.Log(pauses)
		if median := pauses[len(pauses)/2]; median > 3*answer {
			t.Errorf("in half of the cases, an append took %v or more", median)
		}
	})
}
