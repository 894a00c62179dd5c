package seb

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// stateUse is a use of the state, which may fill a part of [Options.StateMemory], the smallest
// part first. The last bytes are a reserve: in a full log consumers can still read, workers can
// still answer, and operators can still create keys.
type stateUse int

const (
	forRecords   stateUse = iota // appends, topics, queues, push targets
	forConsumers                 // consumers and their positions
	forWork                      // answers about records that a queue has handed out
	forKeys                      // API keys
	// forOwners has no bound: a broker that can't own a queue can't empty it either. It takes 64
	// bytes once for each partition of a queue.
	forOwners
)

var stateUseNames = [...]string{"appends, topics and queues", "consumers", "answers of workers", "API keys", "owners of queues"}

// stateReserveMin makes the reserve a larger part of small bounds, as tests set them.
const stateReserveMin = 64 << 10

// stateLimit returns up to where a use may fill the state.
func (o Options) stateLimit(use stateUse) int64 {
	reserve := max(o.StateMemory/16, min(stateReserveMin, o.StateMemory/4))
	switch use {
	case forRecords:
		return o.StateMemory - reserve
	case forConsumers:
		return o.StateMemory - reserve*3/4
	case forWork:
		return o.StateMemory - reserve/4
	case forKeys:
		return o.StateMemory
	default:
		return math.MaxInt64
	}
}

// useOf returns what an entry uses the state for.
func useOf(entry format.Entry) stateUse {
	switch entry.(type) {
	case *format.ConsumerCreated, *format.PositionsMoved:
		return forConsumers
	case *format.RecordsDone, *format.RecordPutBack, *format.RecordsAttempted, *format.RecordsRedriven, *format.QueuePurged:
		return forWork
	case *format.KeyCreated:
		return forKeys
	case *format.QueueOwned, *format.SessionNamed, *format.WindowMoved, *format.QueueReleased:
		return forOwners
	default:
		return forRecords
	}
}

// roomForEntries refuses the entries of a request that appends nothing if the state has no room
// for them. An entry that adds nothing, such as a deletion, always has room.
func (b *Broker) roomForEntries(d *state.Draft, r *request) error {
	use := forOwners
	for _, entry := range r.entries {
		use = min(use, useOf(entry))
	}
	if r.key != nil {
		use = forRecords
	}
	return b.room(d, use, d.Growth(r.entries...), r)
}

// roomForAppends refuses requests if the state has no room for all of what they append,
// in these batches, and the entries that come with it.
func (b *Broker) roomForAppends(d *state.Draft, batches []*batch, requests []*request, entries []format.Entry) error {
	for _, t := range batches {
		entries = append(entries, &format.Batch{Topic: t.key.topic, Partition: uint32(t.key.partition)})
	}
	return b.room(d, forRecords, d.Growth(entries...), requests...)
}

// room refuses requests whose entries would grow the state beyond what their use may take;
// else it promises them room for their entries after all batches.
func (b *Broker) room(d *state.Draft, use stateUse, growth int64, requests ...*request) error {
	later := int64(0)
	for _, r := range requests {
		later += r.remembered()
	}
	growth += later
	limit, used := b.opts.stateLimit(use), d.Memory()+b.building.promised
	if growth > 0 && used > limit-growth {
		return b.stateFull(use, used)
	}
	b.building.promised += later
	return nil
}

// remembered returns how much memory a request's idempotency key and delays take in the state at most.
func (r *request) remembered() (bytes int64) {
	if r.key != nil {
		bytes += int64(len(r.key.hashes)) * state.KeyedMemory(0)
	}
	for _, a := range r.appends {
		if a.delay > 0 || !a.due.IsZero() {
			bytes += int64(len(a.parts)) * state.DelayedMemory
		}
		if r.key != nil {
			bytes += state.KeyedMemory(len(a.parts)) - state.KeyedMemory(0)
		}
	}
	return bytes
}

// stateRoom refuses an append early, before it takes memory, if the state has no room for
// appends. It syncs if the last sync is older than [Options.StaleMax], since another broker may
// have made room. [Broker.build] decides whether there is room for this append.
func (b *Broker) stateRoom(ctx context.Context) error {
	limit := b.opts.stateLimit(forRecords)
	if b.stateUsed() < limit {
		return nil
	}
	if err := b.syncIfOld(ctx); err != nil {
		return err
	}
	if used := b.stateUsed(); used >= limit {
		return b.stateFull(forRecords, used)
	}
	return nil
}

// stateUsed returns the memory of the state, without what the next commit makes it forget.
func (b *Broker) stateUsed() int64 {
	b.live.RLock()
	defer b.live.RUnlock()
	used := b.live.State.Memory()
	if used < b.opts.stateLimit(forRecords) {
		return used
	}
	return used - b.live.State.Expiring(max(b.live.State.Time(), b.log.StoreNow().UnixMicro()))
}

func (b *Broker) stateFull(use stateUse, used int64) *Error {
	return &Error{
		Code:   CodeOverStateBudget,
		Detail: fmt.Sprintf("state uses %d of %d bytes (--state-memory); %s may use %d", used, b.opts.StateMemory, stateUseNames[use], b.opts.stateLimit(use)),
		Hint:   "delete topics, or records at the start of partitions, that are no longer needed, or give the broker more --state-memory; fewer, larger commits (--linger) make it grow slower",
		Limit:  b.opts.StateMemory, RetryAfter: time.Minute,
	}
}
