package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
)

// queueRef names a queue, or all queues that had that name one after the other.
type queueRef struct{ topic, queue string }

// op returns an operation about the queue.
func (q queueRef) op(what kind) *op {
	return &op{kind: what, topic: q.topic, queue: q.queue, partition: -1}
}

// newWorker returns a client that works on queues as a bad worker does: it stalls beyond its
// leases, dies with its work undone, and answers late and twice.
func newWorker(s *simulation, index int) *client {
	c := s.newClient(fmt.Sprintf("w%d", index), stream(s.cfg.Seed, "worker", index))
	c.queueWorker = true
	return c
}

// workOnQueue does a random operation with a queue.
func (c *client) workOnQueue(l *life, stays topic) {
	q := queueRef{stays.name, jobs}
	switch what := c.rng.IntN(20); {
	case what < 4:
		q.queue = shortLived
	case what < 6:
		c.useOwnQueue(l)
		return
	case what < 9:
		c.workExactlyOnce(l, queueRef{stays.name, exactlyOnce})
		return
	}
	switch what := c.rng.IntN(40); {
	case what < 3:
		c.append(l, stays.name, c.partitionsOf(stays))
	case what < 20 || len(c.held) == 0 && what < 31:
		for range pick(c.rng, 1, 2, 4) {
			c.receive(l, q)
			if chance(c.rng, 0.3) {
				c.think()
			}
			c.answer(l)
		}
	case what < 31:
		c.answer(l)
	case what < 34 && len(c.past) > 0:
		c.answerAgain(l)
	case what < 35:
		c.held = nil // the worker dies, and another one begins
	default:
		c.oversee(l, q)
	}
}

// useOwnQueue uses a queue of one of the client's own topics, which the client creates and deletes.
func (c *client) useOwnQueue(l *life) {
	topic := c.ownTopic()
	q := queueRef{topic, jobs}
	c.append(l, topic, 1)
	c.openQueue(l, q)
	c.receive(l, q)
	switch {
	case chance(c.rng, 0.4):
		c.answer(l)
	case chance(c.rng, 0.4):
		c.delete(l)
	}
}

// oversee does what an operator does with a queue.
func (c *client) oversee(l *life, q queueRef) {
	if q.queue == shortLived && chance(c.rng, 0.6) {
		c.openQueue(l, q)
		return
	}
	switch what := c.rng.IntN(10); {
	case what < 2:
		o := q.op(pauses)
		c.call(l, o, func(ctx context.Context, by caller) { by.pause(ctx, o) })
	case what < 5:
		o := q.op(resumes)
		c.call(l, o, func(ctx context.Context, by caller) { by.pause(ctx, o) })
	case what < 8:
		o := q.op(redrives)
		c.call(l, o, func(ctx context.Context, by caller) { by.redrive(ctx, o) })
	case q.queue == shortLived:
		o := q.op(dissolves)
		c.call(l, o, func(ctx context.Context, by caller) { by.dissolve(ctx, o) })
	case what < 9:
		o := q.op(purges)
		c.call(l, o, func(ctx context.Context, by caller) { by.purge(ctx, o) })
	}
}

func (c *client) openQueue(l *life, q queueRef) {
	o := q.op(opens)
	o.to = pick(c.rng, "earliest", "earliest", "latest")
	c.call(l, o, func(ctx context.Context, by caller) { by.open(ctx, o, &c.sim.plan) })
}

// receive asks for records, and adds the received records to c.held.
func (c *client) receive(l *life, q queueRef) { c.held = append(c.held, c.ask(l, q)...) }

// ask asks for records, and may wait long for them. If another broker owns the queue, the client
// asks that broker.
func (c *client) ask(l *life, q queueRef) (got []message) {
	opts := seb.ReceiveOptions{Max: pick(c.rng, 1, 2, 5, 20), Wait: pick(c.rng, 0, 0, 3*time.Second, 40*time.Second), MaxBytes: pick(c.rng, int64(1), 10_000, 1<<20)}
	lease := pick(c.rng, 0, 0, time.Second, 10*time.Second)
	for range 3 {
		o := q.op(receives)
		o.lease = lease
		c.call(l, o, func(ctx context.Context, by caller) { by.receive(ctx, o, opts) })
		got = append(got, o.messages...)
		if o.failure != seb.CodeQueueElsewhere {
			return got
		}
		if l = c.sim.follow(l, q); l == nil {
			return got
		}
	}
	return got
}

// follow returns the life that owns a queue, as far as the broker of l knows. If the owner has ended, that
// broker takes the queue over, and follow returns l. If follow can't find an owner, it returns nil.
func (s *simulation) follow(l *life, q queueRef) *life {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	queue := l.broker.Queue(q.topic, q.queue)
	address, epoch, err := queue.Owner(ctx)
	if err != nil || s.plan.reach != reachable {
		return nil
	}
	for _, n := range s.nodes {
		if owner := n.current(); owner != nil && s.plan.address(owner.name) == address {
			return owner
		}
	}
	if err := queue.TakeOver(ctx, epoch); err != nil {
		return nil
	}
	return l
}

// answer acknowledges, puts back or extends some of the held records of one queue.
func (c *client) answer(l *life) {
	if len(c.held) == 0 {
		return
	}
	some, first := []message(nil), c.held[c.rng.IntN(len(c.held))]
	for _, m := range c.held {
		if m.topic == first.topic && m.queueName == first.queueName && (m == first || chance(c.rng, 0.5)) {
			some = append(some, m)
		}
	}
	switch what := c.rng.IntN(20); {
	case what < 7:
		c.say(l, acks, some)
	case what < 12:
		c.say(l, nacks, some)
	case what < 16 && first.queueName == jobs && c.sim.stays(first.topic):
		c.doTogether(l, some)
	case what < 18:
		o := queueRef{first.topic, first.queueName}.op(extends)
		o.tokens, o.lease = some, pick(c.rng, 0, time.Second, 30*time.Second)
		c.call(l, o, func(ctx context.Context, by caller) { by.extend(ctx, o) })
		return
	}
	c.held = slices.DeleteFunc(c.held, func(m message) bool { return slices.Contains(some, m) })
	if c.past = append(c.past, some...); len(c.past) > 20 {
		c.past = slices.Delete(c.past, 0, len(c.past)-20)
	}
}

// answerAgain acknowledges or puts back a record that the client no longer holds. For most records, this is the
// client's second answer.
func (c *client) answerAgain(l *life) {
	m := c.past[c.rng.IntN(len(c.past))]
	c.say(l, pick(c.rng, acks, acks, nacks), []message{m})
}

// say acknowledges deliveries or puts their records back. While the outcome is unknown it tries
// again, a few times, through any broker.
func (c *client) say(l *life, what kind, some []message) {
	for range pick(c.rng, 1, 2, 3) {
		o := queueRef{some[0].topic, some[0].queueName}.op(what)
		o.tokens = some
		if what == acks {
			c.call(l, o, func(ctx context.Context, by caller) { by.ack(ctx, o) })
		} else {
			c.sent++
			o.reason = fmt.Sprintf("%s.%d", c.name, c.sent)
			if chance(c.rng, 0.5) {
				o.delay = new(between(c.rng, time.Millisecond, time.Minute))
			}
			c.call(l, o, func(ctx context.Context, by caller) { by.nack(ctx, o) })
		}
		if o.outcome != seb.Unknown {
			return
		}
		if next := c.sim.nodes[c.rng.IntN(len(c.sim.nodes))].current(); next != nil {
			l = next
		}
	}
}

// stays reports whether a topic exists from the first operation to the last.
func (s *simulation) stays(name string) bool {
	return slices.ContainsFunc(s.plan.topics, func(t topic) bool { return t.name == name })
}
