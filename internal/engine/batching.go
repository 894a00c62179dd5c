package engine

import (
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// Fill says how full the open batch set is.
type Fill struct {
	Requests int
	Bytes    int64         // memory of the requests: an upper bound of their encoded records, and overhead
	Age      time.Duration // since the first of the requests came

	Now   time.Time       // by the log's time
	Puts  int64           // how many objects commits have created since the engine was opened, whoever made them
	Spent format.StoreUse // what all brokers have asked of the store in the calendar month of Now, as far as the log says so
}

// Batching decides when the open batch set becomes a commit. Its methods must not block.
type Batching interface {
	// Wait returns how much longer the open batch set stays open; 0 or less closes it now. The
	// engine commits a closed set as soon as no other commit is under way.
	Wait(open Fill) time.Duration
	// Admits tells whether one more request may join the open batch set, which has at least one request.
	Admits(open Fill) bool
}
