package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

var errVerdict = errors.New("another broker says something of the request that this version of Seb does not know")

var errOtherRows = errors.New("the commit with the bundle has other records than the bundle")

// decide ends the requests of a bundle of this broker: a commit that was applied has the bundle's mark, and says what became
// of each request.
func (e *Engine) decide(x *bundle, c *format.Commit) {
	defer e.batcher.idle()
	mark, entries := bundleIn(c, x)
	requests := x.requests
	outcome := make(map[*Request]error, len(mark.Verdicts))
	for _, v := range mark.Verdicts {
		if int(v.Request) >= len(requests) {
			continue // then Requests differs, too
		}
		r := requests[v.Request]
		switch v.Code {
		case format.VerdictAgain:
			if _, tells := r.Change.(tellSpent); tells {
				outcome[r] = errToldLater
				continue
			}
			outcome[r] = errAgain
			if r.alone = r.Change != nil && !r.Rides; r.Rides {
				outcome[r] = e.refusedRide(r)
			}
		case format.VerdictReplayed:
			outcome[r] = e.replayedOutcome(r, c.Time)
		case format.VerdictRefused:
			outcome[r] = e.refusalOf(r, v.Refusal)
		default:
			outcome[r] = &UnknownError{errVerdict}
		}
	}
	if int(mark.Requests) != len(requests) || !e.place(x, c, mark, entries, outcome) {
		e.logger.Error("another broker has committed a bundle of this broker with other records", "slot", uint64(c.Seq), "bundle", x.Number)
		e.finish(x.sets, func(*Request) error { return &UnknownError{errOtherRows} })
		return
	}
	e.tail.proven(x.sealedAt)
	var back, rides []*batchSet
	for _, set := range x.sets {
		rest := set.without(func(r *Request) bool { return errors.Is(outcome[r], errAgain) })
		e.finish([]*batchSet{set}, func(r *Request) error { return outcome[r] })
		switch {
		case rest == nil:
		case rest.rides:
			rides = append(rides, rest)
		default:
			back = append(back, rest)
		}
	}
	e.batcher.putBackRides(rides)
	if len(back) > 0 {
		e.batcher.putBack(back, e.useless)
	}
}

// bundleIn returns the mark of a bundle in a commit that has it, and the entries of the bundle.
func bundleIn(c *format.Commit, x *bundle) (mark *format.BundleMark, entries []format.Entry) {
	for _, entry := range c.Entries {
		switch m := entry.(type) {
		case *format.WriterMark:
			if mark != nil {
				return mark, entries
			}
		case *format.BundleMark:
			if mark != nil {
				return mark, entries
			}
			if x.Seal == m.Seal && x.Draw == m.Draw && x.Number == m.Number {
				mark = m
			}
		default:
			if mark != nil {
				entries = append(entries, entry)
			}
		}
	}
	return mark, entries
}

// replayedOutcome settles a request whose idempotency key the log had before the commit at that time.
func (e *Engine) replayedOutcome(r *Request, at int64) error {
	if !e.Replay(r, at) {
		return &UnknownError{errors.New("the log had the idempotency key, but this broker does not know it")}
	}
	return r.err
}

// place notes where the log has the batches of a bundle, and which entries each change has made. It returns false if the log
// has other ones.
func (e *Engine) place(x *bundle, c *format.Commit, mark *format.BundleMark, entries []format.Entry, outcome map[*Request]error) bool {
	steps, ok := x.steps(mark, outcome)
	for _, s := range steps {
		if !ok || len(entries) < s.entries {
			return false
		}
		of := entries[:s.entries:s.entries]
		entries = entries[s.entries:]
		if s.batch == nil {
			s.request.entries = of
			continue
		}
		row, isRow := of[0].(*format.Batch)
		t := s.batch
		if !isRow || row.Topic != t.key.topic || row.Partition != t.key.partition || row.Count != t.count || row.Size != t.row.Size || row.CRC != t.row.CRC {
			return false
		}
		if row != &t.row {
			t.row = *row
			(*fold)(e).remember(c, row, t.bytes)
		}
	}
	return ok && !slices.ContainsFunc(entries, func(entry format.Entry) bool { _, isRow := entry.(*format.Batch); return isRow })
}

// step is a part of a bundle's entries in a commit: those of a change, or the row of a batch.
type step struct {
	request *Request // if the entries are those of its change
	batch   *batch   // if the entry is its row
	entries int
}

// steps returns the order of a bundle's entries in a commit, see buildSets. The entries of idempotency keys and delays come
// after them. ok is false if the mark does not fit the bundle.
func (x *bundle) steps(mark *format.BundleMark, outcome map[*Request]error) (steps []step, ok bool) {
	made := map[*Request]int{}
	changes := mark.Changes
	for _, r := range x.requests {
		if r.Change == nil {
			continue
		}
		if len(changes) == 0 {
			return nil, false
		}
		made[r], changes = int(changes[0]), changes[1:]
	}
	change := func(r *Request) {
		if r.Change != nil && outcome[r] == nil {
			steps = append(steps, step{request: r, entries: made[r]})
		}
	}
	for _, set := range x.sets {
		for _, r := range set.requests {
			if len(r.Appends) == 0 && !r.withdrawn && !r.settled {
				change(r)
			}
		}
	}
	for _, set := range x.sets {
		for _, t := range set.batches {
			r := t.shares[0].request
			if outcome[r] != nil || r.settled {
				continue
			}
			if t.only != nil && t == r.first() {
				change(r)
			}
			steps = append(steps, step{batch: t, entries: 1})
		}
	}
	return steps, len(changes) == 0
}

// sealed returns when this broker has sealed a bundle that a commit has; zero if the commit has none.
func (h *handing) sealed(c *format.Commit) time.Time {
	if h.sender == nil {
		return time.Time{} // during the recovery
	}
	for _, b := range h.sender.Undecided() {
		x := b.Payload.(*bundle)
		if mark, _ := bundleIn(c, x); mark != nil {
			return x.sealedAt
		}
	}
	return time.Time{}
}

// rehearse makes the changes of this broker's bundles in a commit once more, on the state before the commit, so that they have
// their results. It decides nothing: that is up to the mark.
func (e *Engine) rehearse(c *format.Commit) {
	var d *state.Draft
	for _, b := range e.hand.sender.Undecided() {
		x := b.Payload.(*bundle)
		mark, _ := bundleIn(c, x)
		if mark == nil || len(mark.Changes) == 0 {
			continue
		}
		if d == nil {
			d = e.live.State.Draft(c.Time)
		}
		left := map[*Request]error{}
		requests := x.requests
		for _, v := range mark.Verdicts {
			if int(v.Request) < len(requests) {
				left[requests[v.Request]] = errAgain
			}
		}
		steps, _ := x.steps(mark, left)
		e.rehearseBundle(d, c, mark, steps)
	}
}

// rehearseBundle takes the entries of a commit into a draft, and makes the changes of a bundle when their turn comes.
func (e *Engine) rehearseBundle(d *state.Draft, c *format.Commit, mark *format.BundleMark, steps []step) {
	inside, skip := false, 0
	advance := func() { // to the next step that has entries
		for inside && skip == 0 && len(steps) > 0 {
			s := steps[0]
			steps, skip = steps[1:], s.entries
			if s.batch != nil {
				continue
			}
			if _, err := s.request.Change.Apply(d); err != nil {
				e.logger.Warn("another broker has made a change that this broker would refuse", "slot", uint64(c.Seq), "err", err)
			}
		}
	}
	for _, entry := range c.Entries {
		advance()
		skip = max(0, skip-1)
		inside = inside || entry == format.Entry(mark)
		if d.Take(entry) != nil {
			return // the fold will say why
		}
	}
	advance()
}

// without removes the requests for which away is true from the set, and returns them in a set of their own; nil if no request
// was removed. The batches of the new set have no records of the requests that stay.
func (s *batchSet) without(away func(*Request) bool) *batchSet {
	if !slices.ContainsFunc(s.requests, away) {
		return nil
	}
	rest := &batchSet{began: s.began, urgent: true, rides: s.rides, upload: s.upload, uploaded: s.uploaded, objects: s.objects, changed: s.upload}
	var stay []*Request
	for _, r := range s.requests {
		if away(r) {
			rest.requests, rest.bytes = append(rest.requests, r), rest.bytes+r.bytes
		} else {
			stay = append(stay, r)
		}
	}
	s.requests, s.bytes = stay, s.bytes-rest.bytes
	for _, t := range s.batches {
		shares := slices.DeleteFunc(slices.Clone(t.shares), func(p *batchShare) bool { return !away(p.request) })
		if len(shares) == 0 {
			continue
		}
		if len(shares) < len(t.shares) {
			t.keep(shares)
		}
		rest.batches = append(rest.batches, t)
	}
	return rest
}

// keep takes the records of all other shares out of a batch.
func (t *batch) keep(shares []*batchShare) {
	for _, p := range t.shares {
		if !slices.Contains(shares, p) {
			p.gone = true
		}
	}
	t.finish()
}
