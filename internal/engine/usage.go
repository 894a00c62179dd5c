package engine

import (
	"sync/atomic"

	"github.com/simple-event-broker/seb/objstore"
)

// StoreUse counts requests to a store, failed ones too, and the bytes of their bodies.
type StoreUse struct {
	Creates, Gets, Lists, Deletes int64
	SentBytes, ReceivedBytes      int64 // bodies of creates; bodies of gets
}

// StoreUse returns the use of the store since [New].
func (e *Engine) StoreUse() StoreUse { return e.use.load() }

// storeUse counts the requests of an engine.
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
