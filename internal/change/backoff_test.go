package change_test

import (
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
)

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	b := change.Backoff{Min: time.Second, Max: 10 * time.Second}
	for i, most := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second} {
		waits := map[time.Duration]bool{}
		for range 100 {
			d := b.After(i + 1)
			if waits[d] = true; d < most/2 || d > most {
				t.Fatalf("after %d failures a record waits for %v, want %v to %v", i+1, d, most/2, most)
			}
		}
		if len(waits) < 2 {
			t.Errorf("after %d failures all records wait for the same time, and come back at once", i+1)
		}
	}
	if d := b.After(1000); d < 5*time.Second || d > 10*time.Second {
		t.Errorf("after 1000 failures a record waits for %v", d)
	}
}

func TestBackoffMayBeZero(t *testing.T) {
	for failures := 1; failures < 5; failures++ {
		if d := (change.Backoff{}).After(failures); d != 0 {
			t.Errorf("after %d failures a record waits for %v", failures, d)
		}
	}
}
