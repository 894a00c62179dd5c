package engine

import (
	"context"
	"math"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// stateReserveMin is the least reserve in bytes, see stateLimit. If StateMemory is less than four times
// stateReserveMin, as in some tests, the reserve is a quarter of StateMemory.
const stateReserveMin = 64 << 10

// stateLimit returns the size in bytes up to which requests of the given use may let the state grow.
// Appends must leave a reserve. So when appends are refused, consumers can still commit, workers can still
// answer, brokers can still take queues over, and operators can still create keys.
func (o *Options) stateLimit(use state.Use) int64 { return stateLimit(o.StateMemory, use) }

func stateLimit(memory int64, use state.Use) int64 {
	reserve := max(memory/16, min(stateReserveMin, memory/4))
	switch use {
	case state.UseRecords:
		return memory - reserve
	case state.UseConsumers:
		return memory - reserve*3/4
	case state.UseWork:
		return memory - reserve/4
	case state.UseOwners:
		return memory - reserve/8
	case state.UseUpkeep:
		return math.MaxInt64 // a full state gets room only by these entries
	default:
		return memory
	}
}

// roomForEntries refuses a request without appends if the state has no room for the request's entries.
// There is always room for entries that don't let the state grow, such as a deletion. roomForEntries returns the
// entries to commit: it leaves out new dispatch limits if there is room only for the other entries.
func (e *Engine) roomForEntries(d *state.Draft, r *Request, entries []format.Entry) ([]format.Entry, error) {
	use := state.UseUpkeep
	for _, entry := range entries {
		use = min(use, state.UseOf(entry))
	}
	if r.Key != nil {
		use = state.UseRecords
	}
	full := e.room(d, use, d.Growth(entries...), r)
	if full == nil {
		return entries, nil
	}
	if fewer := withoutNewLimits(d, entries); 0 < len(fewer) && len(fewer) < len(entries) {
		return fewer, e.room(d, use, d.Growth(fewer...), r)
	}
	return nil, full
}

// withoutNewLimits leaves out the dispatch limits of partitions that had none, such as new partitions. Such a
// limit lets the state grow, and the owner of the queue still hands out records of the other partitions.
func withoutNewLimits(d *state.Draft, entries []format.Entry) (fewer []format.Entry) {
	for _, entry := range entries {
		if _, ok := entry.(*format.WindowMoved); !ok || d.Growth(entry) == 0 {
			fewer = append(fewer, entry)
		}
	}
	return fewer
}

// roomForAppends refuses requests if the state has no room for their batches and for the given
// entries of their changes.
func (e *Engine) roomForAppends(d *state.Draft, batches []*batch, requests []*Request, entries []format.Entry) error {
	for _, t := range batches {
		entries = append(entries, &format.Batch{Topic: t.key.topic, Partition: t.key.partition})
	}
	return e.room(d, state.UseRecords, d.Growth(entries...), requests...)
}

// room refuses requests if their entries would make the state grow beyond the limit of the use. If there
// is room, it adds to e.building.promised the memory that the idempotency keys and delays of the requests will
// take once the commit is applied.
func (e *Engine) room(d *state.Draft, use state.Use, growth int64, requests ...*Request) error {
	later := int64(0)
	for _, r := range requests {
		later += r.remembered()
	}
	growth += later
	limit, used := stateLimit(e.building.limits.StateMemory, use), d.Memory()+e.building.promised
	if growth > 0 && used > limit-growth {
		return e.stateFull(use, used, growth)
	}
	e.building.promised += later
	return nil
}

// remembered returns an upper bound of the memory that a request's idempotency key and delays take in
// the state.
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

// RoomForRecords returns a *StateFullError if the state has no room for any append. Callers call it before
// an append takes memory. If the state is full, RoomForRecords first syncs unless the last sync is recent,
// since another broker may have made room. Whether the state has room for a certain append is decided when
// the commit is built.
func (e *Engine) RoomForRecords(ctx context.Context) error {
	limit := e.opts.stateLimit(state.UseRecords)
	if e.stateUsed() < limit {
		return nil
	}
	if err := e.SyncIfOld(ctx); err != nil {
		return err
	}
	if used := e.stateUsed(); used >= limit {
		return e.stateFull(state.UseRecords, used, 0)
	}
	return nil
}

// stateUsed returns the memory of the state in bytes. If the state is full for appends, stateUsed leaves
// out what has expired, since the next commit will remove it.
func (e *Engine) stateUsed() (used int64) {
	e.View(func(s *state.State) {
		used = s.Memory()
		if used >= e.opts.stateLimit(state.UseRecords) {
			used -= s.Expiring(e.NowIn(s))
		}
	})
	return used
}

// stateFull refuses a request. It makes room if it can: a broker that refuses all requests wins no slots.
func (e *Engine) stateFull(use state.Use, used, need int64) error {
	e.cramped.Store(true)
	if !e.opts.NoMaintenance {
		e.maybeCompact()
	}
	return &StateFullError{Use: use, Used: used, Limit: e.opts.stateLimit(use), Most: e.opts.StateMemory, Need: need}
}
