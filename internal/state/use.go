package state

import "github.com/simple-event-broker/seb/internal/format"

// Use says what kind of things an entry adds to the state. The state has a memory limit, and a
// broker refuses entries of some uses earlier than entries of other uses.
type Use int

// The uses. A broker refuses entries of a use when the state has filled a certain share of the
// memory limit: the later a use is in this list, the larger is the share.
const (
	UseRecords   Use = iota // appends, topics, queues, push targets
	UseConsumers            // consumers and their positions
	UseWork                 // deliveries of queues, and answers about them
	UseOwners               // owners of queues, and their dispatch limits
	UseKeys                 // API keys
	UseUpkeep               // compaction and deletion, which make room, and the little that the state keeps about spending
)

// String returns the use in words, for messages.
func (u Use) String() string {
	return [...]string{"appends, topics and queues", "consumers", "answers of workers", "owners of queues", "API keys", "compaction and deletion"}[u]
}

// UseOf returns the use of an entry.
func UseOf(entry format.Entry) Use {
	switch entry.(type) {
	case *format.ConsumerCreated, *format.PositionsMoved:
		return UseConsumers
	case *format.RecordsDone, *format.RecordPutBack, *format.RecordsAttempted, *format.RecordsRedriven, *format.QueuePurged:
		return UseWork
	case *format.KeyCreated:
		return UseKeys
	case *format.QueueOwned, *format.SessionNamed, *format.WriterMark, *format.BundleMark, *format.WindowMoved, *format.QueueReleased:
		return UseOwners
	case *format.LevelRaised, *format.SegmentAdded, *format.PageStored, *format.CheckpointSeen, *format.Collected, *format.DataFloor, *format.DelaySet, *format.Held, *format.Spent:
		return UseUpkeep
	default:
		return UseRecords
	}
}
