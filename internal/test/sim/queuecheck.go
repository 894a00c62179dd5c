package sim

import (
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
)

// seenDelivery is one that some client got.
type seenDelivery struct {
	message
	op *op
}

// answering is an operation that says what became of a delivery.
type answering struct {
	op    *op
	index int // of its token
}

// queueChecker holds what operations with queues are compared with.
type queueChecker struct {
	*checker
	seen    map[delivery]seenDelivery
	answers map[delivery][]answering
	ops     []*op
}

// checkQueues expects queues to have handed out records as they must, and what clients said
// of them, and nothing else, to be what the log says.
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

// known returns the queue of a delivery, nil if the delivery makes no sense.
func (q *queueChecker) known(d seenDelivery) *work {
	w := q.final.all.workOf(d.queue)
	if w == nil || w.name != d.line || w.of.name != d.topic || d.partition >= len(w.of.partitions) ||
		int(d.offset) >= len(w.of.partitions[d.partition].ids) || w.of.partitions[d.partition].ids[d.offset] != d.id {
		q.history.violate("QueueAsAsked", "%v is not what stands there: %v", d.message, d.op)
		return nil
	}
	return w
}

// checkDelivery expects a delivery to be in the log before it is made, and not to be made
// too often, or too early.
func (q *queueChecker) checkDelivery(w *work, d seenDelivery) {
	var base uint32
	durable := false
	for _, e := range w.events(d.spot) {
		if e.what == wasAttempted && e.number == d.number && e.at.Duration <= d.op.ret {
			durable, base = true, e.base
		}
	}
	if d.number == 1 {
		durable, base = reached(w.part(d.partition).windows, d.offset, d.op.ret), 0
	}
	if !durable {
		q.history.violate("OwnNumber", "%v was handed out before the log said so: %v", d.message, d.op)
	}
	if tries := int(d.number - base); d.attempt != tries || tries > int(w.config.Attempts) {
		q.history.violate("AtMost", "%v is try %d of %d, and told as %d: %v", d.message, tries, w.config.Attempts, d.attempt, d.op)
	}
	if due, delayed := w.of.delayed[d.spot]; delayed && due.until() > d.op.ret+q.early(w, due, d.op.ret) {
		q.history.violate("NotBeforeDue", "%v is not due before %v: %v", d.message, due.until(), d.op)
	}
}

// checkDelay expects the log to delay records for as long as was asked for.
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

// early returns by how much a delay may be cut short that an owner has waited for by then. One
// that has committed it itself waits for all of it; others have to know how late it is.
func (q *queueChecker) early(w *work, d delaying, then time.Duration) time.Duration {
	alone := q.sim.plan.brokers == 1
	for _, o := range w.owners {
		alone = alone && (o.at.Duration <= d.from.Duration || o.at.Duration > then)
	}
	if alone {
		return slack
	}
	return q.sim.plan.astray()
}

// slack is what times lose on the way.
const slack = time.Millisecond

// checkClaim expects a delivery to follow the one before it only when that had failed, or
// its lease had run out.
func (q *queueChecker) checkClaim(w *work, d seenDelivery) {
	before, got := q.seen[delivery{d.queue, d.spot, d.number - 1}]
	var at time.Duration // when it was claimed
	free, early := time.Duration(-1), time.Duration(0)
	for _, e := range w.events(d.spot) {
		switch {
		case e.what == wasAttempted && e.number == d.number:
			at = e.at.Duration
		case e.number != d.number-1:
		case e.what == wasPutBack:
			free, early = e.rest.until(), q.early(w, e.rest, d.op.ret)
		case e.what == wasRedriven:
			free, early = 0, 0
		}
	}
	if d.number == 1 {
		return
	}
	if free < 0 {
		if !got {
			return
		}
		free = q.leaseEnd(w, before, at)
	}
	if at+max(slack, early) < free {
		q.history.violate("NotBeforeDue", "at %v delivery %d of %v was claimed, and the one before had it until %v: %v, %v", at, d.number, d.spot, free, before.op, d.op)
	}
}

// leaseEnd returns until when a delivery that was not answered for keeps its record at
// least, as seen at a time.
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
			return 0 // who knows
		case !o.taken(a.index) || o.ret < owned: // what an owner said is lost with it
		case o.call < owned+staleMax:
			end = min(end, o.until) // who knows whose word it is: the owner before may not have heard of the next
		default:
			end = o.until
		}
	}
	return end
}

// follows tells whether a delivery may be of an owner before this one, which takes it over
// then: also one that the owner before made before its next look at the log.
func (w *work) follows(o owning, d seenDelivery) bool {
	switch at := o.at.Duration; {
	case at >= d.op.call:
		return true
	case at < d.op.call-staleMax:
		return false
	case d.number == 1:
		return reached(w.part(d.partition).windows, d.offset, at-1)
	default:
		return slices.ContainsFunc(w.events(d.spot), func(e event) bool {
			return e.what == wasAttempted && e.number == d.number && e.at.Duration < at
		})
	}
}

// checkKeyOrder expects nothing of a key to be handed out while there is something to be
// done for an earlier record of it.
func (q *queueChecker) checkKeyOrder(w *work, d seenDelivery) {
	p := w.of.partitions[d.partition]
	if !w.config.Ordered || p.facts[d.offset].key == "" || w.redrivenBy(d.spot, d.op.ret) {
		return
	}
	for o := range d.offset {
		at := spot{d.partition, o}
		if p.facts[o].key == p.facts[d.offset].key && !w.settledBy(at, d.op.ret) {
			q.history.violate("KeysInOrder", "%v was handed out, and %s, at %v, is of the same key and was not done: %v", d.message, p.ids[o], at, d.op)
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

// settledBy tells whether the log had said by then that nothing more was to be done for a
// record, be it for a while.
func (w *work) settledBy(at spot, then time.Duration) bool {
	for _, e := range w.events(at) {
		if (e.what == wasDone || e.what == wasParked) && e.at.Duration <= then {
			return true
		}
	}
	return w.gone(at, then)
}

// checkRested expects a broker that said that a queue is paused, or purged, to hand out
// nothing of it after that. Another one, to which it passes a request on, may not know yet.
func (q *queueChecker) checkRested(w *work, d seenDelivery) {
	if d.op.via == viaHTTP && q.sim.plan.reach == reachable {
		return
	}
	for _, o := range q.ops {
		if o.queue != d.line || o.topic != d.topic || o.broker != d.op.broker || !o.acked() || o.ret > d.op.call {
			continue
		}
		switch {
		case o.kind == pauses && !q.mayRun(w, o.call, d.op.ret):
			q.history.violate("QueueAsAsked", "it was paused: %v, then %v", o, d.op)
		case o.kind == purges && w.gone(d.spot, o.ret):
			q.history.violate("QueueAsAsked", "it was purged: %v, then %v", o, d.op)
		}
	}
}

// mayRun tells whether a queue was not paused for a moment between two times.
func (q *queueChecker) mayRun(w *work, from, to time.Duration) bool {
	for _, p := range w.paused {
		if !p.is && p.at.Duration >= from && p.at.Duration <= to {
			return true
		}
	}
	return false
}

// lost tells whether some delivery did not count any more at some time.
func (w *work) lost(d delivery, by time.Duration) bool {
	parked := time.Duration(-1)
	for _, e := range w.events(d.spot) {
		switch at := e.at.Duration; {
		case e.what == wasRedriven && d.number > e.number:
			parked = -1 // what was handed out before never counts again
		case e.what == wasParked && parked < 0:
			parked = at
		case e.what == wasDone && at <= by, e.number > d.number && at <= by:
			return true
		}
	}
	return parked >= 0 && parked <= by || w.gone(d.spot, by)
}

// checkAnswers expects an answer that was taken to be in the log, and one that was refused
// not to count any more.
func (q *queueChecker) checkAnswers(o *op) {
	for i, m := range o.tokens {
		w := q.final.all.workOf(m.queue)
		if w == nil {
			continue // that was told
		}
		switch {
		case o.kind != extends && o.taken(i):
			if !q.inLog(w, o, m) {
				q.history.violate("AckDurable", "%v was answered for, and the log does not say so: %v", m, o)
			}
		case len(o.verdicts) > 0 && o.verdicts[i] == seb.CodeLeaseLost && !w.lost(m.delivery, o.ret) && (o.kind != extends || !q.leftAlone(w, m, o)):
			q.history.violate("LastCounts", "%v was refused, and is the last delivery: %v", m, o)
		case o.failure == seb.CodeLeaseLost && len(o.tokens) == 1 && !w.lost(m.delivery, o.ret):
			q.history.violate("LastCounts", "%v was refused, and is the last delivery: %v", m, o)
		}
	}
	if !o.asks() && !o.acked() && o.outcome == "" {
		q.history.violate("NoPhantom", "a failed write without an outcome: %v", o)
	}
}

// leftAlone tells whether an extension may have been refused for its lease's end.
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
		if e.what == wasPutBack && e.number == m.number {
			return true
		}
	}
	return q.leaseEnd(w, d, o.ret) <= o.ret
}

// inLog tells whether the log has said by the answer to an operation what that says.
func (q *queueChecker) inLog(w *work, o *op, m message) bool {
	for _, e := range w.events(m.spot) {
		switch {
		case e.number != m.number || e.at.Duration > o.ret:
		case o.kind == acks && e.what == wasDone:
			return true
		case o.kind == nacks && (e.what == wasPutBack || e.what == wasParked) && e.reason == o.reason:
			return true
		}
	}
	return false
}
