package engine

import (
	"errors"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// keyedPatience is how long an append with an idempotency key may wait for its
// commit. If its broker sleeps for longer, the append could be committed after the
// log has forgotten that a retry through another broker was committed.
// [state.KeyedFor] leaves room for it.
const keyedPatience = 50 * time.Minute

// Key is the idempotency key by which the log recognises a request.
type Key struct {
	// Hashes are one for each append of the request, but at least one. One commit of the log
	// has all of them, so the first stands for all.
	Hashes []format.Digest
	// Unscoped are other hashes under which earlier versions may have remembered the request; may
	// be empty. One that is known so is the same only if Print is.
	Unscoped []format.Digest
	Print    format.Digest // of all that was asked for
	Topic    uint64        // the topic with which the key goes; 0 if it goes with none
}

func (k *Key) hash() format.Digest { return k.Hashes[0] }

// Replay settles a request whose key the log knows at that time. It needs Confirm, on a state that is
// not older than the request, unless no later commit can undo what the earlier request did.
func (e *Engine) Replay(r *Request, at int64) bool {
	e.Begin(r)
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

// replay returns what the state remembers under a request's key.
func replay(s *state.State, r *Request, at int64) (first state.Keyed, known bool) {
	hashes := r.Key.Hashes
	first, known = s.Keyed(hashes[0], at)
	if !known && len(r.Key.Unscoped) > 0 {
		hashes = r.Key.Unscoped
		first, known = s.Keyed(hashes[0], at)
		known = known && first.Print == r.Key.Print // else it may be another caller's
	}
	if known {
		r.replayed = make([][]Range, len(r.Appends))
	}
	if known && first.Print == r.Key.Print {
		for i := range r.Appends {
			x, _ := s.Keyed(hashes[i], at) // as known as the first
			for _, y := range x.Ranges {
				r.replayed[i] = append(r.replayed[i], Range{Partition: int32(y.Partition), Offset: y.Base, Count: int(y.Count)})
			}
		}
	}
	return first, known
}

// Confirm ends a request that Replay has settled. err is the error of the sync after that.
func (e *Engine) Confirm(r *Request, err error) *Ticket {
	e.confirm(r, err)
	close(r.done)
	return e.ticket(r, r.began)
}

// confirm checks, after a sync, how a request with a key was settled: a deleted topic
// takes its keys along, and another broker may have committed a key that had no room here.
// err is the error of the sync or commit that should have read the log to its end.
//
// A request with a key that goes with no topic keeps its answer when its topics are deleted: the
// rest of it was done too.
func (e *Engine) confirm(r *Request, err error) {
	_, full := errors.AsType[*KeysFullError](r.err)
	switch {
	case err != nil:
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

// maybeCommitted returns err as that of a request that may be in the log.
func maybeCommitted(err error) error {
	if _, unknown := errors.AsType[*UnknownError](err); unknown {
		return err
	}
	return &UnknownError{err}
}

func (e *Engine) hasTopic(id uint64) (has bool) {
	e.View(func(s *state.State) { has = s.TopicByID(id) != nil })
	return has
}

// settle answers the requests of finished batch sets that no later commit may
// take: appends of callers whose access has ended, since a revoked API key never
// comes back; requests whose idempotency key another commit has used meanwhile; those
// that have waited for too long; and those for whose key there is no room. A caller whose
// access ends in this very commit still has its appends in it.
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
			entries[i].Ranges = append(entries[i].Ranges, format.KeyedRange{Partition: uint32(x.Partition), Count: uint32(x.Count), Base: x.Offset})
		}
	}
	return entries
}

// waited returns how long ago a request came, by the clock that ran fastest: the machine's
// clocks may have stood still while it slept. at is the log's time, by which keys are forgotten.
func (e *Engine) waited(r *Request, at int64) time.Duration {
	return max(e.opts.Boot()-r.boot, time.Since(r.began), time.Duration(at-r.came)*time.Microsecond)
}
