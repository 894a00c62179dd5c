package engine

import (
	"context"
	"math"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// stateReserveMin makes the reserve a larger part of small bounds, as tests set them.
const stateReserveMin = 64 << 10

// stateLimit returns up to where a use may fill the state. The last bytes are a reserve: in a full
// log consumers can still read, workers can still answer, and operators can still create keys. Owners
// have no bound: a broker that can't own a queue can't empty it either. They take 64 bytes once for
// each partition of a queue.
func (o *Options) stateLimit(use state.Use) int64 {
	reserve := max(o.StateMemory/16, min(stateReserveMin, o.StateMemory/4))
	switch use {
	case state.UseRecords:
		return o.StateMemory - reserve
	case state.UseConsumers:
		return o.StateMemory - reserve*3/4
	case state.UseWork:
		return o.StateMemory - reserve/4
	case state.UseKeys:
		return o.StateMemory
	default:
		return math.MaxInt64
	}
}

// roomForEntries refuses the entries of a request that appends nothing if the state has no room
// for them. An entry that adds nothing, such as a deletion, always has room.
func (e *Engine) roomForEntries(d *state.Draft, r *Request, entries []format.Entry) error {
	use := state.UseOwners
	for _, entry := range entries {
		use = min(use, state.UseOf(entry))
	}
	if r.Key != nil {
		use = state.UseRecords
	}
	return e.room(d, use, d.Growth(entries...), r)
}

// roomForAppends refuses requests if the state has no room for all of what they append,
// in these batches, and the entries that come with it.
func (e *Engine) roomForAppends(d *state.Draft, batches []*batch, requests []*Request, entries []format.Entry) error {
	for _, t := range batches {
		entries = append(entries, &format.Batch{Topic: t.key.topic, Partition: uint32(t.key.partition)})
	}
	return e.room(d, state.UseRecords, d.Growth(entries...), requests...)
}

// room refuses requests whose entries would grow the state beyond what their use may take;
// else it promises them room for their entries after all batches.
func (e *Engine) room(d *state.Draft, use state.Use, growth int64, requests ...*Request) error {
	later := int64(0)
	for _, r := range requests {
		later += r.remembered()
	}
	growth += later
	limit, used := e.opts.stateLimit(use), d.Memory()+e.building.promised
	if growth > 0 && used > limit-growth {
		return e.stateFull(use, used)
	}
	e.building.promised += later
	return nil
}

// remembered returns how much memory a request's idempotency key and delays take in the state at most.
func (r *Request) remembered() (bytes int64) {
	if r.Key != nil {
		bytes += int64(len(r.Key.Hashes)) * state.KeyedMemory(0)
	}
	for _, a := range r.Appends {
		if a.delayed() {
			bytes += int64(len(a.shares)) * state.DelayedMemory
		}
		if r.Key != nil {
			bytes += state.KeyedMemory(len(a.shares)) - state.KeyedMemory(0)
		}
	}
	return bytes
}

// RoomForRecords refuses an append early, before it takes memory, if the state has no room for
// appends. It syncs if the last sync is older than [Options].StaleMax, since another broker may
// have made room. The commit decides whether there is room for this append.
func (e *Engine) RoomForRecords(ctx context.Context) error {
	limit := e.opts.stateLimit(state.UseRecords)
	if e.stateUsed() < limit {
		return nil
	}
	if err := e.SyncIfOld(ctx); err != nil {
		return err
	}
	if used := e.stateUsed(); used >= limit {
		return e.stateFull(state.UseRecords, used)
	}
	return nil
}

// stateUsed returns the memory of the state, without what the next commit makes it forget.
func (e *Engine) stateUsed() (used int64) {
	e.View(func(s *state.State) {
		used = s.Memory()
		if used >= e.opts.stateLimit(state.UseRecords) {
			used -= s.Expiring(e.NowIn(s))
		}
	})
	return used
}

func (e *Engine) stateFull(use state.Use, used int64) error {
	return &StateFullError{Use: use, Used: used, Limit: e.opts.stateLimit(use), Most: e.opts.StateMemory}
}
