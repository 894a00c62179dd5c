package sim

import (
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
)

// smallSegments makes brokers of this process compact small logs: simulated logs are small.
var smallSegments = sync.OnceFunc(func() {
	engine.Compaction = engine.Bounds{
		SegmentBytes: 4 << 10, BatchBytes: 600, Rows: 50, Group: 2, Large: 1 << 20, PageBytes: 200, TailAge: 2 * time.Second,
		RaiseAfter: 10 * time.Second, RaiseCommits: 5, // so some commits are below the level
		RetainMin: 2 * time.Second, RetainMax: 20 * time.Second, RetainGrace: 10 * time.Second,
	}
})

// BelowSegments makes the logs of this process begin below the level of segments, as those of earlier versions do. Simulated brokers
// raise the level on the way.
func BelowSegments() { engine.Compaction.RaiseNew = false }
