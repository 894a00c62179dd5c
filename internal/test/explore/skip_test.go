package explore

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestSkippedStepsChangeNothing checks what the explorer relies on: after a skipped step, it goes on
// with the world as if the step had not been tried.
func TestSkippedStepsChangeNothing(t *testing.T) {
	for seed := range uint64(20) {
		cfg := wild(int(seed))
		cfg.Payloads = 3 // so that payloads run out
		from := newWorld(&cfg)
		from.choices = &choices{rand: rand.New(rand.NewPCG(seed, 2))}
		from.trace = &trace{telling: true}
		var before, after keys
		skipped := 0
		for range 3000 {
			w := *from
			key := before.of(&w)
			*from = w
			w.step()
			switch {
			case w.untouched:
				skipped++
				if !bytes.Equal(key, after.of(&w)) {
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
