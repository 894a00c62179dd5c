package sim

import (
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
)

// reasonLeaseLost is the reason of dead letters whose lease ran out without an answer.
const reasonLeaseLost = "its lease ran out"

// checkWork expects a client to have asked for everything that the log tells about a queue, and no
// work to be left at the end of the run.
func (q *queueChecker) checkWork(w *work) {
	for p := range w.parts {
		for offset, j := range w.parts[p].jobs {
			for _, e := range j.events {
				q.checkEvent(w, spot{p, offset}, e)
			}
		}
		for _, r := range w.parts[p].passed {
			if !q.mayPass(w, p, r) {
				q.history.violate("QueueAsAsked", "slot %d drops the work of queue %d before %d/%d, which nobody asked for", r.at.seq, w.id, p, r.upTo)
			}
		}
	}
	if w.ended == nil {
		if undone, _ := w.left(); len(undone) > 0 {
			q.history.violate("NothingPassed", "queue %d, %s of %s, has never done %v", w.id, w.name, w.of.name, undone)
		}
		return
	}
	if !w.of.deleted && !q.asked(w, dissolves, w.ended.Duration) {
		q.history.violate("QueueAsAsked", "queue %d, %s of %s, was deleted, and nobody asked for that", w.id, w.name, w.of.name)
	}
}

// asked reports whether an operation of a kind may have changed a queue at a time.
func (q *queueChecker) asked(w *work, what kind, at time.Duration) bool {
	return slices.ContainsFunc(q.ops, func(o *op) bool {
		return o.kind == what && o.queue == w.name && o.topic == w.of.name && o.call <= at && (o.acked() && o.ret >= at || o.outcome == seb.Unknown)
	})
}

// mayPass reports whether work before an offset may have been dropped: by a purge, by a trim, or
// because the queue was created to begin there.
func (q *queueChecker) mayPass(w *work, partition int, r reaching) bool {
	return r.at.seq == w.made.seq || q.asked(w, purges, r.at.Duration) ||
		slices.Contains(w.of.partitions[partition].starts, r.upTo)
}

// checkEvent expects the owner or a client to have asked for what happened to a record. It expects no
// acknowledgement of a delivery to come into the log after a client got a later delivery of the record.
func (q *queueChecker) checkEvent(w *work, at spot, e event) {
	d := delivery{w.id, at, e.attempt}
	by := func(what kind) bool {
		return slices.ContainsFunc(q.answers[d], func(a answering) bool {
			o := a.op
			return o.kind == what && o.call <= e.at.Duration && !o.refusedToken(a.index) && (what == acks || o.reason == e.reason && o.rests(e))
		})
	}
	good := e.what == wasAttempted || // the owner needs no client for this
		e.what == wasDone && by(acks) ||
		e.what == wasDeadLettered && e.reason == reasonLeaseLost ||
		(e.what == wasPutBack || e.what == wasDeadLettered) && by(nacks) ||
		e.what == wasRedriven && q.asked(w, redrives, e.at.Duration)
	if !good {
		q.history.violate("QueueAsAsked", "slot %d: %v of queue %d was %s by delivery %d, which nobody asked for", e.at.seq, at, w.id, e.what, e.attempt)
	}
	if e.what != wasDone {
		return
	}
	for attempt := e.attempt + 1; attempt <= e.attempt+w.config.Attempts+1; attempt++ {
		if later, made := q.seen[delivery{w.id, at, attempt}]; made && later.op.ret <= e.at.Duration {
			q.history.violate("LastCounts", "slot %d: delivery %d of %v in queue %d was acknowledged after a later delivery: %v", e.at.seq, e.attempt, at, w.id, later.op)
		}
	}
}

// rests reports whether a record that a nack put back has the delay in the log that the client asked for.
func (o *op) rests(e event) bool {
	return o.delay == nil || e.what == wasDeadLettered || (e.rest.delay-*o.delay).Abs() <= slack || !o.acked()
}

// checkOversight expects the log to have an operation on a whole queue, such as a pause, if the
// operation was acknowledged.
func (q *queueChecker) checkOversight(o *op) {
	if o.kind == receives || o.kind == extends || len(o.tokens) > 0 {
		q.checkThere(o)
		return
	}
	if !o.acked() && o.outcome == "" {
		q.history.violate("NoPhantom", "a failed write without an outcome: %v", o)
	}
	q.checkThere(o)
	if !o.acked() {
		return
	}
	done := false
	for _, in := range q.final.all {
		for _, w := range in.queues {
			if in.name == o.topic && w.name == o.queue {
				done = done || q.cameAbout(o, w)
			}
		}
	}
	if !done {
		q.history.violate("AckDurable", "the operation was acknowledged, but is not in the log: %v", o)
	}
}

// cameAbout reports whether the log has what an operation did to a queue.
func (q *queueChecker) cameAbout(o *op, w *work) bool {
	within := func(at moment) bool { return at.Duration >= o.call && at.Duration <= o.ret }
	if w.made.Duration > o.ret || w.ended != nil && w.ended.Duration < o.call {
		return false
	}
	switch o.kind {
	case opens:
		return !o.created || within(w.made)
	case dissolves:
		return w.ended != nil && within(*w.ended)
	case redrives:
		return o.touched == 0 || w.redriven(within) == o.touched
	case purges:
		return o.touched == 0 || slices.ContainsFunc(w.parts, func(p workPart) bool {
			return slices.ContainsFunc(p.passed, func(r reaching) bool { return within(r.at) })
		})
	default:
		return q.stood(w, o)
	}
}

// redriven returns the largest number of records that one commit has redriven. It considers only the commits
// for which the function when returns true.
func (w *work) redriven(when func(moment) bool) int64 {
	counts := map[moment]int64{}
	var most int64
	for _, p := range w.parts {
		for _, j := range p.jobs {
			for _, e := range j.events {
				if e.what == wasRedriven && when(e.at) {
					counts[e.at]++
					most = max(most, counts[e.at])
				}
			}
		}
	}
	return most
}

// stood reports whether, at some time during an operation that pauses or resumes a queue, the queue was
// paused or running as the operation asked for.
func (q *queueChecker) stood(w *work, o *op) bool {
	for i, p := range w.paused {
		until := lifetimeMax
		if i+1 < len(w.paused) {
			until = w.paused[i+1].at.Duration
		}
		if p.is == (o.kind == pauses) && p.at.Duration <= o.ret && until >= o.call {
			return true
		}
	}
	return false
}

// checkThere expects brokers to find a queue that exists during the whole run, and not to report lost
// data.
func (q *queueChecker) checkThere(o *op) {
	if q.stays(o.topic) && (o.failure == seb.CodeTopicNotFound || (o.queue == jobs || o.queue == exactlyOnce) && o.failure == seb.CodeQueueNotFound) || o.failure == seb.CodeDataLost {
		q.history.violate("LossIsLoud", "a broker did not find a topic or queue that exists, or reported lost data: %v", o)
	}
}

// checkTogether expects all parts of a commit to be in one commit of the log, or in no commit.
func (q *queueChecker) checkTogether(w *together) {
	slots := map[moment]bool{}
	missing := 0
	for _, id := range w.append.values {
		at := q.at[id]
		if len(at) == 0 {
			missing++
			continue
		}
		in := q.final.all[q.lives[id]]
		slots[in.partitions[at[0].partition].info[at[0].offset].at] = true
	}
	for i, m := range w.ack.tokens {
		done := false
		for _, e := range q.final.all.workOf(m.queue).events(m.spot) {
			alone := !slices.ContainsFunc(q.answers[m.delivery], func(a answering) bool {
				return a.op != w.ack && a.op.kind == acks && !a.op.refusedToken(a.index)
			})
			if e.what == wasDone && e.attempt == m.attempt && (alone || w.ack.taken(i) || slots[e.at]) {
				done, slots[e.at] = true, true
			}
		}
		if !done {
			missing++
		}
	}
	if len(slots) > 1 || len(slots) == 1 && missing > 0 || w.append.acked() && missing > 0 {
		q.history.violate("AllOrNothing", "the parts of one commit are in these commits of the log: %v; %d parts are missing: %v, %v", slots, missing, w.append, w.ack)
	}
}
