package explore

import "math/bits"

// check checks all invariants in a state; the steps have checked most of them before.
func (w *queueWorld) check() {
	k := w.known()
	for o := range k.end {
		r := &k.records[o]
		if unmade := int(r.Number) - bits.OnesCount8(w.made[o]); !r.done && unmade > k.epoch {
			w.violate(OneEach, "%d attempts of record %d are used up that no worker got, by %d owners", unmade, o, k.epoch)
		}
	}
	for i := range w.brokers[:w.Brokers] {
		if b := &w.brokers[i]; w.owns(b) && !b.leaving {
			w.checkOwner(b)
		}
	}
	if !w.folds.finished[w.log] {
		w.checkNext()
	}
}

// checkOwner checks that the current owner, once it knows the log, can still act on each record that
// needs more work.
func (w *queueWorld) checkOwner(now *queueBroker) {
	b, k := *now, w.known()
	w.learn(&b)
	for o := range k.end {
		if !k.records[o].over() && !w.mayAct(&b, o) {
			w.violate(NeverLost, "record %d is lost: its owner %c can neither hand it out nor dead-letter it", o, b.name)
		}
	}
}

// mayAct reports whether an owner can act on a record, now or once the record's lease has ended.
func (w *queueWorld) mayAct(b *queueBroker, record int) bool {
	if r := &w.folds.at(b.view).records[record]; r.fresh() && r.sure { // the record is fresh and beyond the dispatch limit
		_, moves := w.folds.try(b.view, change{what: aWindow, epoch: b.epoch, window: uint8(record + 1)})
		return moves
	}
	return b.keeps[record] != 0 || w.mayHandOut(b, record) || w.mayAttempt(b, record) || w.mayDeadLetter(b, record) || w.mayHandOutAgain(b, record)
}

// checkNext checks that if a broker took the queue over now, it could finish all records.
func (w *queueWorld) checkNext() {
	next := *w
	next.trace = &trace{}
	b := &next.brokers[0]
	next.own(b, w.known().end)
	for o := range w.known().end {
		if !next.finish(b, o) {
			w.violate(NeverLost, "record %d is lost: no next owner can finish it", o)
			return
		}
	}
	w.folds.finished[w.log] = true
}

// finish makes an owner hand out a record, and a worker acknowledge the record. If the record has no
// attempts left, finish makes the owner turn the record into a dead letter.
func (w *queueWorld) finish(b *queueBroker, record int) bool {
	number, c := w.last(b, record), change{record: uint8(record)}
	switch {
	case w.known().records[record].over():
		return true
	case w.mayHandOut(b, record):
		number = 1
	case w.mayDeadLetter(b, record):
		c.what, c.number = aDeadLetter, number
		_, taken := w.folds.try(w.log, c)
		return taken
	case w.mayAttempt(b, record):
		number++
		c.what, c.epoch, c.number = anAttempt, b.epoch, number
		to, taken := w.folds.try(w.log, c)
		if !taken {
			return false
		}
		w.log, b.view = to, to
	default:
		return false
	}
	_, taken := w.folds.try(w.log, change{what: anAck, record: uint8(record), number: number})
	return taken
}
