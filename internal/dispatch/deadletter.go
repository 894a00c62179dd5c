package dispatch

import "github.com/simple-event-broker/seb/internal/leases"

// deadLettersMax bounds how many records of a queue are made dead letters at the same time. Each takes a
// goroutine and a request to the broker, and thousands of records may fail their last attempt at once.
const deadLettersMax = 256

// deadLetterLocked starts to make a record a dead letter, after the last allowed delivery of the record
// failed.
func (d *Dispatcher) deadLetterLocked(last leases.Delivery) {
	d.failed = append(d.failed, last)
	if d.deadLettering < deadLettersMax {
		d.deadLettering++
		d.all.b.Go(d.deadLetterAll)
	}
}

func (d *Dispatcher) deadLetterAll() {
	for {
		last, ok := d.nextFailed()
		if !ok {
			return
		}
		err := d.all.b.DeadLetter(d.all.opts.Life, d, last, d.Attempt(last))
		d.settled([]leases.Delivery{last}, 0, err)
	}
}

func (d *Dispatcher) nextFailed() (last leases.Delivery, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.failed) == 0 {
		d.failed = nil
		d.deadLettering--
		return last, false
	}
	last = d.failed[0]
	d.failed = d.failed[1:]
	return last, true
}
