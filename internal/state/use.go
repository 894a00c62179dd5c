package state

import "github.com/simple-event-broker/seb/internal/format"

// Use is what an entry takes memory of the state for. Some uses may fill the state further than
// others, in this order.
type Use int

// The uses, by how far they may fill the state.
const (
	UseRecords   Use = iota // appends, topics, queues, push targets
	UseConsumers            // consumers and their positions
	UseWork                 // answers about records that a queue has handed out
	UseKeys                 // API keys
	UseOwners               // owners of queues
)

// String returns the use in a message.
func (u Use) String() string {
	return [...]string{"appends, topics and queues", "consumers", "answers of workers", "API keys", "owners of queues"}[u]
}

// UseOf returns what an entry takes memory for.
func UseOf(entry format.Entry) Use {
	switch entry.(type) {
	case *format.ConsumerCreated, *format.PositionsMoved:
		return UseConsumers
	case *format.RecordsDone, *format.RecordPutBack, *format.RecordsAttempted, *format.RecordsRedriven, *format.QueuePurged:
		return UseWork
	case *format.KeyCreated:
		return UseKeys
	case *format.QueueOwned, *format.SessionNamed, *format.WindowMoved, *format.QueueReleased:
		return UseOwners
	default:
		return UseRecords
	}
}
