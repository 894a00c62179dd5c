package engine

import (
	"errors"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// keyedPatience is how long a request with an idempotency key may wait for its commit. Without this
// limit, a request could be committed twice: its broker's machine sleeps for days, another broker commits
// the caller's retry, the log forgets the key, and then the first broker wakes up and commits the
// request. [state.KeyedFor] is an hour longer than the promised 24 hours, to allow for keyedPatience.
const keyedPatience = 50 * time.Minute

// Key is the idempotency key by which the log recognises a retry of a request.
type Key struct {
	// Hashes has one hash of the key for each append of the request, or one if the request has no
	// append. The commit of the request stores all hashes, so the log has all of them or none.
	Hashes []format.Digest
	// Unscoped has the hashes, one for each of Hashes, under which earlier versions of Seb may have
	// stored the request; it may be empty. These hashes do not depend on the caller, so the log may have
	// them from another caller's request. The log has this request only if Print is equal, too.
	Unscoped []format.Digest
	Print    format.Digest  // digest of the whole request
	Topic    format.TopicID // the only topic in which the key is valid; 0 if the key belongs to no topic
}

func (k *Key) hash() format.Digest { return k.Hashes[0] }

// Replay settles a request if the log has the request's idempotency key: the request gets the outcome of
// the earlier request with that key, or ErrKeyReused if that request had other contents. If the log does
// not have the key, Replay returns false. at is the log's time in microseconds since 1970. It matters
// because the log keeps a key only until [state.KeyedFor] after the commit that stored the key.
//
// The caller must call Begin before Replay. If Replay returns true, and the key belongs to a topic, the
// caller must sync and then call Confirm, since another broker may have deleted the topic.
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
		known = known && first.Print == r.Key.Print // with another Print, it may be another caller's request
	}
	if known {
		r.replayed = make([][]Range, len(r.Appends))
	}
	if known && first.Print == r.Key.Print {
		for i := range r.Appends {
			x, _ := s.Keyed(hashes[i], at) // the log has this hash too, since one commit stored all hashes of the request
			for _, y := range x.Ranges {
				r.replayed[i] = append(r.replayed[i], Range{Partition: y.Partition, Offset: y.Base, Count: int(y.Count)})
			}
		}
	}
	return first, known
}

// Confirm ends a request that Replay has settled. err is the error of the sync after Replay; nil if the
// sync succeeded.
func (e *Engine) Confirm(r *Request, err error) *Ticket {
	e.confirm(r, err)
	close(r.done)
	return e.ticket(r, r.began)
}

// confirm checks the outcome of a settled request with an idempotency key, after a sync or commit that
// should have read the log to its end. err is the error of that sync or commit. Without an error, the
// state is up to date. It may show that the topic of the key was deleted. It may also show that the log
// has the key, when the request was refused because there was no room for the key.
//
// A request whose key belongs to no topic keeps its outcome when its topics are deleted, since the
// request may have done more than append to these topics.
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

// maybeCommitted wraps err in an UnknownError, unless err already wraps one.
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

// settle decides the requests that must be in no commit, neither now nor later. It removes their records
// from the finished batch sets. These requests are:
//   - appends of callers that may no longer make requests: a revoked API key never becomes valid again;
//   - requests whose idempotency key the log has by now;
//   - requests with an idempotency key that have waited longer than keyedPatience;
//   - requests for whose idempotency key there is no room.
//
// If the commit that is being built revokes an API key, that commit may still have appends of the caller
// with that key.
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

// keyedEntries returns the entries by which the log remembers a request with an idempotency key. The
// batches of the request must be in the commit already, since the entries have the records' offsets.
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

// waited returns how long ago a request came, by the clock that has advanced most: some clocks may have
// stood still while the machine slept. at is the log's time in microseconds since 1970.
func (e *Engine) waited(r *Request, at int64) time.Duration {
	return max(e.opts.Boot()-r.boot, time.Since(r.began), time.Duration(at-r.came)*time.Microsecond)
}
