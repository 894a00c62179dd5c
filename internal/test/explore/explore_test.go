package explore

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
)

var (
	statesMax = flag.Int("explore.states", 0, "explore the large bounds up to so many states each, 0 = not at all")
	walkCount = flag.Int("explore.walks", 500, "random walks")
)

// calm has bounds that are small enough to reach every state quickly.
var calm = Config{Brokers: 2, Slots: 2, Payloads: 2, Delay: 1, Times: 2, Keep: 1, Janitor: true}

// stormy adds the faults of brokers and readers to the bounds.
func stormy(c Config) Config {
	c.Crashes, c.Syncs, c.Renewals = true, true, true
	return c
}

func with(c Config, change func(*Config)) Config {
	change(&c)
	return c
}

// one is calm with a single payload, so that all faults together can be explored.
var one = stormy(with(calm, func(c *Config) { c.Payloads, c.Times = 1, 3 }))

// lossy makes the bounds those of a store that breaks its promise, with the invariants that then still
// hold.
func lossy(c *Config) {
	c.Losses, c.Only = 1, []Invariant{LossIsLoud, Contiguity}
}

var small = map[string]Config{
	"core":        calm,
	"one payload": one,
	"everything, one payload": with(one, func(c *Config) {
		c.Split, c.Relists, c.Abandons, c.Undated, c.Slow, c.Times = true, true, true, true, true, 2
	}),
	"late replies, one payload":     with(one, func(c *Config) { c.Delay, c.Margin, c.Replies = 2, 1, true }),
	"sent checkpoints, one payload": with(one, func(c *Config) { c.Janitor = false }),
	"clocks disagree, one payload":  with(one, func(c *Config) { c.Delay, c.Margin, c.Skew, c.Times = 3, 2, 1, 5 }),
	"live data":                     with(calm, func(c *Config) { c.Live = true }),
	"sweeps":                        stormy(with(calm, func(c *Config) { c.Data, c.Sweeps, c.Times = true, true, 1 })),
	"data objects, live data":       with(calm, func(c *Config) { c.Data, c.Live = true, true }),
	"data objects, one payload":     with(one, func(c *Config) { c.Data, c.Times = true, 2 }),
	"losses":                        with(calm, func(c *Config) { lossy(c); c.Crashes, c.Times = true, 1 }),
	"losses, one payload":           with(one, func(c *Config) { lossy(c); c.Times = 2 }),
	"by wire":                       with(calm, func(c *Config) { c.Wire, c.Slow = true, true }),
	"by wire, one payload":          with(one, func(c *Config) { c.Wire, c.Slow, c.Times = true, true, 2 }),
	"aged checkpoints":              with(calm, func(c *Config) { c.Aged = true }),
	"pages":                         with(calm, func(c *Config) { c.Pages, c.Slow = true, true }),
	"pages, losses":                 with(one, func(c *Config) { lossy(c); c.Pages, c.Times = true, 2 }),
}

// TestSmallBounds reaches every state within small bounds.
func TestSmallBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("millions of states, and nothing runs at the same time")
	}
	var (
		mu       sync.Mutex
		explored int
		sum      Counts
	)
	t.Cleanup(func() {
		if explored == len(small) { // -run may have selected only some
			allHappened(t, sum[:queueEvents])
		}
	})
	for name, cfg := range small {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.StatesMax = 3_000_000 // with more states, the bounds would not be small
			r := Explore(cfg)
			t.Log(r)
			mu.Lock()
			explored++
			sum.add(r.Counts)
			mu.Unlock()
			if r.Violated != 0 || !r.Complete {
				t.Fail()
			}
		})
	}
}

var large = map[string]Config{
	"core":                      stormy(calm),
	"two ticks more":            stormy(with(calm, func(c *Config) { c.Delay, c.Times = 2, 4 })),
	"three slots":               stormy(with(calm, func(c *Config) { c.Slots, c.Times = 3, 3 })),
	"three brokers":             stormy(with(calm, func(c *Config) { c.Brokers, c.Slots, c.Times = 3, 3, 3 })),
	"sent checkpoints":          stormy(with(calm, func(c *Config) { c.Janitor, c.Times = false, 3 })),
	"live data":                 stormy(with(calm, func(c *Config) { c.Live, c.Times = true, 3 })),
	"data objects":              stormy(with(calm, func(c *Config) { c.Data, c.Sweeps = true, true })),
	"data objects, live data":   stormy(with(calm, func(c *Config) { c.Data, c.Sweeps, c.Live = true, true, true })),
	"data objects, three slots": with(calm, func(c *Config) { c.Data, c.Sweeps, c.Slots, c.Payloads = true, true, 3, 3 }),
	"data objects, calm":        with(calm, func(c *Config) { c.Data, c.Sweeps = true, true }),
	"losses":                    stormy(with(calm, lossy)),
	"core, three slots":         with(calm, func(c *Config) { c.Slots, c.Payloads = 3, 3 }),
	"clocks disagree":           stormy(with(calm, func(c *Config) { c.Delay, c.Margin, c.Skew, c.Times = 3, 2, 1, 5 })),
	"late replies":              stormy(with(calm, func(c *Config) { c.Delay, c.Margin, c.Replies, c.Times = 2, 1, true, 3 })),
	"by wire":                   stormy(with(calm, func(c *Config) { c.Wire, c.Slow = true, true })),
	"by wire, three slots":      with(calm, func(c *Config) { c.Wire, c.Slow, c.Slots, c.Payloads = true, true, 3, 3 }),
	"everything": stormy(with(calm, func(c *Config) {
		c.Split, c.Relists, c.Abandons, c.Undated, c.Slow, c.Times = true, true, true, true, true, 3
	})),
}

// TestLarge explores up to the number of states in its flag.
func TestLarge(t *testing.T) {
	if *statesMax == 0 {
		t.Skip("it takes minutes: go test ./internal/test/explore -run TestLarge -explore.states=5000000 -timeout 2h -v")
	}
	for _, name := range slices.Sorted(maps.Keys(large)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := large[name]
			cfg.StatesMax = *statesMax
			begin := time.Now()
			r := Explore(cfg)
			t.Logf("%.0f s: %v", time.Since(begin).Seconds(), r)
			if r.Violated != 0 {
				t.Fail()
			}
		})
	}
}

// wild returns bounds for random walks with all faults.
func wild(seed int) Config {
	cfg := stormy(Config{
		Brokers: 3, Slots: 5, Payloads: 12, Delay: 2, Times: 40, Keep: 1 + seed%2, Aged: seed%4 == 3, Pages: seed%6 > 2,
		Split: true, Relists: true, Abandons: true, Undated: true, Slow: seed%3 == 0, Live: seed%5 == 0,
		Data: seed%7 > 2, Inline: true, Sweeps: seed%7 > 3, Wire: seed%3 < 2,
	})
	if seed%5 == 3 {
		lossy(&cfg)
		cfg.Losses = 2
	}
	if seed%2 == 1 {
		cfg.Delay, cfg.Margin, cfg.Skew, cfg.Replies = 5, 2, 1, true
	}
	return cfg
}

// TestWalks reach states that are too far for an exhaustive search.
func TestWalks(t *testing.T) {
	const steps = 3000
	var sum Counts
	for seed := range *walkCount {
		r := Walk(wild(seed), uint64(seed), steps)
		if r.Violated != 0 {
			t.Fatalf("seed %d: %v", seed, r)
		}
		sum.add(r.Counts)
	}
	t.Logf("%d walks: %v", *walkCount, sum)
	allHappened(t, sum[:queueEvents])
}

func allHappened(t *testing.T, counts []int) {
	t.Helper()
	for i, n := range counts {
		if n == 0 {
			t.Errorf("event %d of %d never happened, so that nothing is shown about it", i, len(counts))
		}
	}
}

// TestRuleIsNeeded leaves out one rule after the other, and expects a violation.
func TestRuleIsNeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("millions of states, and nothing runs at the same time")
	}
	tests := []struct {
		without  Rule
		violated Invariant
		change   func(*Config)
	}{
		{NoLease, SlotAgreement, nil},
		{NoLease, AckDurable, nil},
		{NoLease, MissOK, nil},
		{NoLease, LossIsLoud, func(c *Config) { c.Slots = 3 }},
		{OffByOne, SlotAgreement, nil},
		{SendTime, AckDurable, nil},
		{NoDelay, FloorSafe, nil},
		{NoDelay, SlotAgreement, nil},
		{NoDelay, AckDurable, nil},
		{UploadTime, FloorSafe, func(c *Config) { c.Janitor = false }},
		{UploadTime, SlotAgreement, func(c *Config) { c.Janitor, c.Renewals = false, true }},
		{DeleteNewest, RecoverOK, nil},
		{DeleteNewest, AckDurable, nil},
		{LoadOlder, SlotAgreement, func(c *Config) { c.Slots, c.Payloads = 3, 3 }},
		{MoveOn, AtMostOnce, nil},
		{NoNonce, AtMostOnce, nil},
		{LateReply, AckDurable, func(c *Config) { c.Replies = true }},
		{OwnState, ReadOK, func(c *Config) { c.Live = true }},
		{AlarmOrder, LossIsLoud, func(c *Config) { c.Syncs, c.Delay, c.Margin = true, 4, 3 }},
		{OwnState, ReadOK, func(c *Config) { c.Live, c.Data = true, true }},
		{ClaimEarly, AckDurable, func(c *Config) { c.Data = true }},
		{IgnoreFloor, AckDurable, func(c *Config) { c.Data, c.Sweeps = true, true }},
		{SweepUnsaid, AckDurable, func(c *Config) { c.Data = true }},
		{SweepUnsaid, ReadOK, func(c *Config) { c.Data = true }},
		{BlindStart, LossIsLoud, func(c *Config) { c.Losses = 1 }},
		{NoRollback, LossIsLoud, func(c *Config) { c.Losses = 1 }},
		{NoPrev, Contiguity, func(c *Config) { c.Losses = 1 }},
		{AnyReply, AckDurable, func(c *Config) { c.Replies, c.Abandons = true, true }},
		{TellEarly, SlotAgreement, func(c *Config) { c.Wire = true }},
		// The clocks differ by as much as the margin. The margin must be twice the difference.
		{None, SlotAgreement, func(c *Config) { c.Delay, c.Margin, c.Skew, c.Times = 3, 1, 1, 5 }},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%v/%v", test.without, test.violated), func(t *testing.T) {
			cfg := calm
			cfg.Without, cfg.Only, cfg.StatesMax = test.without, []Invariant{test.violated}, 1_000_000
			if test.change != nil {
				test.change(&cfg)
			}
			r := Explore(cfg)
			if r.Violated != test.violated {
				t.Fatalf("no story that violates %v: %v", test.violated, r)
			}
			if end := r.Story[len(r.Story)-1]; strings.Contains(end, commitlog.ErrClock.Error()) {
				t.Fatalf("the story ends with an alarm about the store's clock: %s", end)
			}
			t.Logf("%d states, a story of %d steps:\n  %s", r.States, r.Depth, strings.Join(r.Story, "\n  "))
		})
	}
}
