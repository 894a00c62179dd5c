package seb

import (
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/state"
)

// StoreUse counts requests to a store, failed ones too, and the bytes of their bodies.
type StoreUse struct {
	Creates, Gets, Lists, Deletes int64
	// SentBytes are those of Creates, ReceivedBytes those of Gets.
	SentBytes, ReceivedBytes int64
}

// Usage counts a broker's requests to its store, and what its log keeps there.
type Usage struct {
	// Since is when [Open] began.
	Since time.Time
	// Store counts all requests since then.
	Store StoreUse
	// Opening is the part of Store that Open took: the cost of a start, however long
	// the broker runs after it.
	Opening StoreUse
	// Serving is the time since Open was done, in which all other requests were sent.
	Serving time.Duration

	// StoredObjects are the objects of the store that hold records, whichever broker
	// wrote them, and StoredBytes their sizes. They include objects without
	// remaining records until these are deleted. They exclude the few other objects: commits
	// without records, checkpoints, the bucket's seb.json.
	StoredObjects, StoredBytes int64
}

// Usage returns the broker's requests to its store, and what its log keeps there
// as far as the broker knows. It sends no request.
func (b *Broker) Usage() Usage {
	var objects, bytes int64
	b.engine.View(func(s *state.State) { objects, bytes = int64(s.Objects()), s.ObjectBytes() })
	return Usage{
		Since: b.start.began, Store: StoreUse(b.engine.StoreUse()), Opening: StoreUse(b.start.use), Serving: time.Since(b.start.done),
		StoredObjects: objects, StoredBytes: bytes,
	}
}

// start is what Open took.
type start struct {
	began, done time.Time
	use         engine.StoreUse // until done
}
