package engine

import (
	"context"
	"sync/atomic"

	"github.com/simple-event-broker/seb/metric"
	"github.com/simple-event-broker/seb/objstore"
)

// Cause is what a request to the store is for.
type Cause string

// The causes.
const (
	CauseStart      Cause = "start"      // opening the log: the test of the store, and reading up to the end
	CauseAppend     Cause = "append"     // commits and data objects
	CauseFollow     Cause = "follow"     // reading the log: commits of other brokers, where the log ends, and whether all of it is there
	CauseRead       Cause = "read"       // records for readers
	CauseCheckpoint Cause = "checkpoint" // writing checkpoints
	CauseCompact    Cause = "compact"    // moving records into segments
	CauseDelete     Cause = "delete"     // deleting dead objects
)

// Causes has all causes, in the order in which they are shown.
var Causes = []Cause{CauseStart, CauseAppend, CauseFollow, CauseRead, CauseCheckpoint, CauseCompact, CauseDelete}

// StoreUse counts requests to a store, failed ones too, and the bytes of their bodies.
type StoreUse struct {
	Creates, Gets, Lists, Deletes int64
	SentBytes, ReceivedBytes      int64 // bodies of creates; bodies of gets
}

// StoreUse returns the use of the store since [New].
func (e *Engine) StoreUse() (sum StoreUse) {
	for _, cause := range Causes {
		u := e.use[cause].load()
		sum.Creates, sum.Gets, sum.Lists, sum.Deletes = sum.Creates+u.Creates, sum.Gets+u.Gets, sum.Lists+u.Lists, sum.Deletes+u.Deletes
		sum.SentBytes, sum.ReceivedBytes = sum.SentBytes+u.SentBytes, sum.ReceivedBytes+u.ReceivedBytes
	}
	return sum
}

// StoreUseFor returns the part of StoreUse that has a cause.
func (e *Engine) StoreUseFor(cause Cause) StoreUse { return e.use[cause].load() }

// openStores gives each part of the engine a handle on the store, by which its requests are counted.
func (e *Engine) openStores(store objstore.Store) {
	e.stores, e.use = map[Cause]objstore.Store{}, map[Cause]*storeUse{}
	for _, cause := range Causes {
		use := new(storeUse)
		e.use[cause] = use
		e.stores[cause] = objstore.Observe(store, func(op objstore.Op) { e.observe(op, use) })
	}
	e.store = e.stores[CauseStart]
	e.logStore = objstore.Observe(store, func(op objstore.Op) { e.observe(op, e.use[e.causeInLog(op)]) })
}

// causeInLog returns what a request of package commitlog is for.
func (e *Engine) causeInLog(op objstore.Op) Cause {
	switch {
	case op.Verb == objstore.VerbCreate:
		return CauseAppend
	case e.opened.Load():
		return CauseFollow
	default:
		return CauseStart
	}
}

type causeKey struct{}

// withCause returns a context in which reads of records have another cause than usual.
func withCause(ctx context.Context, cause Cause) context.Context {
	return context.WithValue(ctx, causeKey{}, cause)
}

// readStore returns the store for a read of records.
func (e *Engine) readStore(ctx context.Context) objstore.Store {
	if cause, ok := ctx.Value(causeKey{}).(Cause); ok {
		return e.stores[cause]
	}
	return e.stores[CauseRead]
}

// causeFamily returns the requests by cause.
func (e *Engine) causeFamily() metric.Family {
	f := metric.Family{
		Name: "seb_store_requests_by_cause_total", Kind: metric.Counter, Labels: []string{"cause", "verb"},
		Help: "Requests to the object store, by what they were for: start (of the broker), append, follow (the log), read (records), checkpoint, compact, delete.",
	}
	for _, cause := range Causes {
		u := e.use[cause].load()
		for _, x := range []struct {
			verb objstore.Verb
			n    int64
		}{{objstore.VerbCreate, u.Creates}, {objstore.VerbGet, u.Gets}, {objstore.VerbList, u.Lists}, {objstore.VerbDelete, u.Deletes}} {
			f.Add(float64(x.n), string(cause), string(x.verb))
		}
	}
	return f
}

// storeUse counts the requests of one cause.
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
