package explore

// queueWorld is a topic with a queue, the brokers that may own the queue, and the deliveries that were
// made. Each delivery has its own worker, which answers at any time, any number of times, through any
// broker.
type queueWorld struct {
	*QueueConfig
	moment
	folds *folds

	log      fold
	brokers  [brokersMax]queueBroker
	redriven int
	// made has, for each record, a bit for the number of each delivery of the record.
	made [recordsMax]uint8
	// back has, for each record, a bit for each delivery whose worker put the record back, and so gave
	// up the lease. back is kept only if Leases is true.
	back [recordsMax]uint8
	// base is, for each record, the number of the last delivery before the record's last redrive.
	base [recordsMax]uint8
}

func newQueueWorld(cfg *QueueConfig, f *folds) *queueWorld {
	w := &queueWorld{QueueConfig: cfg, moment: moment{only: cfg.Only}, folds: f}
	for i := range w.brokers[:cfg.Brokers] {
		w.brokers[i].name = 'A' + byte(i)
	}
	return w
}

// known returns the state at the end of the log.
func (w *queueWorld) known() *knownFold { return w.folds.at(w.log) }

// latest returns the highest delivery number of a record; 0 if there was no delivery.
func (w *queueWorld) latest(record int) (n int) {
	for w.made[record]>>(n+1) != 0 {
		n++
	}
	return n
}

// step makes one thing happen.
func (w *queueWorld) step() {
	const others = 3
	switch n := w.pick(others + w.Brokers); n {
	case 0:
		w.append()
	case 1:
		w.answer()
	case 2:
		w.redrive()
	default:
		w.stepOwner(&w.brokers[n-others])
	}
}

func (w *queueWorld) append() {
	end := w.known().end
	if end == w.Records {
		w.skip()
		return
	}
	w.log, _ = w.folds.try(w.log, change{what: anAppend})
	w.tell("record %d is appended", end)
}

// redrive sends a dead letter back to work.
func (w *queueWorld) redrive() {
	o := w.pick(w.Records)
	to, taken := w.folds.try(w.log, change{what: aRedriving, record: uint8(o)})
	if w.redriven == w.Redrives || !taken {
		w.skip()
		return
	}
	w.base[o] = uint8(w.known().records[o].Number)
	w.log = to
	w.redriven++
	w.tell("record %d is redriven", o)
	w.count(redrives)
}

// deliver hands a record out to a worker.
func (w *queueWorld) deliver(b *queueBroker, record, number int) {
	w.tell("%c hands out record %d, as delivery %d", b.name, record, number)
	if w.made[record]&(1<<number) != 0 {
		w.violate(OwnNumber, "record %d is handed out twice as delivery %d", record, number)
	}
	most := int(w.base[record]) + w.Attempts
	if number > most {
		w.violate(AtMost, "record %d is handed out as delivery %d, of at most %d", record, number, most)
	}
	w.made[record] |= 1 << number
	if w.Leases {
		b.keeps[record] = uint8(number)
	}
	if !w.owns(b) {
		w.count(staleHandOuts)
	}
}

// answer is a step in which a worker answers a delivery. It does not matter which broker commits the
// answer, since the broker decides by the state at the end of the log.
func (w *queueWorld) answer() {
	o := w.pick(w.Records)
	n := 1 + w.pick(w.Attempts*(w.Redrives+1))
	if w.made[o]&(1<<n) == 0 || !w.rarely(4) {
		w.skip()
		return
	}
	if w.pick(2) == 0 {
		w.ack(o, n)
	} else {
		w.nack(o, n)
	}
}

// token returns the delivery number in an answer. It is the number of the answered delivery, unless Without is
// CountAnew or NoAttemptCheck.
func (w *queueWorld) token(record, number int) uint8 {
	now := &w.known().records[record]
	switch {
	case w.Without == CountAnew: // a delivery after the redrive may have the same token
		return uint8(int(now.Redriven) + (number-1)%w.Attempts + 1)
	case w.Without == NoAttemptCheck && !now.done:
		return uint8(max(1, now.Number))
	default:
		return uint8(number)
	}
}

// ack makes a worker acknowledge a record. The state decides whether the acknowledgement is accepted. In a real
// broker, the acknowledgement may be a part of a larger commit.
func (w *queueWorld) ack(record, number int) {
	c := change{what: anAck, record: uint8(record), number: w.token(record, number)}
	if w.refusedUnsynced(record, number, c) {
		return
	}
	was := w.known().records[record]
	to, taken := w.tryAnswer(c, was)
	switch {
	case taken:
		w.log = to
		w.tell("the worker of delivery %d of record %d acknowledges it", number, record)
		if was.done {
			w.violate(DoneOnce, "record %d is done a second time", record)
		}
		w.counted(record, number, was)
	case was.done && w.Without == DoneAgain:
		w.tell("the worker of delivery %d of record %d commits its result again", number, record)
		w.violate(DoneOnce, "a result for record %d is committed twice", record)
	case was.done:
		w.undo = true // the acknowledgement is late or a retry: the broker answers that the record is done
		w.count(retries)
	default:
		w.refused(record, number, was)
	}
}

// nack makes a worker put a record back. If the record has no attempts left, it becomes a dead letter.
func (w *queueWorld) nack(record, number int) {
	was := w.known().records[record]
	c := change{what: aNack, record: uint8(record), number: w.token(record, number)}
	if int(c.number)-int(was.Redriven) >= w.Attempts {
		c.what = aDeadLetter
	}
	to, taken := w.tryAnswer(c, was)
	if !taken {
		w.refused(record, number, was)
		return
	}
	w.log = to
	w.tell("the worker of delivery %d of record %d puts it back", number, record)
	w.counted(record, number, was)
	w.count(nacks)
	if w.Leases {
		w.back[record] |= 1 << number
	}
}

// tryAnswer commits a worker's answer. It refuses an answer to a delivery before the record's last redrive, as
// brokers do.
func (w *queueWorld) tryAnswer(c change, was recordState) (to fold, taken bool) {
	if uint32(c.number) <= was.Redriven && w.Without != AnswerRedriven {
		return to, false
	}
	return w.folds.try(w.log, c)
}

// counted checks an answer that was accepted.
func (w *queueWorld) counted(record, number int, was recordState) {
	if base := int(w.base[record]); number <= base {
		w.violate(LastCounts, "the answer to delivery %d of record %d counts, though the record was redriven after delivery %d", number, record, base)
	}
	if latest := w.latest(record); number != latest {
		w.violate(LastCounts, "the answer to delivery %d of record %d counts, though delivery %d was made after it", number, record, latest)
	}
	if !w.known().owned {
		w.count(ownerlessAcks)
	}
}

// refused checks an answer that was refused. Such an answer changes nothing.
func (w *queueWorld) refused(record, number int, was recordState) {
	w.tell("the answer to delivery %d of record %d is refused", number, record)
	w.count(refusals)
	if !was.over() && number == w.latest(record) && int(was.Number) <= number && number > int(w.base[record]) {
		w.violate(LastCounts, "the answer to delivery %d of record %d is refused, though there is no later delivery", number, record)
	}
	given := was.done || w.back[record]&(1<<number) != 0 // the delivery was answered already
	for i := range w.brokers[:w.Brokers] {
		if b := &w.brokers[i]; !given && w.owns(b) && b.keeps[record] == uint8(number) {
			w.violate(LeaseKept, "the answer to delivery %d of record %d is refused, though for %c the lease has not ended", number, record, b.name)
		}
	}
	w.undo = w.wrong == nil
}

// refusedUnsynced reports whether a broker refuses an acknowledgement because the broker has not synced.
// That can happen only if Without is RefuseUnsynced.
func (w *queueWorld) refusedUnsynced(record, number int, c change) bool {
	if w.Without != RefuseUnsynced {
		return false
	}
	b := &w.brokers[w.pick(w.Brokers)]
	if _, taken := w.folds.try(b.view, c); taken {
		return false
	}
	w.tell("%c knows nothing of delivery %d of record %d", b.name, number, record)
	w.refused(record, number, w.known().records[record])
	return true
}
