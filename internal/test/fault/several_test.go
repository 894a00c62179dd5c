package fault_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

var severalTable = flag.Duration("several.table", 0, "how long, in virtual time, TestSeveralBrokersTable measures each row; 0 skips it")

// severalSigma is the spread of the lognormal time that the store takes.
const severalSigma = 0.4

// several is a load on brokers that can't tell each other of their requests. It runs in virtual time.
type several struct {
	brokers int
	rate    float64       // appends per second, of all brokers together, evenly spread
	linger  time.Duration // 0: commit at once
	store   time.Duration // median of the time that the store takes for a request
	span    time.Duration // how long the load is measured
}

// severalResult is what a load measures.
type severalResult struct {
	latencies           []time.Duration // of the appends, ascending
	puts, refused, gets float64         // requests per second, of all brokers together
	leastWins, mostWins int             // slots that a broker won, at least and at most
}

func (r severalResult) percentile(p int) time.Duration { return r.latencies[len(r.latencies)*p/100] }

// warmUp is how long a load runs before it is measured: each broker has to win a slot before it has turns.
const warmUp = 10 * time.Second

func (x several) run(t *testing.T) (r severalResult) {
	synctest.Test(t, func(t *testing.T) {
		var (
			memory  = objstore.NewMemory()
			wins    = make([]int, x.brokers)
			brokers []*seb.Broker
			mu      sync.Mutex // guards rng and r
			rng     = newRand(1)
			begin   = time.Now().Add(time.Hour) // of what is measured, until the load begins
			end     = begin
			wg      sync.WaitGroup
		)
		opts := immediate()
		if x.linger > 0 {
			opts.Batching = seb.Timed(x.linger, 4<<20)
		}
		slow := func(count func(error)) storetest.Fault {
			return func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
				mu.Lock()
				d := time.Duration(float64(x.store) * math.Exp(severalSigma*rng.NormFloat64()))
				mu.Unlock()
				time.Sleep(d / 2)
				a, err := next(ctx, q)
				time.Sleep(d / 2)
				if now := time.Now(); !now.Before(begin) && now.Before(end) {
					mu.Lock()
					defer mu.Unlock()
					count(err)
				}
				return a, err
			}
		}
		for i := range x.brokers {
			store := storetest.NewFaulty(memory)
			store.On(objstore.VerbCreate, "", slow(func(err error) {
				r.puts++
				if errors.Is(err, objstore.ErrExists) {
					r.refused++
				} else {
					wins[i]++
				}
			}))
			store.On(objstore.VerbGet, "", slow(func(error) { r.gets++ }))
			brokers = append(brokers, open(t, store, opts))
		}
		mustCreateTopic(t, brokers[0], "t", 1)
		for _, b := range brokers { // so that all know of all
			mustAppend(t, b, "t", "v")
		}
		begin = time.Now().Add(warmUp)
		end = begin.Add(x.span)
		for i := 0; time.Now().Before(end); i++ {
			wg.Go(func() {
				begun := time.Now()
				if _, err := brokers[i%x.brokers].Append(t.Context(), "t", values("v")); err != nil {
					t.Error(err)
				}
				if !begun.Before(begin) {
					mu.Lock()
					defer mu.Unlock()
					r.latencies = append(r.latencies, time.Since(begun))
				}
			})
			time.Sleep(time.Duration(float64(time.Second) / x.rate))
		}
		wg.Wait()
		slices.Sort(r.latencies)
		for _, n := range []*float64{&r.puts, &r.refused, &r.gets} {
			*n /= x.span.Seconds()
		}
		r.leastWins, r.mostWins = slices.Min(wins), slices.Max(wins)
	})
	return r
}

// Without an order, a broker that lost a race would need three requests for the next one, and the winner one. So a few
// appends would wait for seconds.
func TestBrokersWithoutConnectionsTakeTurns(t *testing.T) {
	storeP99 := time.Duration(float64(30*time.Millisecond) * math.Exp(2.33*severalSigma))
	for _, n := range []int{1, 2, 4, 8} {
		x := several{brokers: n, rate: 400, store: 30 * time.Millisecond, span: 20 * time.Second}
		r := x.run(t)
		if p99, most := r.percentile(99), time.Duration(n+2)*storeP99; p99 > most {
			t.Errorf("%d brokers: p99 %v, want at most %v", n, p99, most)
		}
		if r.refused > r.puts/100 {
			t.Errorf("%d brokers: %.1f of %.1f PUTs a second are refused", n, r.refused, r.puts)
		}
		if r.leastWins < r.mostWins/2 {
			t.Errorf("%d brokers: one won %d slots, another %d", n, r.leastWins, r.mostWins)
		}
	}
}

// The table of docs/growth.md.
func TestSeveralBrokersTable(t *testing.T) {
	if *severalTable == 0 {
		t.Skip("-several.table is not set")
	}
	for _, linger := range []time.Duration{0, 250 * time.Millisecond} {
		for _, store := range []time.Duration{10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond} {
			for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
				r := several{brokers: n, rate: 400, linger: linger, store: store, span: *severalTable}.run(t)
				fmt.Println(strings.Join([]string{
					"", fmt.Sprint(store), fmt.Sprint(linger), fmt.Sprint(n),
					fmt.Sprint(r.percentile(50).Milliseconds()), fmt.Sprint(r.percentile(99).Milliseconds()),
					fmt.Sprintf("%.0f (%.1f)", r.puts, r.refused), fmt.Sprintf("%.0f", r.gets), "",
				}, " | "))
			}
		}
	}
}
