package engine

import (
	"errors"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// keyedPatience is how long a request with an idempotency key may wait for its commit. If the
// machine of its broker sleeps for longer, a retry through another broker may be committed, and
// the log may forget that retry before the broker wakes up: the request would be committed twice.
// [state.KeyedFor] allows for this time.
const keyedPatience = 50 * time.Minute

// Key is the idempotency key by which the log recognises a retry of a request.
type Key struct {
	// Hashes has one hash of the key for each append of the request, or one if the request has no
	// append. The commit of the request stores all hashes, so the log has all of them or none.
	Hashes []format.Digest
	// Unscoped has the hashes, one for each of Hashes, under which earlier versions of Seb may have
	// stored the request; it may be empty. These hashes leave out the caller, so another caller's
	// request can have the same ones. It is the same request only if Print is the same too.
	Unscoped []format.Digest
	Print    format.Digest  // digest of the whole request
	Topic    format.TopicID // the only topic in which the key is valid; 0 for the key of a commit, which belongs to no topic
}

func (k *Key) hash() format.Digest { return k.Hashes[0] }

// Replay settles a request if the log knows the request's key; else it returns false. at is the log's
// time in microseconds since 1970: the log forgets a key [state.KeyedFor] after the commit that stored
// it, and keeps the key until then even if the topic is deleted. Call Begin before Replay. If Replay
// returns true, and the key belongs to a topic, the caller must sync and then call Confirm, since another
// broker may have deleted the topic.
func (e *Engine) Replay(r *Request, at int64) bool {
	var first state.Keyed
	var known bool
	e.View(func(s *state.State) { first, known = replay(s, r, at) })
	if !known {
		return false
	}
	r.settled, r.doubtful = true, true
	if first.Print != r.Key.Print {
		r.err = ErrKeyReused
	}
	return true
}

// replay returns what the state remembers under a request's key. If the state knows the key, replay
// sets r.replayed.
func replay(s *state.State, r *Request, at int64) (first state.Keyed, known bool) {
	hashes := r.Key.Hashes
	first, known = s.Keyed(hashes[0], at)
	if !known && len(r.Key.Unscoped) > 0 {
		hashes = r.Key.Unscoped
		first, known = s.Keyed(hashes[0], at)
		known = known && first.Print == r.Key.Print // with another Print, the key may be that of another caller
	}
	if known {
		r.replayed = make([][]Range, len(r.Appends))
	}
	if known && first.Print == r.Key.Print {
		for i := range r.Appends {
			x, _ := s.Keyed(hashes[i], at) // the log knows this hash too: the same commit has stored all hashes of the request
			for _, y := range x.Ranges {
				r.replayed[i] = append(r.replayed[i], Range{Partition: y.Partition, Offset: y.Base, Count: int(y.Count)})
			}
		}
	}
	return first, known
}

// Confirm ends a request that Replay has settled. err is the error of the sync after Replay.
func (e *Engine) Confirm(r *Request, err error) *Ticket {
	e.confirm(r, err)
	close(r.done)
	return e.ticket(r, r.began)
}

// confirm checks how a request with a key was settled, after a sync or commit that should have read the
// log to its end; err is the error of that sync or commit. Without an error, the state may show that the
// topic of the key was deleted, or that the log has the key after all, for which there seemed to be no
// room.
//
// A request whose key belongs to no topic keeps its answer when its topics are deleted, since it may
// have done more than append to them.
func (e *Engine) confirm(r *Request, err error) {
	_, full := errors.AsType[*KeysFullError](r.err)
	switch {
	case err != nil:
		if late, ok := errors.AsType[*LateError](err); ok {
			keyed := *late
			keyed.Keyed, err = true, &keyed
		}
		r.replayed, r.err = nil, maybeCommitted(err)
	case r.Key.Topic != 0 && !e.hasTopic(r.Key.Topic):
		r.replayed, r.err = nil, &TopicDeletedError{Topic: r.Appends[0].Topic}
	case full:
		was := r.err
		if r.err = nil; !e.Replay(r, e.Time()) {
			r.err = was
		}
	}
}

// maybeCommitted wraps err in an UnknownError, unless it has one.
func maybeCommitted(err error) error {
	if _, unknown := errors.AsType[*UnknownError](err); unknown {
		return err
	}
	return &UnknownError{err}
}

func (e *Engine) hasTopic(id format.TopicID) (has bool) {
	e.View(func(s *state.State) { has = s.TopicByID(id) != nil })
	return has
}

// settle decides requests that no commit may have, now or later, and removes their records from finished
// batch sets: appends of callers whose access has ended, since a revoked API key never becomes valid
// again; requests whose idempotency key was used by another commit meanwhile; those that have waited for
// too long; and those for whose key there is no room. If an access ends in the commit that is being
// built, the commit still has the appends of that caller.
func (e *Engine) settle(sets []*batchSet, at int64) {
	room := e.opts.IdempotencyKeys - e.live.State.KeyedCount(at)
	for _, set := range sets {
		changed := false
		for _, r := range set.requests {
			if len(r.Appends) > 0 && !r.withdrawn && !r.settled {
				if refusal := e.batcher.allowed(r, e.live.State, e.StoreNow()); refusal != nil {
					r.settled, r.err = true, refusal
					changed = true
				}
			}
			switch {
			case r.Key == nil || r.withdrawn || r.settled:
			case e.Replay(r, at):
				changed = true
			case e.waited(r, at) > keyedPatience:
				r.settled, r.err = true, ErrWaitedTooLong
				changed = true
			case room < len(r.Key.Hashes):
				r.settled, r.doubtful, r.err = true, true, &KeysFullError{e.opts.IdempotencyKeys}
				changed = true
			default:
				room -= len(r.Key.Hashes)
			}
		}
		if changed {
			set.takeOut()
		}
	}
}

// keyedEntries returns the entries by which the log remembers a request whose batches
// are in the commit.
func keyedEntries(r *Request) []*format.AppendKeyed {
	entries := make([]*format.AppendKeyed, len(r.Key.Hashes))
	for i, hash := range r.Key.Hashes {
		entries[i] = &format.AppendKeyed{Key: hash, Print: r.Key.Print}
	}
	for i, a := range r.Appends {
		entries[i].Topic = a.ID
		for _, x := range a.ranges() {
			entries[i].Ranges = append(entries[i].Ranges, format.KeyedRange{Partition: x.Partition, Count: uint32(x.Count), Base: x.Offset})
		}
	}
	return entries
}

// waited returns how long ago a request came, by the clock that has advanced most: the machine's
// clocks may have stood still while it slept. at is the log's time in microseconds since 1970, by
// which the log forgets keys.
func (e *Engine) waited(r *Request, at int64) time.Duration {
	return max(e.opts.Boot()-r.boot, time.Since(r.began), time.Duration(at-r.came)*time.Microsecond)
}
