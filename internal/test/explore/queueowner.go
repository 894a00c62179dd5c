package explore

// queueBroker is a broker, with what it keeps in memory as the owner of the queue.
type queueBroker struct {
	name byte // not part of the state: brokers are interchangeable

	view  fold  // the state at the last slot that the broker has applied
	epoch uint8 // the epoch in which the broker believes that it is the owner; 0 if it believes it is not
	// gave has, for each record, the number of the broker's last delivery in this epoch; 0 means that there
	// was no delivery.
	gave [recordsMax]uint8
	// owes has, for each record, the number of the attempt that the broker has claimed: the broker hands
	// the record out once it learns that the log has the record claim. The number is deadLetter if the
	// broker has asked the log to make the record a dead letter, and 0 if the broker has done neither.
	owes [recordsMax]uint8
	// keeps has, for each record, the number of the delivery whose lease has not ended; 0 means that no
	// lease is left.
	keeps [recordsMax]uint8
	// lower is the dispatch limit that the broker has sent to the log, until the broker learns that the
	// log has this limit; 0 means that there is no such limit.
	lower uint8
	// leaving says that the broker has released the queue, and hands out no more records.
	leaving bool
}

// deadLetter is the value of owes for a record that the owner has asked the log to make a dead letter.
const deadLetter = 0xf

// owns reports whether the log says that a broker is the owner.
func (w *queueWorld) owns(b *queueBroker) bool {
	k := w.known()
	return k.owned && k.epoch == int(b.epoch)
}

// What an owner can do.
const (
	syncWithLog = iota
	takeOver
	moveWindow
	handOut      // hand out a fresh record
	attemptNext  // commit the next attempt of a record
	handOutAgain // make the delivery whose number is in the field owes
	deadLetterRecord
	extendLease
	endLease
	releaseQueue
	crashOwner
	ownerSteps
)

func (w *queueWorld) stepOwner(b *queueBroker) {
	switch n := w.pick(ownerSteps); n {
	case syncWithLog:
		w.sync(b)
	case takeOver:
		w.take(b)
	case moveWindow:
		w.moveWindow(b)
	case releaseQueue:
		w.release(b)
	case crashOwner:
		w.crash(b)
	default:
		if b.epoch == 0 || b.leaving {
			w.skip()
			return
		}
		w.stepRecord(b, n, w.pick(w.Records))
	}
}

func (w *queueWorld) stepRecord(b *queueBroker, what, record int) {
	switch {
	case what == handOut && w.mayHandOut(b, record):
		b.gave[record] = 1
		w.count(handOuts)
		w.deliver(b, record, 1)
	case what == attemptNext && w.mayAttempt(b, record):
		w.attempt(b, record)
	case what == handOutAgain && w.mayHandOutAgain(b, record):
		number := b.owes[record]
		b.owes[record], b.gave[record] = 0, number
		w.count(againOuts)
		w.deliver(b, record, int(number))
	case what == deadLetterRecord && w.mayDeadLetter(b, record):
		w.deadLetter(b, record)
	case what == extendLease && w.mayExtend(b, record):
		b.keeps[record] = w.last(b, record)
		w.tell("%c extends the lease of delivery %d of record %d", b.name, b.keeps[record], record)
		w.count(extensions)
	case what == endLease && b.keeps[record] != 0:
		w.tell("%c sees the lease of delivery %d of record %d end", b.name, b.keeps[record], record)
		b.keeps[record] = 0
	default:
		w.skip()
	}
}

// sync makes a broker apply what the log has.
func (w *queueWorld) sync(b *queueBroker) {
	if b.view == w.log || b.epoch == 0 && w.Without != RefuseUnsynced {
		w.skip() // the broker knows all of the log, or is not the owner and so does not act on what it knows
		return
	}
	w.tell("%c syncs", b.name)
	w.learn(b)
}

// learn makes a broker apply the log up to its end. Then the broker knows whether it is still the owner, and
// which leases have ended.
func (w *queueWorld) learn(b *queueBroker) {
	b.view, b.lower = w.log, 0
	if b.epoch != 0 && !w.owns(b) && w.Without != NoEpoch {
		b.forget()
	}
	for o := range b.owes {
		if b.owes[o] == deadLetter {
			b.owes[o] = 0
		}
		if r := &w.known().records[o]; r.over() || r.sure && (uint8(r.Number) != b.keeps[o] || r.Used() == 0) {
			b.keeps[o] = 0
		}
	}
}

func (b *queueBroker) forget() { *b = queueBroker{name: b.name, view: b.view} }

// take makes a broker the owner, even if the previous owner still works. The new dispatch limit is the
// end of the partition, or the offset after all records that the world can have.
func (w *queueWorld) take(b *queueBroker) {
	was := w.known()
	if was.epoch == w.Takeovers || !w.rarely(6) {
		w.skip()
		return
	}
	window := was.end
	if window < w.Records && w.pick(2) == 1 {
		window = w.Records
	}
	w.own(b, window)
	for o := range was.end {
		now := &w.known().records[o]
		if !was.records[o].sure && now.sure {
			w.count(uncertains)
		}
		if w.Leases && !now.over() && now.Used() > 0 {
			b.keeps[o] = uint8(now.Number) // the record's worker may still work on it
		}
		if w.Without == TakeUp && now.Number > 1 {
			b.owes[o] = uint8(now.Number)
		}
	}
}

// own commits a takeover, which always succeeds.
func (w *queueWorld) own(b *queueBroker, window int) {
	was := w.known()
	c := change{what: aTakeover, epoch: uint8(was.epoch + 1), window: uint8(window), silent: was.owned && w.Without == NoUncertainRange}
	w.log, _ = w.folds.try(w.log, c)
	w.tell("%c takes the queue over, with epoch %d and dispatch limit %d", b.name, c.epoch, window)
	b.forget()
	b.view, b.epoch = w.log, c.epoch
}

// commit tries to commit a change for an owner, and reports whether the log has accepted the change. The
// owner may learn of that only when it syncs.
//
// The fold refuses a commit of a former owner because of the epoch in the commit. But a commit that makes a
// record a dead letter has no epoch: it is a RecordPutBack, and workers may put records back through any
// broker. So the broker itself checks such a commit when it builds the commit.
func (w *queueWorld) commit(b *queueBroker, c change) bool {
	owns := w.owns(b)
	may := owns || w.Without == NoEpoch || c.what != aDeadLetter || w.Without == NoEpochAtDeadLetter
	if c.what != aDeadLetter {
		c.epoch = b.epoch
		if w.Without == NoEpoch {
			c.epoch = uint8(w.known().epoch)
		}
	}
	to, taken := w.folds.try(w.log, c)
	if !may || !taken || to == w.log {
		w.skip()
		if !owns {
			w.count(fenced)
		}
		return false
	}
	w.log = to
	if !owns {
		w.violate(Fenced, "%c, which owned the queue with epoch %d, still commits as its owner", b.name, b.epoch)
	}
	return true
}

// hear makes a broker learn that its commit is in the log. If QueueConfig.Late is true, the broker may
// also go on without that knowledge.
func (w *queueWorld) hear(b *queueBroker) {
	if w.Late && w.pick(2) == 1 {
		w.tell("%c does not learn yet that this is in the log", b.name)
		return
	}
	w.learn(b)
}

func (w *queueWorld) moveWindow(b *queueBroker) {
	if b.epoch == 0 || b.leaving {
		w.skip()
		return
	}
	window := 1 + w.pick(w.Records)
	if w.Without != LimitBelow && window <= w.given(b) {
		w.skip()
		return
	}
	if !w.commit(b, change{what: aWindow, window: uint8(window)}) {
		return
	}
	w.tell("%c moves the dispatch limit to %d", b.name, window)
	if w.Without != LimitUnheeded {
		b.lower = uint8(window)
	}
	w.hear(b)
}

// given returns the last record that the broker has handed out for the first time, and of which the log
// shows no delivery; -1 if there is no such record.
func (w *queueWorld) given(b *queueBroker) int {
	v, last := w.folds.at(b.view), -1
	for o := range w.Records {
		if b.gave[o] == 1 && !v.records[o].sure {
			last = o
		}
	}
	return last
}

// mayHandOut is rule 1 of docs/rfcs/0002: an owner hands out fresh records only below the dispatch limit in
// the log. After it has sent a lower limit to the log, it hands out fresh records only below the lower limit.
func (w *queueWorld) mayHandOut(b *queueBroker, record int) bool {
	v := w.folds.at(b.view)
	r := &v.records[record]
	if b.lower != 0 && record >= int(b.lower) {
		return false
	}
	return record < v.end && r.fresh() && b.gave[record] == 0 && (!r.sure || w.Without == WindowAfter)
}

// last returns the number of a record's last delivery, as an owner knows it; 0 means that the record
// is fresh.
func (w *queueWorld) last(b *queueBroker, record int) uint8 {
	r := &w.folds.at(b.view).records[record]
	if r.sure && w.Without != AttemptAfter {
		return uint8(r.Number)
	}
	return max(uint8(r.Number), b.gave[record])
}

// again reports whether a record was handed out, needs more work, and has no lease left. Then the owner must
// hand the record out once more, or make it a dead letter.
func (w *queueWorld) again(b *queueBroker, record int) bool {
	if w.folds.at(b.view).records[record].over() || w.last(b, record) == 0 || w.Without == OwnOnly && b.gave[record] == 0 {
		return false
	}
	return b.keeps[record] == 0 && (b.owes[record] == 0 || w.Without == AttemptAhead)
}

// attempts returns how many of a record's attempts are used up, as far as the owner knows.
func (w *queueWorld) attempts(b *queueBroker, record int) int {
	return int(w.last(b, record)) - int(w.folds.at(b.view).records[record].Redriven)
}

func (w *queueWorld) mayAttempt(b *queueBroker, record int) bool {
	return w.again(b, record) && (w.attempts(b, record) < w.Attempts || w.Without == NoMost && w.last(b, record) < numbersMax)
}

func (w *queueWorld) mayDeadLetter(b *queueBroker, record int) bool {
	return w.again(b, record) && w.attempts(b, record) >= w.Attempts
}

// mayExtend reports whether an owner may extend the lease of a record's last delivery. The owner must not
// extend the lease once it has sent the record claim for the next attempt to the log, since it can't
// withdraw the record claim. After a redrive of the record, the owner must not extend the lease either.
func (w *queueWorld) mayExtend(b *queueBroker, record int) bool {
	return w.Leases && w.made[record]&(1<<w.last(b, record)) != 0 && b.keeps[record] == 0 && w.attempts(b, record) > 0 &&
		!w.folds.at(b.view).records[record].over() && (b.owes[record] == 0 || w.Without == ExtendLate)
}

// attempt is rule 2 of docs/rfcs/0002: the owner commits the next attempt of a record before it hands the record
// out. The hand-out is a separate step.
func (w *queueWorld) attempt(b *queueBroker, record int) {
	number := w.last(b, record) + 1
	if w.Without == AttemptAfter {
		b.gave[record] = number
		w.deliver(b, record, int(number))
		return
	}
	if !w.commit(b, change{what: anAttempt, record: uint8(record), number: number}) {
		return
	}
	w.tell("%c commits that record %d gets delivery %d", b.name, record, number)
	b.owes[record] = number
	w.hear(b)
}

func (w *queueWorld) mayHandOutAgain(b *queueBroker, record int) bool {
	r := &w.folds.at(b.view).records[record]
	return b.owes[record] != 0 && !r.over() && uint8(r.Number) == b.owes[record]
}

func (w *queueWorld) deadLetter(b *queueBroker, record int) {
	if !w.commit(b, change{what: aDeadLetter, record: uint8(record), number: w.last(b, record)}) {
		return
	}
	w.tell("%c dead-letters record %d", b.name, record)
	w.count(deadLetters)
	b.owes[record] = deadLetter
	w.hear(b)
}

// release ends the ownership. The commit names the records that the owner has handed out only once, since the
// log has every later delivery of a record, but not the first.
func (w *queueWorld) release(b *queueBroker) {
	if b.epoch == 0 || b.leaving && w.Without != WorkOnAfterRelease || !w.rarely(10) {
		w.skip()
		return
	}
	c := change{what: aRelease}
	for o, number := range b.gave {
		if r := &w.folds.at(b.view).records[o]; number == 1 && r.fresh() && !r.sure && w.Without != SilentRelease {
			c.out |= 1 << o
		}
	}
	if !w.commit(b, c) {
		return
	}
	w.tell("%c releases the queue", b.name)
	if c.out != 0 {
		w.count(releases)
	}
	b.leaving = w.Without != WorkOnAfterRelease
	w.hear(b)
}

// crash makes a broker lose its memory, and restarts it at the end of the log.
func (w *queueWorld) crash(b *queueBroker) {
	if b.epoch == 0 || !w.rarely(20) {
		w.skip()
		return
	}
	w.tell("%c crashes, and restarts", b.name)
	w.count(ownerLosses)
	epoch := b.epoch
	b.forget()
	b.view = w.log
	if w.Without == OwnerByName && w.known().owned && w.known().epoch == int(epoch) {
		b.epoch = epoch
	}
}
