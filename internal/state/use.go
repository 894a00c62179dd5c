package state

import "github.com/simple-event-broker/seb/internal/format"

// Use says what kind of things an entry adds to the state. A broker lets some uses take more of
// the state's memory limit than others.
type Use int

// The uses, in ascending order of the share of the state's memory limit up to which a broker
// accepts them.
const (
	UseRecords   Use = iota // appends, topics, queues, push targets
	UseConsumers            // consumers and their positions
	UseWork                 // deliveries of queues, and answers about them
	UseKeys                 // API keys
	UseOwners               // owners of queues
)

// String returns the use as words for a message.
func (u Use) String() string {
	return [...]string{"appends, topics and queues", "consumers", "answers of workers", "API keys", "owners of queues"}[u]
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
	case *format.QueueOwned, *format.SessionNamed, *format.WindowMoved, *format.QueueReleased:
		return UseOwners
	default:
		return UseRecords
	}
}
