package seb_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestLargeCheckpointsTakeAShareOfTheTime(t *testing.T) {
	for name, c := range map[string]struct {
		opts     seb.Options
		min, max int
	}{
		"small": {immediate(), 50, 61},
		"large": {seb.WithLargeCheckpoints(immediate()), 6, 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				faulty.On(objstore.VerbCreate, format.CheckpointPrefix, storetest.Delay(time.Second))
				c.opts.CheckpointCommits = 5
				b := open(t, faulty, c.opts)
				for range 600 { // a minute
					mustAppend(t, b, "t", "v")
					time.Sleep(100 * time.Millisecond)
				}
				made := keys(t, memory, format.CheckpointPrefix)
				if n := len(made); n < c.min || n > c.max {
					t.Errorf("%d checkpoints that took a second each in a minute, want %d to %d", n, c.min, c.max)
				}
			})
		})
	}
}
