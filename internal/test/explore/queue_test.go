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

// work has bounds that are small enough to reach every state of a queue quickly.
var work = QueueConfig{Brokers: 2, Records: 2, Attempts: 2, Takeovers: 2, Late: true}

func withWork(c QueueConfig, change func(*QueueConfig)) QueueConfig {
	change(&c)
	return c
}

var smallQueues = map[string]QueueConfig{
	"work":                        work,
	"at most once":                withWork(work, func(c *QueueConfig) { c.Attempts, c.Takeovers = 1, 3 }),
	"three attempts":              withWork(work, func(c *QueueConfig) { c.Attempts = 3 }),
	"redriven, heard at once":     withWork(work, func(c *QueueConfig) { c.Redrives, c.Late = 1, false }),
	"one record, three takeovers": withWork(work, func(c *QueueConfig) { c.Records, c.Takeovers, c.Redrives = 1, 3, 2 }),
	"leases":                      withWork(work, func(c *QueueConfig) { c.Records, c.Takeovers, c.Redrives, c.Leases = 1, 3, 1, true }),
	"one record, three brokers":   withWork(work, func(c *QueueConfig) { c.Brokers, c.Records, c.Takeovers, c.Redrives = 3, 1, 3, 1 }),
}

// TestSmallQueues reaches every state within small bounds.
func TestSmallQueues(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of thousands of states, and nothing runs at the same time")
	}
	var sum Counts
	for _, name := range slices.Sorted(maps.Keys(smallQueues)) {
		cfg := smallQueues[name]
		cfg.StatesMax = 2_500_000 // with more states, the bounds would not be small
		r := cfg.Explore()
		t.Logf("%s: %v", name, r)
		if r.Violated != 0 || !r.Complete {
			t.Errorf("%s: not all of it was reached, or something is wrong", name)
		}
		sum.add(r.Counts)
	}
	allHappened(t, sum[queueEvents:handoverEvents])
}

var largeQueues = map[string]QueueConfig{
	"redriven":                 withWork(work, func(c *QueueConfig) { c.Redrives = 1 }),
	"three takeovers":          withWork(work, func(c *QueueConfig) { c.Takeovers = 3 }),
	"three takeovers, redrive": withWork(work, func(c *QueueConfig) { c.Takeovers, c.Redrives = 3, 1 }),
	"three brokers":            withWork(work, func(c *QueueConfig) { c.Brokers, c.Takeovers = 3, 3 }),
	"three records":            withWork(work, func(c *QueueConfig) { c.Records = 3 }),
	"leases":                   withWork(work, func(c *QueueConfig) { c.Leases = true }),
	"one record":               withWork(work, func(c *QueueConfig) { c.Brokers, c.Records, c.Attempts, c.Takeovers, c.Redrives = 3, 1, 3, 4, 1 }),
}

// TestLargeQueues explores up to the number of states in its flag.
func TestLargeQueues(t *testing.T) {
	if *statesMax == 0 {
		t.Skip("it takes minutes: go test ./internal/test/explore -run TestLargeQueues -explore.states=5000000 -timeout 2h -v")
	}
	for _, name := range slices.Sorted(maps.Keys(largeQueues)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := largeQueues[name]
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

// wildQueue returns bounds for random walks.
func wildQueue(seed int) QueueConfig {
	return QueueConfig{Brokers: 3, Records: 3, Attempts: 1 + seed%3, Takeovers: 3 + seed%9, Redrives: 1, Late: seed%4 > 0, Leases: seed%5 > 2}
}

// TestQueueWalks reach states that are too far for an exhaustive search.
func TestQueueWalks(t *testing.T) {
	const steps = 1500
	var sum Counts
	for seed := range *walkCount {
		r := wildQueue(seed).Walk(uint64(seed), steps)
		if r.Violated != 0 {
			t.Fatalf("seed %d: %v", seed, r)
		}
		sum.add(r.Counts)
	}
	t.Logf("%d walks: %v", *walkCount, sum)
	allHappened(t, sum[queueEvents:handoverEvents])
}

// TestQueueRuleIsNeeded leaves out one rule after the other, and expects a violation.
func TestQueueRuleIsNeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of thousands of states, and nothing runs at the same time")
	}
	tests := []struct {
		without  QueueRule
		violated Invariant
		change   func(*QueueConfig)
	}{
		{WindowAfter, OwnNumber, nil},
		{AttemptAfter, OwnNumber, nil},
		{AttemptAfter, LastCounts, nil},
		{AttemptAhead, OneEach, func(c *QueueConfig) { c.Attempts = 3 }},
		{NoAttemptCheck, LastCounts, nil},
		{NoUncertainRange, OwnNumber, nil},
		{NoEpoch, OwnNumber, nil},
		{NoEpoch, Fenced, nil},
		{NoEpochAtDeadLetter, Fenced, nil},
		{NoEpochAtDeadLetter, LeaseKept, func(c *QueueConfig) { c.Leases = true }},
		{ExtendLate, LeaseKept, func(c *QueueConfig) { c.Leases = true }},
		{SilentRelease, OwnNumber, nil},
		{WorkOnAfterRelease, OwnNumber, nil},
		{OwnerByName, OwnNumber, nil},
		{TakeUp, OwnNumber, nil},
		{OwnOnly, NeverLost, nil},
		{NoMost, AtMost, nil},
		{RefuseUnsynced, LastCounts, nil},
		{DoneAgain, DoneOnce, nil},
		{CountAnew, LastCounts, func(c *QueueConfig) { c.Redrives = 1 }},
		{AnswerRedriven, LastCounts, func(c *QueueConfig) { c.Redrives = 1 }},
		{LimitBelow, OwnNumber, nil},
		{LimitUnheeded, OwnNumber, nil},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%v/%v", test.without, test.violated), func(t *testing.T) {
			cfg := work
			cfg.Without, cfg.Only, cfg.StatesMax = test.without, []Invariant{test.violated}, 500_000
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

// TestSkippedQueueStepsChangeNothing is like TestSkippedStepsChangeNothing, for queues.
func TestSkippedQueueStepsChangeNothing(t *testing.T) {
	for seed := range 20 {
		cfg := wildQueue(seed)
		keys := newQueueKeys(&cfg)
		from := keys.begin()
		from.choices = &choices{rand: rand.New(rand.NewPCG(uint64(seed), 2))}
		from.trace = &trace{telling: true}
		skipped := 0
		for range 1500 {
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
