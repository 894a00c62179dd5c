package explore

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// hands has bounds that are small enough to reach every state quickly.
var hands = HandoverConfig{Brokers: 2, Slots: 2, Bundles: 2}

func withHands(c HandoverConfig, change func(*HandoverConfig)) HandoverConfig {
	change(&c)
	return c
}

var smallHandovers = map[string]HandoverConfig{
	"core":                    hands,
	"three slots":             withHands(hands, func(c *HandoverConfig) { c.Slots = 3 }),
	"any winner":              withHands(hands, func(c *HandoverConfig) { c.AnyWinner = true }),
	"any winner, three slots": withHands(hands, func(c *HandoverConfig) { c.AnyWinner, c.Slots = true, 3 }),
	"crashes":                 withHands(hands, func(c *HandoverConfig) { c.Crashes = 1 }),
	"no bundle at first":      withHands(hands, func(c *HandoverConfig) { c.Direct, c.Loads, c.AnyWinner, c.Slots = true, true, true, 3 }),
	"abandoned claims":        withHands(hands, func(c *HandoverConfig) { c.Abandons = true }),
	"a copy":                  withHands(hands, func(c *HandoverConfig) { c.Double = true }),
	"a copy, one bundle, loads": withHands(hands, func(c *HandoverConfig) {
		c.AnyWinner, c.Double, c.Loads, c.Slots, c.Bundles = true, true, true, 3, 1
	}),
	"conditions":         withHands(hands, func(c *HandoverConfig) { c.AnyWinner, c.Conditions = true, true }),
	"by wire, strangers": withHands(hands, func(c *HandoverConfig) { c.Wire, c.Strangers = true, true }),
	"little memory":      withHands(hands, func(c *HandoverConfig) { c.AnyWinner, c.Slots, c.Remembered = true, 3, 1 }),
	"three brokers, one bundle": withHands(hands, func(c *HandoverConfig) {
		c.AnyWinner, c.Brokers, c.Bundles, c.Loads = true, 3, 1, true
	}),
}

// TestSmallHandover reaches every state within small bounds.
func TestSmallHandover(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of thousands of states, and nothing runs at the same time")
	}
	var sum Counts
	for _, name := range slices.Sorted(maps.Keys(smallHandovers)) {
		cfg := smallHandovers[name]
		cfg.StatesMax = 1_000_000 // with more states, the bounds would not be small
		begin := time.Now()
		r := cfg.Explore()
		t.Logf("%s, %.1f s: %v", name, time.Since(begin).Seconds(), r)
		if r.Violated != 0 || !r.Complete {
			t.Errorf("%s: not all of it was reached, or something is wrong", name)
		}
		sum.add(r.Counts)
	}
	allHappened(t, sum[handoverEvents:segmentEvents])
}

// largest has three slots and three bundles.
var largest = withHands(hands, func(c *HandoverConfig) { c.Slots, c.Bundles, c.AnyWinner = 3, 3, true })

var largeHandovers = map[string]HandoverConfig{
	"winner only":           withHands(largest, func(c *HandoverConfig) { c.AnyWinner = false }),
	"winner only, loads":    withHands(largest, func(c *HandoverConfig) { c.AnyWinner, c.Loads, c.Bundles = false, true, 2 }),
	"any winner":            largest,
	"loads":                 withHands(largest, func(c *HandoverConfig) { c.Loads = true }),
	"crashes, loads":        withHands(largest, func(c *HandoverConfig) { c.Crashes, c.Loads, c.Bundles, c.Abandons = 1, true, 2, true }),
	"a copy":                withHands(largest, func(c *HandoverConfig) { c.Double = true }),
	"a copy, loads":         withHands(largest, func(c *HandoverConfig) { c.Double, c.Loads, c.Bundles = true, true, 2 }),
	"conditions":            withHands(largest, func(c *HandoverConfig) { c.Conditions = true }),
	"three brokers":         withHands(largest, func(c *HandoverConfig) { c.Brokers, c.Bundles = 3, 2 }),
	"three brokers, a copy": withHands(largest, func(c *HandoverConfig) { c.Brokers, c.Double, c.Slots = 3, true, 2 }),
	"no bundle at first":    withHands(largest, func(c *HandoverConfig) { c.Direct, c.Abandons, c.Loads = true, true, true }),
	"little memory":         withHands(largest, func(c *HandoverConfig) { c.Remembered, c.Loads = 1, true }),
	"everything, two brokers": withHands(largest, func(c *HandoverConfig) {
		c.Crashes, c.Loads, c.Double, c.Conditions, c.Wire, c.Strangers, c.Abandons, c.Direct, c.Bundles = 1, true, true, true, true, true, true, true, 2
	}),
	"everything": withHands(largest, func(c *HandoverConfig) {
		c.Brokers, c.Crashes, c.Loads, c.Double, c.Conditions, c.Wire, c.Strangers, c.Abandons, c.Direct = 3, 1, true, true, true, true, true, true, true
	}),
}

// TestLargeHandover explores up to the number of states in its flag.
func TestLargeHandover(t *testing.T) {
	if *statesMax == 0 {
		t.Skip("it takes minutes: go test ./internal/test/explore -run TestLargeHandover -explore.states=5000000 -timeout 2h -v")
	}
	for _, name := range slices.Sorted(maps.Keys(largeHandovers)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := largeHandovers[name]
			cfg.StatesMax = *statesMax
			begin := time.Now()
			r := cfg.Explore()
			t.Logf("%.0f s: %v", time.Since(begin).Seconds(), r)
			if r.Violated != 0 {
				t.Fail()
			}
		})
	}
}

// wildHandover returns bounds for random walks with all faults.
func wildHandover(seed int) HandoverConfig {
	return HandoverConfig{
		Brokers: 2 + seed%2, Slots: handoverSlotsMax, Bundles: bundlesMax, Crashes: seed % 3, Loads: seed%5 > 1, Double: seed%4 > 1,
		Conditions: seed%7 > 2, Wire: true, Strangers: true, AnyWinner: seed%2 == 0, Abandons: seed%3 == 1, Direct: seed%5 > 2, Remembered: seed % 4,
	}
}

// TestHandoverWalks reach states that are too far for an exhaustive search.
func TestHandoverWalks(t *testing.T) {
	const steps = 600
	var sum Counts
	for seed := range *walkCount {
		for again := range 4 { // a walk ends soon: all slots are written
			r := wildHandover(seed).Walk(uint64(4*seed+again), steps)
			if r.Violated != 0 {
				t.Fatalf("seed %d: %v", seed, r)
			}
			sum.add(r.Counts)
		}
	}
	t.Logf("%d walks: %v", 4**walkCount, sum)
	allHappened(t, sum[handoverEvents:segmentEvents])
}

// TestHandoverRuleIsNeeded leaves out one rule after the other, and expects a violation.
func TestHandoverRuleIsNeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of thousands of states, and nothing runs at the same time")
	}
	tests := []struct {
		without  HandoverRule
		violated Invariant
		change   func(*HandoverConfig)
	}{
		{NoLook, OnceAtMost, nil},
		{NoLook, NothingLost, nil},
		{NoCompare, OnceAtMost, nil},
		{NoHorizon, OnceAtMost, func(c *HandoverConfig) { c.Loads = true }},
		{NoHorizon, OnceAtMost, func(c *HandoverConfig) { c.Remembered, c.Slots = 1, 3 }},
		{NoStrike, OnceAtMost, func(c *HandoverConfig) { c.AnyWinner = true }},
		{NoOrder, InOrder, func(c *HandoverConfig) { c.Loads = true }},
		{NewNumber, OnceAtMost, nil},
		{NoIsFinal, RefusedIsTrue, nil},
		{NoVerdict, RefusedIsTrue, func(c *HandoverConfig) { c.Conditions = true }},
		{HandKept, OnceAtMost, func(c *HandoverConfig) { c.Loads, c.AnyWinner = true, true }},
		{HandKept, OnceAtMost, func(c *HandoverConfig) { c.Loads, c.Slots = true, 3 }},
		{SuccessorKept, InOrder, func(c *HandoverConfig) { c.Loads, c.AnyWinner, c.Slots = true, true, 3 }},
		{LoadUnheeded, OnceAtMost, func(c *HandoverConfig) { c.Loads = true }},
		{NoPredecessor, InOrder, func(c *HandoverConfig) { c.Slots = 3 }},
		{PredecessorByNumber, InOrder, func(c *HandoverConfig) { c.Double, c.Bundles, c.Slots = true, 3, 3 }},
		{MarkByNumber, ToldIsTrue, func(c *HandoverConfig) { c.Double = true }},
		{AnyHash, WireIsTrue, func(c *HandoverConfig) { c.Strangers = true }},
		{NotAwaited, WireIsTrue, func(c *HandoverConfig) { c.Strangers = true }},
		{SentUndecided, WireIsTrue, func(c *HandoverConfig) { c.Wire = true }},
		{WordIsEvidence, LossIsLoud, func(c *HandoverConfig) { c.Strangers = true }},
		{SealClaimed, OnceAtMost, func(c *HandoverConfig) { c.Direct = true }},
		{SealClaimed, InOrder, func(c *HandoverConfig) { c.Direct, c.AnyWinner = true, true }},
		{ClaimAfterLoad, InOrder, func(c *HandoverConfig) { c.Direct, c.Loads, c.AnyWinner, c.Slots = true, true, true, 3 }},
		{OwnTwice, OnceAtMost, func(c *HandoverConfig) { c.Double = true }},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%v/%v", test.without, test.violated), func(t *testing.T) {
			cfg := hands
			cfg.Without, cfg.Only, cfg.StatesMax = test.without, []Invariant{test.violated}, 1_000_000
			if test.change != nil {
				test.change(&cfg)
			}
			r := cfg.Explore()
			if r.Violated != test.violated {
				t.Fatalf("no story that violates %v: %v", test.violated, r)
			}
			t.Logf("%d states, a story of %d steps:\n  %s", r.States, r.Depth, strings.Join(r.Story, "\n  "))
		})
	}
}

// TestSkippedHandoverStepsChangeNothing is like TestSkippedStepsChangeNothing, for handing over.
func TestSkippedHandoverStepsChangeNothing(t *testing.T) {
	for seed := range 20 {
		cfg := wildHandover(seed)
		keys := &handoverKeys{cfg: &cfg}
		from := keys.begin()
		from.choices = &choices{rand: rand.New(rand.NewPCG(uint64(seed), 2))}
		from.trace = &trace{telling: true}
		skipped := 0
		for range 600 {
			w := *from
			key := bytes.Clone(keys.of(&w))
			*from = w
			w.step()
			switch {
			case w.untouched:
				skipped++
				if !bytes.Equal(key, keys.of(&w)) {
					t.Fatalf("seed %d: a step that skipped has changed something", seed)
				}
			case !w.undo:
				*from = w
			}
		}
		if skipped == 0 {
			t.Fatal("no step was skipped, so that the walk shows nothing about it")
		}
	}
}
