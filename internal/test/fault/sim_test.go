package fault_test

import (
	"flag"
	"reflect"
	"runtime"
	"sync"
	"testing"

	"github.com/simple-event-broker/seb/internal/test/sim"
)

var (
	simSeeds = flag.Uint64("sim.seeds", 200, "how many seeds are simulated")
	simFirst = flag.Uint64("sim.first", 1, "the first of them")
	simS3    = flag.Bool("sim.s3", false, "let all of them use the S3 client, instead of one in 16")
	simStory = flag.Bool("sim.story", false, "tell the story of every seed, also if all is well")
)

// TestSimulatedSeeds runs whole brokers, servers and clients with every fault that can occur. To run a
// failed seed again:
//
//	go test ./internal/test/fault -run TestSimulatedSeeds -sim.first=SEED -sim.seeds=1 -sim.story
func TestSimulatedSeeds(t *testing.T) {
	count := *simSeeds
	if testing.Short() {
		count = min(count, 20)
	}
	var (
		mu   sync.Mutex
		next = *simFirst
		sum  sim.Counts
	)
	take := func() (seed uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next-1 < *simFirst+count
	}
	t.Run("seeds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("worker", func(t *testing.T) {
				t.Parallel()
				for seed, ok := take(); ok && !t.Failed(); seed, ok = take() {
					c := simulate(t, seed)
					mu.Lock()
					sum.Add(c)
					mu.Unlock()
					if done := seed - *simFirst + 1; done%1000 == 0 {
						t.Logf("%d of %d seeds", done, count)
					}
				}
			})
		}
	})
	t.Logf("%d seeds: %+v", count, sum)
	for i, v := 0, reflect.ValueOf(sum); i < v.NumField(); i++ {
		if count >= 200 && v.Field(i).Int() == 0 {
			t.Errorf("%s is 0: the seeds show nothing about it", v.Type().Field(i).Name)
		}
	}
}

func simulate(t *testing.T, seed uint64) sim.Counts {
	r := sim.Run(t, sim.Config{Seed: seed, S3: *simS3})
	if len(r.Violations) > 0 || *simStory {
		t.Logf("seed %d:\n%s", seed, r.Story())
	}
	for _, v := range r.Violations {
		t.Errorf("seed %d: %s", seed, v)
	}
	return r.Counts
}
