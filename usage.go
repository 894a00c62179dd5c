package seb

import (
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
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
	u := Usage{Since: b.began, Store: b.use.load(), Opening: b.opening, Serving: time.Since(b.opened)}
	b.view(func(s *state.State) { u.StoredObjects, u.StoredBytes = int64(s.Objects()), s.ObjectBytes() })
	return u
}

// storeUse is a running count.
type storeUse struct {
	creates, gets, lists, deletes atomic.Int64
	sent, received                atomic.Int64
}

func (u *storeUse) add(op objstore.Op) {
	switch op.Verb {
	case objstore.VerbCreate:
		u.creates.Add(1)
		u.sent.Add(op.Bytes)
	case objstore.VerbGet:
		u.gets.Add(1)
		u.received.Add(op.Bytes)
	case objstore.VerbList:
		u.lists.Add(1)
	case objstore.VerbDelete:
		u.deletes.Add(1)
	}
}

func (u *storeUse) load() StoreUse {
	return StoreUse{
		Creates: u.creates.Load(), Gets: u.gets.Load(), Lists: u.lists.Load(), Deletes: u.deletes.Load(),
		SentBytes: u.sent.Load(), ReceivedBytes: u.received.Load(),
	}
}
