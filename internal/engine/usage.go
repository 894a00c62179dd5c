package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/metric"
	"github.com/simple-event-broker/seb/objstore"
)

// Causes has all causes, in the order in which they are shown.
var Causes = []format.Cause{
	format.CauseStart, format.CauseAppend, format.CauseFollow, format.CauseRead, format.CauseCheckpoint, format.CauseCompact, format.CauseDelete,
}

// opening is the time and the requests that Open took.
type opening struct {
	began, done time.Time
	use         format.StoreUse
}

// Usage is what an engine, and all brokers of the log, have used of the store.
type Usage struct {
	Since   time.Time
	Store   format.StoreUse
	Opening format.StoreUse
	Causes  map[string]format.StoreUse
	Serving time.Duration

	CacheHits int64

	Month      map[string]format.StoreUse
	MonthSince time.Time
	MonthNow   time.Time

	StoredObjects, StoredBytes, DeadBytes, DeadInSegmentsBytes int64
}

// Usage returns what the engine and all brokers of the log have used of the store. It sends no request.
func (e *Engine) Usage() Usage {
	u := Usage{
		Since: e.opening.began, Store: e.StoreUse(), Opening: e.opening.use, Serving: time.Since(e.opening.done),
		Causes: map[string]format.StoreUse{}, Month: map[string]format.StoreUse{}, MonthNow: e.StoreNow().UTC(),
	}
	for _, cause := range Causes {
		u.Causes[cause.String()] = e.StoreUseFor(cause)
	}
	hits := e.cache.Stats()
	u.CacheHits = int64(hits.MemoryHits + hits.DiskHits)
	month := state.MonthOf(u.MonthNow.UnixMicro())
	u.MonthSince = u.MonthNow
	e.View(func(s *state.State) {
		u.StoredObjects, u.StoredBytes = s.Stored()
		u.DeadBytes, u.DeadInSegmentsBytes = s.DeadBytes()
		for i, x := range s.Spending() {
			if x.Month != month {
				continue
			}
			if u.MonthSince = time.UnixMicro(x.Since).UTC(); i > 0 { // brokers have told of what they spend before
				u.MonthSince = month.Start()
			}
			for _, c := range x.Causes {
				u.Month[c.Cause.String()] = c.StoreUse
			}
		}
		for _, c := range e.Untold() { // inside of View, so that nothing is told meanwhile, and counted twice
			u.Month[c.Cause.String()] = u.Month[c.Cause.String()].Plus(c.StoreUse)
		}
	})
	return u
}

// StoreUse returns the use of the store since [New].
func (e *Engine) StoreUse() (sum format.StoreUse) {
	for _, cause := range Causes {
		sum = sum.Plus(e.use[cause].load())
	}
	return sum
}

// StoreUseFor returns the part of StoreUse that has a cause.
func (e *Engine) StoreUseFor(cause format.Cause) format.StoreUse { return e.use[cause].load() }

// openStores gives each part of the engine a handle on the store, by which its requests are counted.
func (e *Engine) openStores(store objstore.Store) {
	e.stores, e.use = map[format.Cause]objstore.Store{}, map[format.Cause]*storeUse{}
	for _, cause := range Causes {
		use := new(storeUse)
		e.use[cause] = use
		e.stores[cause] = objstore.Observe(store, func(op objstore.Op) { e.observe(op, use) })
	}
	e.store = e.stores[format.CauseStart]
	e.logStore = objstore.Observe(store, func(op objstore.Op) { e.observe(op, e.use[e.causeInLog(op)]) })
}

// causeInLog returns what a request of package commitlog is for.
func (e *Engine) causeInLog(op objstore.Op) format.Cause {
	switch {
	case op.Verb == objstore.VerbCreate:
		return format.CauseAppend
	case e.opened.Load():
		return format.CauseFollow
	default:
		return format.CauseStart
	}
}

type causeKey struct{}

// withCause returns a context in which reads of records have another cause than usual.
func withCause(ctx context.Context, cause format.Cause) context.Context {
	return context.WithValue(ctx, causeKey{}, cause)
}

// readStore returns the store for a read of records.
func (e *Engine) readStore(ctx context.Context) objstore.Store {
	if cause, ok := ctx.Value(causeKey{}).(format.Cause); ok {
		return e.stores[cause]
	}
	return e.stores[format.CauseRead]
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
			f.Add(float64(x.n), cause.String(), string(x.verb))
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

func (u *storeUse) load() format.StoreUse {
	return format.StoreUse{
		Creates: u.creates.Load(), Gets: u.gets.Load(), Lists: u.lists.Load(), Deletes: u.deletes.Load(),
		SentBytes: u.sent.Load(), ReceivedBytes: u.received.Load(),
	}
}
