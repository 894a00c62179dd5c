package sim

import (
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

// work is the history of a queue from its creation to its end: what happened to each record, in order. It is
// built from the entries of the log, with code that is not the brokers' fold. Each entry is checked against
// the earlier entries.
type work struct {
	id     format.QueueID
	name   string
	of     *incarnation
	made   moment
	ended  *moment // nil if the queue exists at the end of the run
	config format.QueueConfig
	paused []pausing
	owners []owning
	owned  bool
	parts  []workPart
}

type pausing struct {
	at moment
	is bool
}

type owning struct {
	at    moment
	epoch format.Epoch
}

// workPart is what a queue keeps for one partition.
type workPart struct {
	limit, uncertain seb.Offset
	limits           []reaching
	passed           []reaching // the offsets up to which purges and trims dropped records that were not done
	jobs             map[seb.Offset]*job
}

// reaching is the moment at which a dispatch limit, a purge or a trim reached an offset.
type reaching struct {
	at   moment
	upTo seb.Offset
}

// job is the history of one record in a queue.
type job struct {
	attempt            uint32 // the last attempt that the log names, or 0
	attemptsBefore     uint32 // attempts before the record was last redriven
	deadLettered, done bool
	events             []event
}

type happening string

const (
	wasAttempted    happening = "attempted"
	wasDone         happening = "done"
	wasPutBack      happening = "put back"
	wasDeadLettered happening = "dead-lettered"
	wasRedriven     happening = "redriven"
)

// event is what happened to a record.
type event struct {
	at             moment
	what           happening
	attempt        uint32
	attemptsBefore uint32 // attempts before the record was last redriven
	rest           delaying
	reason         string
}

// workOf returns the history of the queue with an id, or nil if no commit created such a queue.
func (all truth) workOf(id format.QueueID) *work {
	for _, in := range all {
		if w := in.queues[id]; w != nil {
			return w
		}
	}
	return nil
}

func (in *incarnation) endQueues(at moment) {
	for _, w := range in.queues {
		w.end(at)
	}
}

func (w *work) end(at moment) {
	if w.ended == nil {
		w.ended = &at
	}
}

func (w *work) part(partition int) *workPart {
	for len(w.parts) <= partition {
		w.parts = append(w.parts, workPart{jobs: map[seb.Offset]*job{}})
	}
	return &w.parts[partition]
}

func (w *work) job(at spot) *job {
	p := w.part(at.partition)
	if p.jobs[at.offset] == nil {
		p.jobs[at.offset] = &job{}
	}
	return p.jobs[at.offset]
}

// events returns what happened to a record.
func (w *work) events(at spot) []event {
	if at.partition < len(w.parts) && w.parts[at.partition].jobs[at.offset] != nil {
		return w.parts[at.partition].jobs[at.offset].events
	}
	return nil
}

func (w *work) pass(partition int, before seb.Offset, at moment) {
	p := w.part(partition)
	p.passed = append(p.passed, reaching{at, before})
}

// gone reports whether, by a given time, a record was purged or trimmed, or its queue deleted.
func (w *work) gone(at spot, then time.Duration) bool {
	if w.ended != nil && w.ended.Duration <= then {
		return true
	}
	return at.partition < len(w.parts) && reached(w.parts[at.partition].passed, at.offset, then)
}

// reached reports whether, by a given time, one of these dispatch limits, purges or trims had gone beyond an
// offset.
func reached(all []reaching, offset seb.Offset, then time.Duration) bool {
	for _, r := range all {
		if r.upTo > offset && r.at.Duration <= then {
			return true
		}
	}
	return false
}

// last returns the attempt number of a record's last delivery: the number that the log names, or 1 in the
// uncertain range, or 0. If maybe is true, the record is below the dispatch limit, so it may have had a
// first delivery that the log does not name.
func (w *work) last(at spot) (attempt uint32, maybe bool) {
	p, j := w.part(at.partition), w.job(at)
	switch {
	case j.attempt > 0:
		return j.attempt, false
	case at.offset < p.uncertain:
		return 1, false
	default:
		return 0, at.offset < p.limit
	}
}

// isLast reports whether an attempt may be a record's last delivery, and came after the record's last
// redrive.
func (w *work) isLast(at spot, attempt uint32) bool {
	last, maybe := w.last(at)
	return attempt > w.job(at).attemptsBefore && (attempt == last || maybe && attempt == 1)
}

// over reports whether, according to the log, a record is done, a dead letter or gone (see gone).
func (w *work) over(at spot) bool {
	j := w.job(at)
	return j.done || j.deadLettered || w.gone(at, lifetimeMax)
}

// tellQueue adds an entry about a queue to the truth. The argument commit is the time in the entry's commit,
// in microseconds since 1970.
func (s *simulation) tellQueue(all truth, entry format.Entry, at moment, commit int64, dead *deadLetters) {
	switch x := entry.(type) {
	case *format.QueueSet:
		s.tellSet(all[x.Topic], x, at)
	case *format.QueueDeleted:
		all.workOf(x.ID).end(at)
	case *format.QueueOwned:
		s.tellOwned(all.workOf(x.Queue), x, at)
	case *format.QueueReleased:
		w := all.workOf(x.Queue)
		s.expectOwner(w, x.Epoch, entry)
		w.owned = false
		for i := range w.parts {
			w.parts[i].limit = 0
		}
	case *format.WindowMoved:
		w := all.workOf(x.Queue)
		s.expectOwner(w, x.Epoch, entry)
		w.open(int(x.Partition), x.Window, at)
	case *format.RecordsAttempted:
		s.tellAttempted(all.workOf(x.Queue), x, at)
	case *format.RecordsDone:
		s.tellDone(all.workOf(x.Queue), x, at)
	case *format.RecordPutBack:
		s.tellPutBack(all.workOf(x.Queue), x, at, s.delaying(at, commit, x.NotBefore), dead)
	case *format.RecordsRedriven:
		s.tellRedriven(all.workOf(x.Queue), x, at)
	case *format.QueuePurged:
		all.workOf(x.Queue).pass(int(x.Partition), x.Before, at)
	case *format.RecordsDelayed:
		for o := x.Offset; o < x.End(); o++ {
			all[x.Topic].delayed[spot{int(x.Partition), o}] = s.delaying(at, commit, x.Due)
		}
	}
}

// delaying is a delay in the log, and the moment at which the commit with the delay came into the log.
type delaying struct {
	from    moment
	written time.Duration // the time in the commit; the commit may have come into the log much later
	delay   time.Duration
}

func (d delaying) until() time.Duration { return d.from.Duration + d.delay }

// delaying returns a delay that begins with a commit. The argument at is when the commit came into the log.
// The arguments commit and until are the time in the commit and the end of the delay, in microseconds since
// 1970.
func (s *simulation) delaying(at moment, commit, until int64) delaying {
	return delaying{at, time.UnixMicro(commit).Sub(s.begun), time.Duration(until-commit) * time.Microsecond}
}

func (s *simulation) tellSet(in *incarnation, x *format.QueueSet, at moment) {
	w := in.queues[x.ID]
	if w == nil {
		w = &work{id: x.ID, name: x.Name, of: in, made: at}
		in.queues[x.ID] = w
	}
	w.config = x.Config
	w.paused = append(w.paused, pausing{at, x.Config.Paused})
}

// tellOwned notes that a queue has a new owner. The records below the previous owner's dispatch limit
// become the uncertain range.
func (s *simulation) tellOwned(w *work, x *format.QueueOwned, at moment) {
	if n := format.Epoch(len(w.owners)); x.Epoch != n+1 {
		s.history.violate("Fenced", "slot %d: queue %d gets epoch %d after epoch %d", at.seq, w.id, x.Epoch, n)
	}
	w.owners, w.owned = append(w.owners, owning{at, x.Epoch}), true
	for i := range w.of.partitions {
		p := w.part(i)
		p.uncertain = max(p.uncertain, min(p.limit, seb.Offset(len(w.of.partitions[i].ids))))
		p.limit = 0
	}
	for i, limit := range x.Windows {
		w.open(i, limit, at)
	}
}

// open notes that the owner may now hand out the records below a dispatch limit.
func (w *work) open(partition int, limit seb.Offset, at moment) {
	p := w.part(partition)
	p.limit = limit
	p.limits = append(p.limits, reaching{at, limit})
}

// expectOwner expects the epoch of an owner's entry to be that of the current owner.
func (s *simulation) expectOwner(w *work, epoch format.Epoch, entry format.Entry) {
	if !w.owned || epoch != format.Epoch(len(w.owners)) {
		s.history.violate("Fenced", "queue %d has epoch %d (owned: %v), but the entry of an owner is %T%+v", w.id, len(w.owners), w.owned, entry, entry)
	}
}

func (s *simulation) tellAttempted(w *work, x *format.RecordsAttempted, at moment) {
	s.expectOwner(w, x.Epoch, x)
	for _, a := range x.Attempts {
		p := spot{int(x.Partition), a.Offset}
		last, maybe := w.last(p)
		j := w.job(p)
		if next := a.Number == last+1 || maybe && a.Number == 2; !next || w.over(p) {
			s.history.violate("OwnNumber", "slot %d: delivery %d of %v in queue %d follows delivery %d (there may be a first one that the log does not name: %v); the record is over: %v", at.seq, a.Number, p, w.id, last, maybe, w.over(p))
		}
		if a.Number-j.attemptsBefore > w.config.Attempts {
			s.history.violate("AtMost", "slot %d: delivery %d of %v in queue %d; the record was redriven after delivery %d, and the queue allows %d attempts", at.seq, a.Number, p, w.id, j.attemptsBefore, w.config.Attempts)
		}
		j.attempt = a.Number
		j.events = append(j.events, event{at: at, what: wasAttempted, attempt: a.Number, attemptsBefore: j.attemptsBefore})
	}
}

func (s *simulation) tellDone(w *work, x *format.RecordsDone, at moment) {
	for _, r := range x.Runs {
		for o := r.Offset; o < r.End(); o++ {
			p := spot{int(x.Partition), o}
			if !w.isLast(p, r.Number) || w.over(p) {
				last, _ := w.last(p)
				s.history.violate("LastCounts", "slot %d: delivery %d of %v is acknowledged in queue %d; its last delivery was %d; the record is over: %v", at.seq, r.Number, p, w.id, last, w.over(p))
			}
			j := w.job(p)
			j.done, j.attempt = true, r.Number
			j.events = append(j.events, event{at: at, what: wasDone, attempt: r.Number, attemptsBefore: j.attemptsBefore})
		}
	}
}

func (s *simulation) tellPutBack(w *work, x *format.RecordPutBack, at moment, rest delaying, dead *deadLetters) {
	p := spot{int(x.Partition), x.Offset}
	if !w.isLast(p, x.Number) || w.over(p) {
		last, _ := w.last(p)
		s.history.violate("LastCounts", "slot %d: delivery %d of %v is put back in queue %d; its last delivery was %d; the record is over: %v", at.seq, x.Number, p, w.id, last, w.over(p))
	}
	j := w.job(p)
	e := event{at: at, what: wasPutBack, attempt: x.Number, attemptsBefore: j.attemptsBefore, rest: rest, reason: x.Reason}
	if x.DeadLetter {
		e.what = wasDeadLettered
		dead.add(w, p)
	}
	if attempts := x.Number - j.attemptsBefore; x.DeadLetter != (attempts >= w.config.Attempts) {
		s.history.violate("AtMost", "slot %d: attempt %d of %v in queue %d, which allows %d attempts, failed, and the record became a dead letter: %v", at.seq, attempts, p, w.id, w.config.Attempts, x.DeadLetter)
	}
	j.attempt, j.deadLettered = x.Number, x.DeadLetter
	j.events = append(j.events, e)
}

func (s *simulation) tellRedriven(w *work, x *format.RecordsRedriven, at moment) {
	for _, o := range x.Offsets {
		p := spot{int(x.Partition), o}
		j := w.job(p)
		if !j.deadLettered || w.gone(p, lifetimeMax) {
			s.history.violate("QueueAsAsked", "slot %d: %v of queue %d is redriven, but was not a dead letter", at.seq, p, w.id)
		}
		j.deadLettered, j.attemptsBefore = false, j.attempt
		j.events = append(j.events, event{at: at, what: wasRedriven, attempt: j.attempt, attemptsBefore: j.attemptsBefore})
	}
}
