package sim

import (
	"fmt"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

const (
	// exactlyOnce is a queue that exists from the beginning to the end. Its workers append one result for
	// each record, in the commit that acknowledges the record. So each record has exactly one result, no
	// matter how often the queue has handed the record out.
	exactlyOnce = "commit"
	// made is the topic of the results. It exists during the whole run, and nothing else is written to
	// it.
	made = "made"
)

// workExactlyOnce works on records like a worker that may die at any point, is late, and repeats
// commits of unknown outcome.
func (c *client) workExactlyOnce(l *life, q queueRef) {
	switch what := c.rng.IntN(8); {
	case what < 1:
		c.oversee(l, q)
		return
	case what < 2 && len(c.committed) > 0:
		c.commitResults(l, c.committed) // some time later, the client commits its last results again
		return
	}
	got := c.ask(l, q)
	if len(got) == 0 {
		return
	}
	if chance(c.rng, 0.3) {
		c.think()
	}
	switch {
	case chance(c.rng, 0.1): // the worker dies
	case chance(c.rng, 0.15):
		c.say(l, nacks, got)
	default:
		c.commitResults(l, got)
		c.committed = got
	}
}

// commitResults commits the results of records, through any broker. It stops when a commit is acknowledged,
// when the lease is lost, or after a few attempts.
func (c *client) commitResults(l *life, got []message) {
	for range pick(c.rng, 1, 2, 4) {
		w, values := c.sim.transform(got, func() string {
			c.sent++
			return fmt.Sprintf("%s.%d", c.name, c.sent)
		})
		c.sim.commit(l, c.name, w, values, pick(c.rng, time.Minute, 2*time.Second, 50*time.Millisecond))
		if w.append.acked() || w.ack.failure == seb.CodeLeaseLost {
			return
		}
		if next := c.sim.nodes[c.rng.IntN(len(c.sim.nodes))].current(); next != nil {
			l = next
		}
	}
}

// transform returns a commit that acknowledges deliveries of one queue, and appends one result for each of
// them.
func (s *simulation) transform(of []message, name func() string) (w *together, values []string) {
	w = &together{
		append: &op{kind: appends, topic: made, partition: -1},
		ack:    queueRef{of[0].topic, exactlyOnce}.op(acks),
	}
	w.ack.tokens = of
	for _, m := range of {
		id := name()
		s.history.send(id, id)
		w.append.values, values = append(w.append.values, id), append(values, id)
		s.mu.Lock()
		s.sources[id] = m.delivery
		s.mu.Unlock()
	}
	return w, values
}

// finalTransform commits the results of records after all faults have ended.
func (s *simulation) finalTransform(l *life, got []message) *op {
	w, values := s.transform(got, func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Sprintf("%s.made.%d", atEnd, len(s.sources))
	})
	s.commit(l, atEnd, w, values, patience)
	return w.ack
}

// checkMade expects one result for every record that is done in a queue for exactly-once jobs, and no
// result for any other record.
func (x *checker) checkMade() {
	type source struct {
		queue format.QueueID
		spot
	}
	count := map[source]int{}
	for id, of := range x.sim.sources {
		count[source{of.queue, of.spot}] += len(x.at[id])
	}
	for _, in := range x.final.all {
		for _, w := range in.queues {
			if w.name != exactlyOnce {
				continue
			}
			for p := range in.partitions {
				for o := range seb.Offset(len(in.partitions[p].ids)) {
					at, want := spot{p, o}, 0
					if w.job(at).done {
						want = 1
					}
					if n := count[source{w.id, at}]; n != want {
						x.history.violate("ExactlyOnce", "%v of queue %d, %s of %s, has %d results, want %d", at, w.id, w.name, in.name, n, want)
					}
				}
			}
		}
	}
}

// countMade counts the results that are in the log, and the results that workers sent and that are not in
// the log.
func (s *simulation) countMade(c *Counts) {
	in := map[string]bool{}
	for _, p := range s.final.partitions {
		for _, id := range p.ids {
			in[id] = true
		}
	}
	for id := range s.sources {
		if in[id] {
			c.Made++
		} else {
			c.Remade++
		}
	}
}
