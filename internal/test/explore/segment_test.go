package explore

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// logLife has bounds that are small enough to reach every state quickly.
var logLife = SegmentConfig{Slots: 6, Partitions: 1, Appends: 2, Uploads: 1, Checkpoints: 2, Ticks: 3}

func withLife(change func(*SegmentConfig)) SegmentConfig {
	c := logLife
	change(&c)
	return c
}

var smallLives = map[string]SegmentConfig{
	"core":            logLife,
	"trimmed":         withLife(func(c *SegmentConfig) { c.Trims = 1 }),
	"late":            withLife(func(c *SegmentConfig) { c.Late, c.Appends = true, 1 }),
	"late, a floor":   withLife(func(c *SegmentConfig) { c.Late, c.Floors, c.Appends, c.Uploads, c.Slots = true, 1, 1, 1, 5 }),
	"checkpoints":     withLife(func(c *SegmentConfig) { c.Checkpoints, c.Appends, c.Uploads, c.Slots = 3, 0, 0, 5 }),
	"unread batches":  withLife(func(c *SegmentConfig) { c.Stays = true }),
	"two partitions":  withLife(func(c *SegmentConfig) { c.Partitions = 2 }),
	"pages":           withLife(func(c *SegmentConfig) { c.Keys, c.Forget, c.Appends, c.Ticks = 2, 2, 0, 4 }),
	"late pages":      withLife(func(c *SegmentConfig) { c.Keys, c.Forget, c.Appends, c.Ticks, c.Late = 1, 2, 0, 4, true }),
	"pages, a floor":  withLife(func(c *SegmentConfig) { c.Keys, c.Forget, c.Appends, c.Floors, c.Uploads = 1, 1, 0, 1, 2 }),
	"merged segments": withLife(func(c *SegmentConfig) { c.Uploads, c.Slots, c.Checkpoints, c.Ticks = 3, 6, 0, 0 }),
}

// TestSmallSegments reaches every state within small bounds.
func TestSmallSegments(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of thousands of states, and nothing runs at the same time")
	}
	var sum Counts
	for _, name := range slices.Sorted(maps.Keys(smallLives)) {
		cfg := smallLives[name]
		cfg.StatesMax = 1_000_000 // with more states, the bounds would not be small
		begin := time.Now()
		r := cfg.Explore()
		t.Logf("%s, %.1f s: %v", name, time.Since(begin).Seconds(), r)
		if r.Violated != 0 || !r.Complete {
			t.Errorf("%s: not all of it was reached, or something is wrong", name)
		}
		sum.add(r.Counts)
	}
	allHappened(t, sum[segmentEvents:])
}

// wildSegments returns bounds for random walks.
func wildSegments(seed int) SegmentConfig {
	return SegmentConfig{
		Slots: 20 + seed%30, Partitions: 1 + seed%2, Appends: 4 + seed%8, Trims: seed % 4, Uploads: 3 + seed%6, Checkpoints: 4 + seed%8,
		Ticks: 20, Floors: seed % 4, Keys: seed % 7, Forget: 2 + seed%9, Stays: seed%3 == 0, Late: seed%5 < 3,
	}
}

// TestSegmentWalks reach states that are too far for an exhaustive search.
func TestSegmentWalks(t *testing.T) {
	const steps = 4000
	var sum Counts
	for seed := range *walkCount {
		r := wildSegments(seed).Walk(uint64(seed), steps)
		if r.Violated != 0 {
			t.Fatalf("seed %d: %v", seed, r)
		}
		sum.add(r.Counts)
	}
	t.Logf("%d walks: %v", *walkCount, sum)
	allHappened(t, sum[segmentEvents:])
}

var largeLives = map[string]SegmentConfig{
	"a floor":              withLife(func(c *SegmentConfig) { c.Floors, c.Appends, c.Uploads = 1, 1, 2 }),
	"two uploads":          withLife(func(c *SegmentConfig) { c.Uploads = 2 }),
	"two uploads, trimmed": withLife(func(c *SegmentConfig) { c.Uploads, c.Trims, c.Slots = 2, 1, 8 }),
	"late":                 withLife(func(c *SegmentConfig) { c.Late, c.Uploads, c.Slots = true, 2, 7 }),
	"three appends":        withLife(func(c *SegmentConfig) { c.Appends, c.Uploads, c.Slots, c.Ticks = 3, 2, 9, 6 }),
	"three checkpoints":    withLife(func(c *SegmentConfig) { c.Checkpoints, c.Slots, c.Ticks, c.Trims = 3, 9, 7, 1 }),
	"floors":               withLife(func(c *SegmentConfig) { c.Floors, c.Uploads, c.Slots, c.Late = 2, 2, 8, true }),
	"all": withLife(func(c *SegmentConfig) {
		c.Floors, c.Uploads, c.Slots, c.Late, c.Trims, c.Stays, c.Partitions = 1, 2, 9, true, 1, true, 2
	}),
}

// TestLargeSegments explores up to the number of states in its flag.
func TestLargeSegments(t *testing.T) {
	if *statesMax == 0 {
		t.Skip("it takes minutes: go test ./internal/test/explore -run TestLargeSegments -explore.states=5000000 -timeout 2h -v")
	}
	for _, name := range slices.Sorted(maps.Keys(largeLives)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := largeLives[name]
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

// TestSegmentRuleIsNeeded leaves out one rule after the other, and expects that walks find a violation.
func TestSegmentRuleIsNeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of walks, and nothing runs at the same time")
	}
	const walks, steps = 3000, 1500
	tests := []struct {
		without  SegmentRule
		violated Invariant
	}{
		{NoAge, ReadOK},
		{NewestIsOld, TwoOpen},
		{OwnDead, ReadOK},
		{OwnDead, TwoOpen}, // a page goes to which a checkpoint refers
		{OwnBottom, TwoOpen},
		{OwnBottom, RecoverOK},
		{KeepNothing, RecoverOK},
		{SweepDead, ReadOK},
		{FloorUnsaid, RecoverOK},
		{MixedPair, ReadOK},
		{SeenUnread, TwoOpen},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%v/%v", test.without, test.violated), func(t *testing.T) {
			for seed := range walks {
				cfg := wildSegments(seed)
				cfg.Without, cfg.Only = test.without, []Invariant{test.violated}
				if r := cfg.Walk(uint64(seed), steps); r.Violated != 0 {
					t.Logf("walk %d, %d steps: %s", seed, r.Steps, r.Story[len(r.Story)-1])
					return
				}
			}
			t.Fatalf("no walk violates %v", test.violated)
		})
	}
}
