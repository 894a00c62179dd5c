package sim

import (
	"fmt"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// crafts is a queue that is there from the beginning to the end. Whoever works on it makes
	// something of each record, and commits that together with the acknowledgement: so of
	// each record exactly one thing is made, however often it was handed out.
	crafts = "crafts"
	// made is the topic of what was made. It stays, and nothing else is written to it.
	made = "made"
)

// craft works on records, as workers do that die at any point, come late, and do again what
// they don't know to be done.
func (c *client) craft(l *life, q backlog) {
	switch what := c.rng.IntN(8); {
	case what < 1:
		c.oversee(l, q)
		return
	case what < 2 && len(c.crafted) > 0:
		c.deliverCraft(l, c.crafted) // again, and late
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
	case chance(c.rng, 0.1): // it dies
	case chance(c.rng, 0.15):
		c.say(l, nacks, got)
	default:
		c.deliverCraft(l, got)
		c.crafted = got
	}
}

// deliverCraft commits what was made of records until that is known to be done, or not to be
// wanted any more, or some times, through whatever brokers.
func (c *client) deliverCraft(l *life, got []message) {
	for range pick(c.rng, 1, 2, 4) {
		w, values := c.sim.make(got, func() string {
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

// make returns a commit of one thing that is made of each of some records of one queue, and
// of their acknowledgement.
func (s *simulation) make(of []message, name func() string) (w *together, values []string) {
	w = &together{
		append: &op{kind: appends, topic: made, partition: -1},
		ack:    backlog{of[0].topic, crafts}.op(acks),
	}
	w.ack.tokens = of
	for _, m := range of {
		id := name()
		s.history.send(id, id)
		w.append.values, values = append(w.append.values, id), append(values, id)
		s.mu.Lock()
		s.makes[id] = m.delivery
		s.mu.Unlock()
	}
	return w, values
}

// finalCraft makes something of records in the end.
func (s *simulation) finalCraft(l *life, got []message) *op {
	w, values := s.make(got, func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Sprintf("%s.made.%d", atEnd, len(s.makes))
	})
	s.commit(l, atEnd, w, values, patience)
	return w.ack
}

// checkMade expects one thing to be made of every record whose work was done in a queue of
// crafts, and nothing of the others.
func (x *checker) checkMade() {
	type source struct {
		queue uint64
		spot
	}
	count := map[source]int{}
	for id, of := range x.sim.makes {
		count[source{of.queue, of.spot}] += len(x.at[id])
	}
	for _, in := range x.final.all {
		for _, w := range in.queues {
			if w.name != crafts {
				continue
			}
			for p := range in.partitions {
				for o := range seb.Offset(len(in.partitions[p].ids)) {
					at, want := spot{p, o}, 0
					if w.job(at).done {
						want = 1
					}
					if n := count[source{w.id, at}]; n != want {
						x.history.violate("ExactlyOnce", "of %v of queue %d, %s of %s, %d things were made, and it was done %d times", at, w.id, w.name, in.name, n, want)
					}
				}
			}
		}
	}
}

// countMade counts what was made, and what is not in the log of it.
func (s *simulation) countMade(c *Counts) {
	in := map[string]bool{}
	for _, p := range s.final.partitions {
		for _, id := range p.ids {
			in[id] = true
		}
	}
	for id := range s.makes {
		if in[id] {
			c.Made++
		} else {
			c.Remade++
		}
	}
}
