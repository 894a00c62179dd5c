package sim

import (
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
)

// smallSegments makes brokers of this process compact small logs: simulated logs are small.
var smallSegments = sync.OnceFunc(func() {
	engine.Compaction = engine.Bounds{
		SegmentBytes: 4 << 10, BatchBytes: 600, Rows: 50, Group: 2, Large: 1 << 20, TailAge: 2 * time.Second,
		RaiseAfter: 10 * time.Second, RaiseCommits: 5,
	}
})
