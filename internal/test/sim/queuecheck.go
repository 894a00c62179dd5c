package sim

import (
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
)

// seenDelivery is a delivery that some client got.
type seenDelivery struct {
	message
	op *op
}

// answering is an operation that acknowledges, puts back or extends a delivery, together with the index of
// that delivery in the operation.
type answering struct {
	op    *op
	index int // index of the delivery's token in op.tokens
}

// queueChecker compares the operations on queues with the log.
type queueChecker struct {
	*checker
	seen    map[delivery]seenDelivery
	answers map[delivery][]answering
	ops     []*op
}

// checkQueues expects queues to have handed out records by their rules. It expects the log to tell what
// clients did with these records, and nothing else.
func (x *checker) checkQueues(ops []*op) {
	q := &queueChecker{checker: x, seen: map[delivery]seenDelivery{}, answers: map[delivery][]answering{}, ops: ops}
	for _, o := range ops {
		for _, m := range o.messages {
			if before, twice := q.seen[m.delivery]; twice {
				x.history.violate("OwnNumber", "%v was handed out twice: %v, %v", m, before.op, o)
			}
			q.seen[m.delivery] = seenDelivery{m, o}
		}
		for i, m := range o.tokens {
			q.answers[m.delivery] = append(q.answers[m.delivery], answering{o, i})
		}
	}
	for _, d := range q.seen {
		if w := q.known(d); w != nil {
			q.checkDelivery(w, d)
			q.checkClaim(w, d)
			q.checkKeyOrder(w, d)
			q.checkRested(w, d)
		}
	}
	for _, o := range ops {
		if o.kind == appends && o.acked() && o.delay != nil {
			q.checkDelay(o)
		}
		if o.queue != "" {
			q.checkAnswers(o)
			q.checkOversight(o)
			if o.with != nil {
				q.checkTogether(o.with)
			}
		}
	}
	for _, in := range x.final.all {
		for _, w := range in.queues {
			q.checkWork(w)
		}
	}
}

// known returns the queue of a delivery. If the log has no such queue or no such record, it reports a
// violation and returns nil.
func (q *queueChecker) known(d seenDelivery) *work {
	w := q.final.all.workOf(d.queue)
	if w == nil || w.name != d.queueName || w.of.name != d.topic || d.partition >= len(w.of.partitions) ||
		int(d.offset) >= len(w.of.partitions[d.partition].ids) || w.of.partitions[d.partition].ids[d.offset] != d.id {
		q.history.violate("QueueAsAsked", "the log has no such queue, or a different record at that offset: %v: %v", d.message, d.op)
		return nil
	}
	return w
}

// checkDelivery expects the log to allow a delivery before the broker hands the record out. It expects no
// delivery beyond the queue's limit of attempts, and none before the end of the record's delay.
func (q *queueChecker) checkDelivery(w *work, d seenDelivery) {
	var base uint32
	durable := false
	for _, e := range w.events(d.spot) {
		if e.what == wasAttempted && e.attempt == d.attempt && e.at.Duration <= d.op.ret {
			durable, base = true, e.attemptsBefore
		}
	}
	if d.attempt == 1 {
		durable, base = reached(w.part(d.partition).limits, d.offset, d.op.ret), 0
	}
	if !durable {
		q.history.violate("OwnNumber", "%v was handed out before the log said so: %v", d.message, d.op)
	}
	if attempts := int(d.attempt - base); d.toldAttempt != attempts || attempts > int(w.config.Attempts) {
		q.history.violate("AtMost", "%v is attempt %d of %d, but the answer says attempt %d: %v", d.message, attempts, w.config.Attempts, d.toldAttempt, d.op)
	}
	if due, delayed := w.of.delayed[d.spot]; delayed && due.until() > d.op.ret+q.early(w, due, d.op.ret) {
		q.history.violate("NotBeforeDue", "%v is not due before %v: %v", d.message, due.until(), d.op)
	}
}

// checkDelay expects the log to delay the records of an append for as long as the client asked for.
func (q *queueChecker) checkDelay(o *op) {
	for _, id := range o.values {
		for _, at := range q.at[id] {
			is := q.final.all[q.lives[id]].delayed[spot{at.partition, at.offset}].delay
			if (is - *o.delay).Abs() > slack {
				q.history.violate("NotBeforeDue", "%s at %v is delayed by %v: %v", id, at, is, o)
			}
		}
	}
}

// early returns by how much a delay may have been too short at a time. A broker that has owned the queue
// since the delay was committed waits for the whole delay. A later owner may wait less, for two reasons. Its
// clock may differ from the clock of the broker that committed the delay. And it counts the delay from the
// time in the commit, which is earlier than the time at which the commit came into the log.
func (q *queueChecker) early(w *work, d delaying, then time.Duration) time.Duration {
	alone := q.sim.plan.brokers == 1
	for _, o := range w.owners {
		alone = alone && (o.at.Duration <= d.from.Duration || o.at.Duration > then)
	}
	if alone {
		return slack
	}
	return q.sim.plan.skewBetween() + max(0, d.from.Duration-d.written)
}

// slack is how far a time may be off because of rounding.
const slack = time.Millisecond

// checkClaim expects the log to count a delivery of a record only after the previous delivery had failed or
// the lease of the previous delivery had run out.
func (q *queueChecker) checkClaim(w *work, d seenDelivery) {
	before, got := q.seen[delivery{d.queue, d.spot, d.attempt - 1}]
	var at time.Duration // when the log counted the delivery d
	free, early := time.Duration(-1), time.Duration(0)
	for _, e := range w.events(d.spot) {
		switch {
		case e.what == wasAttempted && e.attempt == d.attempt:
			at = e.at.Duration
		case e.attempt != d.attempt-1:
		case e.what == wasPutBack:
			free, early = e.rest.until(), q.early(w, e.rest, d.op.ret)
		case e.what == wasRedriven:
			free, early = 0, 0
		}
	}
	if d.attempt == 1 {
		return
	}
	if free < 0 {
		if !got {
			return
		}
		free = q.leaseEnd(w, before, at)
	}
	if at+max(slack, early) < free {
		q.history.violate("NotBeforeDue", "delivery %[2]d of %[3]v was claimed at %[1]v, but the delivery before it had its lease until %[4]v: %[5]v, %[6]v", at, d.attempt, d.spot, free, before.op, d.op)
	}
}

// leaseEnd returns the earliest time at which the lease of an unanswered delivery may end. It considers only
// what happened up to a given time.
func (q *queueChecker) leaseEnd(w *work, d seenDelivery, then time.Duration) time.Duration {
	end, owned := d.until, time.Duration(-1)
	for _, o := range w.owners {
		if at := o.at.Duration; w.follows(o, d) && at <= then {
			owned = at
			held := at + time.Duration(w.config.LeaseMS)*time.Millisecond
			if at > d.op.ret {
				end = held
			} else {
				end = min(end, held)
			}
		}
	}
	for _, a := range q.answers[d.delivery] {
		switch o := a.op; {
		case o.kind != extends || o.call > then:
		case !o.acked():
			return 0 // the outcome of the extension is unknown, so the lease may end at any time
		case !o.taken(a.index) || o.ret < owned: // the broker refused the extension; or a later owner does not know of it
		case o.call < owned+staleMax:
			end = min(end, o.until) // the previous owner may have accepted the extension before it learned of the new owner
		default:
			end = o.until
		}
	}
	return end
}

// follows reports whether an owner before o may have made the delivery d. Then o took over the lease of d. The
// earlier owner may even have made the delivery shortly after o took the queue over, before it learned of o.
func (w *work) follows(o owning, d seenDelivery) bool {
	switch at := o.at.Duration; {
	case at >= d.op.call:
		return true
	case at < d.op.call-staleMax:
		return false
	case d.attempt == 1:
		return reached(w.part(d.partition).limits, d.offset, at-1)
	default:
		return slices.ContainsFunc(w.events(d.spot), func(e event) bool {
			return e.what == wasAttempted && e.attempt == d.attempt && e.at.Duration < at
		})
	}
}

// checkKeyOrder expects no record of a key to be handed out before all earlier records of that key are
// settled (see settledBy).
func (q *queueChecker) checkKeyOrder(w *work, d seenDelivery) {
	p := w.of.partitions[d.partition]
	if !w.config.Ordered || p.info[d.offset].key == "" || w.redrivenBy(d.spot, d.op.ret) {
		return
	}
	for o := range d.offset {
		at := spot{d.partition, o}
		if p.info[o].key == p.info[d.offset].key && !w.settledBy(at, d.op.ret) {
			q.history.violate("KeysInOrder", "%v was handed out before %s, at %v, which has the same key and was not done: %v", d.message, p.ids[o], at, d.op)
		}
	}
}

func (w *work) redrivenBy(at spot, then time.Duration) bool {
	for _, e := range w.events(at) {
		if e.what == wasRedriven && e.at.Duration <= then {
			return true
		}
	}
	return false
}

// settledBy reports whether, according to the log, a record was done, a dead letter or gone (see gone) by a
// given time.
func (w *work) settledBy(at spot, then time.Duration) bool {
	for _, e := range w.events(at) {
		if (e.what == wasDone || e.what == wasDeadLettered) && e.at.Duration <= then {
			return true
		}
	}
	return w.gone(at, then)
}

// checkRested expects a broker that acknowledged a pause of a queue to hand out no more records of the
// queue, and a broker that acknowledged a purge to hand out none of the purged records. It leaves out
// requests that the broker may have forwarded to another broker, which may not know of the pause or purge
// yet.
func (q *queueChecker) checkRested(w *work, d seenDelivery) {
	if d.op.via == viaHTTP && q.sim.plan.reach == reachable {
		return
	}
	for _, o := range q.ops {
		if o.queue != d.queueName || o.topic != d.topic || o.broker != d.op.broker || !o.acked() || o.ret > d.op.call {
			continue
		}
		switch {
		case o.kind == pauses && !q.mayRun(w, o.call, d.op.ret):
			q.history.violate("QueueAsAsked", "a paused queue handed out records: %v, then %v", o, d.op)
		case o.kind == purges && w.gone(d.spot, o.ret):
			q.history.violate("QueueAsAsked", "a purged record was handed out: %v, then %v", o, d.op)
		}
	}
}

// mayRun reports whether a paused queue was resumed between two times.
func (q *queueChecker) mayRun(w *work, from, to time.Duration) bool {
	for _, p := range w.paused {
		if !p.is && p.at.Duration >= from && p.at.Duration <= to {
			return true
		}
	}
	return false
}

// lost reports whether a worker had lost the delivery d by a given time: according to the log, the record was
// done, a dead letter or gone (see gone), or had a later attempt.
func (w *work) lost(d delivery, by time.Duration) bool {
	dead := time.Duration(-1)
	for _, e := range w.events(d.spot) {
		switch at := e.at.Duration; {
		case e.what == wasRedriven && d.attempt > e.attempt:
			dead = -1 // d was made after the redrive, so an earlier dead letter does not matter
		case e.what == wasDeadLettered && dead < 0:
			dead = at
		case e.what == wasDone && at <= by, e.attempt > d.attempt && at <= by:
			return true
		}
	}
	return dead >= 0 && dead <= by || w.gone(d.spot, by)
}

// checkAnswers expects the log to have each acknowledgement and each nack that a broker accepted. If a
// broker refused a worker's answer to a delivery, the worker must have lost that delivery by then.
func (q *queueChecker) checkAnswers(o *op) {
	for i, m := range o.tokens {
		w := q.final.all.workOf(m.queue)
		if w == nil {
			continue // [queueChecker.known] has reported the violation
		}
		switch {
		case o.kind != extends && o.taken(i):
			if !q.inLog(w, o, m) {
				q.history.violate("AckDurable", "the answer for %v was accepted, but is not in the log: %v", m, o)
			}
		case len(o.verdicts) > 0 && o.verdicts[i] == seb.CodeLeaseLost && !w.lost(m.delivery, o.ret) && (o.kind != extends || !q.leftAlone(w, m, o)):
			q.history.violate("LastCounts", "the answer for %v was refused, but this is the current delivery: %v", m, o)
		case o.failure == seb.CodeLeaseLost && len(o.tokens) == 1 && !w.lost(m.delivery, o.ret):
			q.history.violate("LastCounts", "the answer for %v was refused, but this is the current delivery: %v", m, o)
		}
	}
	if !o.asks() && !o.acked() && o.outcome == "" {
		q.history.violate("NoPhantom", "a failed write without an outcome: %v", o)
	}
}

// leftAlone reports whether the lease may have ended before the broker refused an extension.
func (q *queueChecker) leftAlone(w *work, m message, o *op) bool {
	d, ok := q.seen[m.delivery]
	if !ok {
		return true
	}
	for _, owner := range w.owners {
		if w.follows(owner, d) && owner.at.Duration <= o.ret {
			return true
		}
	}
	for _, e := range w.events(m.spot) {
		if e.what == wasPutBack && e.attempt == m.attempt {
			return true
		}
	}
	return q.leaseEnd(w, d, o.ret) <= o.ret
}

// inLog reports whether the effect of an acknowledgement or a nack was in the log by the time the broker accepted
// it: that the record is done, or, for a nack, that it is put back or a dead letter.
func (q *queueChecker) inLog(w *work, o *op, m message) bool {
	for _, e := range w.events(m.spot) {
		switch {
		case e.attempt != m.attempt || e.at.Duration > o.ret:
		case o.kind == acks && e.what == wasDone:
			return true
		case o.kind == nacks && (e.what == wasPutBack || e.what == wasDeadLettered) && e.reason == o.reason:
			return true
		}
	}
	return false
}
