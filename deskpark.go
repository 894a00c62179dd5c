package seb

import "github.com/simple-event-broker/seb/internal/leases"

// parksMax bounds how many records of a queue its owner parks at a time. All that are out
// may have failed for the last time at once, and each takes a goroutine and a request.
const parksMax = 256

// parkLocked has a record parked whose last delivery came to nothing.
func (d *desk) parkLocked(last leases.Delivery) {
	d.dying = append(d.dying, last)
	if d.parks < parksMax {
		d.parks++
		d.b.tasks.Go(d.parkAll)
	}
}

// parkAll parks records until there are none left to be parked.
func (d *desk) parkAll() {
	for {
		p, ok := d.nextToPark()
		if !ok {
			return
		}
		err := d.b.park(d.b.life, p)
		if CodeOf(err) == CodeLeaseLost {
			err = nil // it is done, or parked
		}
		d.settled([]leases.Delivery{p.last}, 0, err)
	}
}

func (d *desk) nextToPark() (p parking, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.dying) == 0 {
		d.dying = nil
		d.parks--
		return p, false
	}
	last := d.dying[0]
	d.dying = d.dying[1:]
	return parking{
		topic: d.topicName, queue: d.queueName, topicID: d.topic, queueID: d.queue, config: d.config, last: last, tries: d.tries(last),
		reason: reasonLeaseLost, may: d.mayOwn,
	}, true
}
