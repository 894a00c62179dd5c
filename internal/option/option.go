// Package option has what the options of appends and commits say. Brokers read them, and so does the client
// for brokers in other processes.
package option

import (
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// Append is what the options of an append say.
type Append struct {
	Partitions  []int32
	Partition   int32         // -1 without ToPartition
	IfOffset    format.Offset // -1: no condition
	Conditional bool          // IfOffset was given, even with an invalid offset
	Key         string
	Keyed       bool
	Delay       time.Duration // how long queues wait before they hand the records out
	Due         time.Time     // when queues may hand the records out; zero without DeliverAt
}

// OfAppend returns what opts say together. If two of them contradict each other, the later one counts.
func OfAppend[F ~func(*Append)](opts []F) Append {
	o := Append{Partition: -1, IfOffset: -1}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Commit is what the options of a consumer's commit say.
type Commit struct {
	Version string // "" means any
}

// OfCommit returns what opts say together.
func OfCommit[F ~func(*Commit)](opts []F) (o Commit) {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}
