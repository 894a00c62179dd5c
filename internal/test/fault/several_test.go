package fault_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/meshtest"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

var severalTable = flag.Duration("several.table", 0, "how long, in virtual time, TestSeveralBrokersTable measures each row; 0 skips it")

// severalSigma is the spread of the lognormal time that the store takes.
const severalSigma = 0.4

// several is a load on several brokers. It runs in virtual time.
type several struct {
	brokers   int
	connected bool          // the brokers are connected to each other
	rate      float64       // appends per second, of all brokers together, evenly spread
	linger    time.Duration // 0: commit at once
	store     time.Duration // median of the time that the store takes for a request
	span      time.Duration // how long the load is measured
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
			opts.Address = fmt.Sprint(i)
			brokers = append(brokers, open(t, store, opts))
		}
		if x.connected {
			connectAll(brokers)
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

// connectAll lets each broker connect to the others. The address of a broker is its index.
func connectAll(brokers []*seb.Broker) {
	for _, b := range brokers {
		b.Peers().Open(seb.PeerOptions{Dial: func(_ context.Context, _ seb.SessionID, address string) (seb.PeerConn, error) {
			i, err := strconv.Atoi(address)
			if err != nil {
				return nil, err
			}
			near, far := meshtest.NewPipe(100)
			go brokers[i].Peers().Serve(far, b.Session())
			return near, nil
		}})
	}
}

// dollars returns what the requests cost in a month at S3's prices.
func (r severalResult) dollars() float64 { return (5*r.puts + 0.4*r.gets) * 30 * 24 * 3600 / 1e6 }

// Connected brokers cost as much as one, and their appends hardly take longer.
func TestConnectedBrokersAreLikeOne(t *testing.T) {
	for _, linger := range []time.Duration{0, 250 * time.Millisecond} {
		x := several{brokers: 1, connected: true, rate: 400, linger: linger, store: 30 * time.Millisecond, span: 20 * time.Second}
		one := x.run(t)
		for _, x.brokers = range []int{2, 8, 32} {
			r := x.run(t)
			for _, p := range []struct {
				percentile int
				most       float64
			}{{50, 1.25}, {99, 1.5}} {
				if got, of := r.percentile(p.percentile), one.percentile(p.percentile); float64(got) > p.most*float64(of) {
					t.Errorf("%d brokers, linger %v: p%d %v, and of one broker %v", x.brokers, linger, p.percentile, got, of)
				}
			}
			if r.puts > 1.1*one.puts || r.refused > r.puts/100 || r.gets > 1 {
				t.Errorf("%d brokers, linger %v: %.1f PUTs a second, of which %.1f are refused, and %.1f GETs; one broker sends %.1f PUTs", x.brokers, linger, r.puts, r.refused, r.gets, one.puts)
			}
		}
	}
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
	for _, connected := range []bool{true, false} {
		for _, linger := range []time.Duration{0, 250 * time.Millisecond} {
			for _, store := range []time.Duration{10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond} {
				for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
					if !connected && n > 32 {
						continue // with a store of 100 ms, appends would wait for longer than their time limit
					}
					r := several{brokers: n, connected: connected, rate: 400, linger: linger, store: store, span: *severalTable}.run(t)
					fmt.Println(strings.Join([]string{
						"", fmt.Sprint(connected), fmt.Sprint(store), fmt.Sprint(linger), fmt.Sprint(n),
						fmt.Sprint(r.percentile(50).Milliseconds()), fmt.Sprint(r.percentile(99).Milliseconds()),
						fmt.Sprintf("%.1f (%.1f)", r.puts, r.refused), fmt.Sprintf("%.1f", r.gets), fmt.Sprintf("$%.0f", r.dollars()), "",
					}, " | "))
				}
			}
		}
	}
}
