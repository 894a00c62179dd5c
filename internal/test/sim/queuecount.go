package sim

import "github.com/simple-event-broker/seb"

// countQueue counts the results of an operation with a queue.
func (o *op) countQueue(c *Counts) {
	if o.failure == seb.CodeQueueElsewhere {
		c.Elsewhere++
	}
	for _, m := range o.messages {
		c.Received++
		if m.attempt > 1 {
			c.Retried++
		}
	}
	for i := range o.tokens {
		switch {
		case len(o.verdicts) > 0 && o.verdicts[i] == seb.CodeLeaseLost:
			c.Late++
		case o.taken(i) && o.kind == acks:
			c.Worked++
		case o.taken(i) && o.kind == nacks:
			c.PutBack++
		}
	}
	if o.kind == acks && o.with != nil && o.acked() {
		c.Together++
	}
}

// countQueues counts what the log tells about queues.
func (all truth) countQueues(c *Counts) {
	for _, in := range all {
		for _, w := range in.queues {
			c.Owners += len(w.owners)
			c.DeadLettered += w.count(wasDeadLettered)
			c.Redriven += w.count(wasRedriven)
		}
	}
}

// count returns how often something happened to records.
func (w *work) count(what happening) (n int) {
	for _, p := range w.parts {
		for _, j := range p.jobs {
			for _, e := range j.events {
				if e.what == what {
					n++
				}
			}
		}
	}
	return n
}
