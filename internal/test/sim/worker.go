package sim

import (
	"context"

	"github.com/simple-event-broker/seb"
)

// work uses a consumer as workers do: it reads with the consumer that all workers share, does the work, and
// commits what is done. The worker may die at any point. Several clients may do this at the same time. The
// client resets the consumer only if records were deleted before they were read.
func (c *client) work(l *life, t topic) {
	s := consumerRef{t.name, workConsumer}
	for range pick(c.rng, 1, 2, 3) {
		o := c.consume(l, s, c.rng.IntN(c.partitionsOf(t)+1)-1)
		if o.failure == seb.CodeOffsetOutOfRange {
			c.set(l, s, "earliest", 0)
			continue
		}
		if len(o.records) == 0 || chance(c.rng, 0.1) {
			return // the worker dies with the work undone
		}
		c.sim.finish(o)
		if chance(c.rng, 0.1) {
			return // the worker dies with the work done, before it has committed the offsets
		}
		c.commit(l, s, o.behind(), chance(c.rng, 0.3))
	}
}

// behind returns the offset after the records of a read, in the form that a commit takes.
func (o *op) behind() seb.Offsets { return seb.Offsets{int32(o.partition): o.next} }

// finish notes that the work on the records of a read is done.
func (s *simulation) finish(o *op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range o.records {
		s.done[r.id] = true
	}
}

// roundsMax is larger than the number of reads that the work on a topic takes at the end of the run.
const roundsMax = 100

// finalWork does the work that is left in a topic after all faults have ended.
func (s *simulation) finalWork(l *life, topic string) {
	w := consumerRef{topic, workConsumer}
	for range roundsMax {
		o := w.op(consumes)
		s.do(l, o, func(ctx context.Context, by caller) { by.consume(ctx, o, seb.FetchOptions{}) })
		next := w.op(commits)
		switch {
		case o.failure == seb.CodeOffsetOutOfRange:
			next.kind, next.to = sets, "earliest"
			s.do(l, next, func(ctx context.Context, by caller) { by.set(ctx, next) })
		case o.acked() && len(o.records) == 0:
			return
		case o.acked():
			s.finish(o)
			next.offsets = o.behind()
			s.do(l, next, func(ctx context.Context, by caller) { by.commit(ctx, next) })
		}
		if !o.acked() && next.kind == commits || !next.acked() {
			s.history.violate("Liveness", "failed although the store has no faults: %v, then %v", o, next)
			return
		}
	}
	s.history.violate("Liveness", "the work on %s does not end", topic)
}

// checkWork expects workers to have received every record that exists at the end of the run.
func (x *checker) checkWork() {
	for at, p := range x.final.partitions {
		if !x.stays(at.topic) {
			continue
		}
		for i, id := range p.ids {
			if offset := seb.Offset(i); offset >= p.start() && !x.sim.done[id] {
				x.history.violate("NothingPassed", "no worker ever got %s, at %d of %v", id, offset, at)
			}
		}
	}
}
