package sim

import (
	"context"
	"maps"
	"time"

	"github.com/simple-event-broker/seb"
)

// Names of consumers. [client.work] uses workConsumer. Clients use the others in every possible way.
const (
	workConsumer = "works"
	freeA        = "plays-a"
	freeB        = "plays-b"
)

// consumerRef names a consumer, or all consumers that had that name one after the other.
type consumerRef struct{ topic, consumer string }

// useConsumer uses a consumer of a topic that exists during the whole run, or of one of the client's own
// topics.
func (c *client) useConsumer(l *life, stays topic) {
	if chance(c.rng, 0.4) {
		c.work(l, stays)
		return
	}
	topic, partitions := stays.name, c.partitionsOf(stays)
	if len(c.churn) > 0 && chance(c.rng, 0.3) {
		topic, partitions = c.churn[len(c.churn)-1], 1
	}
	s := consumerRef{topic, pick(c.rng, freeA, freeA, freeB)}
	for range pick(c.rng, 1, 2, 3) {
		c.useFreely(l, s, partitions)
	}
}

// useFreely does a random operation with a consumer.
func (c *client) useFreely(l *life, s consumerRef, partitions int) {
	switch what := c.rng.IntN(16); {
	case what < 4:
		c.set(l, s, pick(c.rng, "", "earliest", "latest", "offsets"), partitions)
	case what < 5:
		o := s.op(forgets)
		c.call(l, o, func(ctx context.Context, by caller) { by.forget(ctx, o) })
	case what < 6:
		o := s.op(lists)
		c.call(l, o, func(ctx context.Context, by caller) { by.list(ctx, o) })
	case what < 8:
		c.describe(l, s)
	case what < 10:
		c.consume(l, s, c.rng.IntN(partitions+1)-1)
	default:
		c.commit(l, s, c.someOffsets(s.topic, partitions), chance(c.rng, 0.6))
	}
}

// op returns an operation about the consumer.
func (s consumerRef) op(what kind) *op {
	return &op{kind: what, topic: s.topic, consumer: s.consumer, partition: -1}
}

// someOffsets returns offsets in some partitions, seldom beyond the end that the client knows.
func (c *client) someOffsets(topic string, partitions int) seb.Offsets {
	offsets := seb.Offsets{}
	for range 1 + c.rng.IntN(partitions) {
		p := c.rng.IntN(partitions)
		at := place{topic, p}
		low, beyond := c.starts[at], seb.Offset(0)
		if chance(c.rng, 0.1) {
			beyond = 4
		}
		offsets[int32(p)] = low + seb.Offset(c.rng.Int64N(int64(max(0, c.ends[at]-low)+beyond+1)))
	}
	return offsets
}

// set creates or resets a consumer. If to is "", an existing consumer keeps its positions.
func (c *client) set(l *life, s consumerRef, to string, partitions int) {
	o := s.op(sets)
	o.to = to
	if to == "offsets" {
		o.offsets = c.someOffsets(s.topic, partitions)
	}
	c.call(l, o, func(ctx context.Context, by caller) { by.set(ctx, o) })
	c.hear(o)
}

func (c *client) describe(l *life, s consumerRef) {
	o := s.op(describes)
	c.call(l, o, func(ctx context.Context, by caller) { by.describe(ctx, o) })
	c.hear(o)
}

// consume reads with a consumer. If partition is -1, the broker chooses the partition.
func (c *client) consume(l *life, s consumerRef, partition int) *op {
	o := s.op(consumes)
	o.partition = partition
	opts := seb.FetchOptions{Limit: pick(c.rng, 1, 3, 100), MaxBytes: pick(c.rng, int64(1), 10_000, 1<<20), Wait: pick(c.rng, 0, 0, 3*time.Second)}
	c.call(l, o, func(ctx context.Context, by caller) { by.consume(ctx, o, opts) })
	return o
}

// commit sets positions of a consumer. If insists is true, the commit has a version of the consumer as its
// condition. After an unknown outcome, the client may repeat the commit, through any broker.
func (c *client) commit(l *life, s consumerRef, offsets seb.Offsets, insists bool) {
	var version string
	if insists {
		version = c.versionOf(s)
	}
	for range pick(c.rng, 1, 2, 3) {
		o := s.op(commits)
		o.offsets, o.version = maps.Clone(offsets), version
		c.call(l, o, func(ctx context.Context, by caller) { by.commit(ctx, o) })
		c.hear(o)
		if o.outcome != seb.Unknown {
			return
		}
		if next := c.sim.nodes[c.rng.IntN(len(c.sim.nodes))].current(); next != nil {
			l = next
		}
	}
}

// versionOf returns a version of a consumer, for the condition of a commit: the version in the last answer
// to this client, or the version in the last answer to any client. So several clients may send commits with
// the same condition. It returns "" if no answer named a version.
func (c *client) versionOf(s consumerRef) string {
	if chance(c.rng, 0.5) && c.versions[s] != "" {
		return c.versions[s]
	}
	c.sim.mu.Lock()
	defer c.sim.mu.Unlock()
	return c.sim.versions[s]
}

// hear keeps the consumer's version that an answer names.
func (c *client) hear(o *op) {
	if len(o.told) == 0 || o.told[0].version == "" {
		return
	}
	s := consumerRef{o.topic, o.consumer}
	c.versions[s] = o.told[0].version
	c.sim.mu.Lock()
	defer c.sim.mu.Unlock()
	c.sim.versions[s] = o.told[0].version
}

// finalLists lists the consumers of all topics. The caller calls it when the store has had no faults for
// longer than StaleMax, so that the broker must know all consumers.
func (s *simulation) finalLists(l *life) {
	for _, t := range s.plan.topics {
		o := consumerRef{topic: t.name}.op(lists)
		s.do(l, o, func(ctx context.Context, by caller) { by.list(ctx, o) })
		if !o.acked() {
			s.history.violate("Liveness", "failed although the store has no faults: %v", o)
		}
	}
}
