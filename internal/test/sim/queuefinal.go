package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// finalWait is how long workers wait for records at the end of the run. It is longer than an
	// owner may be silent before another broker takes over.
	finalWait = 35 * time.Second
	// finalRounds bounds the receives of one queue at the end of the run. A correct queue is empty after
	// fewer receives.
	finalRounds = 200
	// finalLate is how many acknowledgements of a queue may time out. If the broker makes a separate
	// commit for each request, an acknowledgement waits for the commits of all dead letters, and may time out.
	finalLate = 5
	// finalDelay is longer than all delays and leases.
	finalDelay = 2 * time.Minute
)

// finalDrains does the work of all queues after all faults have ended.
func (s *simulation) finalDrains(lives []*life) {
	if s.plan.workers == 0 || len(lives) == 0 {
		return
	}
	topics, err := seb.Collect(lives[0].broker.Topics(context.Background(), seb.ListOptions{}))
	if err != nil {
		s.history.violate("Liveness", "failed although the store has no faults: %v", err)
		return
	}
	for i, t := range topics {
		for info, err := range lives[0].broker.Queues(context.Background(), t.Name, seb.ListOptions{}) {
			if err != nil {
				s.history.violate("Liveness", "failed although the store has no faults: %v", err)
				return
			}
			s.finalDrain(lives[i%len(lives)], queueRef{t.Name, info.Name})
		}
	}
}

// finalDrain does the work of a queue until no work is left.
func (s *simulation) finalDrain(l *life, q queueRef) {
	o := q.op(resumes)
	s.do(l, o, func(ctx context.Context, by caller) { by.pause(ctx, o) })
	late := 0
	idle := s.now()
	for range finalRounds {
		o := q.op(receives)
		s.do(l, o, func(ctx context.Context, by caller) {
			by.receive(ctx, o, seb.ReceiveOptions{Max: 1000, Wait: finalWait, MaxBytes: 64 << 20})
		})
		switch {
		case o.failure == seb.CodeQueueElsewhere:
			if next := s.follow(l, q); next != nil {
				l = next
			} else {
				time.Sleep(time.Second)
			}
		case !o.acked():
			s.history.violate("Liveness", "failed although the store has no faults: %v", o)
			return
		case len(o.messages) == 0:
			info, err := l.broker.Queue(q.topic, q.queue).Describe(context.Background())
			if err != nil {
				s.history.violate("Liveness", "failed although the store has no faults: %v: %v", q, err)
				return
			}
			if info.Exact && info.Ready+info.Held+info.Delayed+info.Leased == 0 {
				return
			}
			if most := finalDelay + s.plan.skewBetween() + 2*finalWait; s.now()-idle > most {
				s.history.violate("DueInTime", "no record of queue %v was handed out for more than %v: %+v", q, most, info)
				return
			}
		default:
			idle = s.now()
			a := q.op(acks)
			a.tokens = o.messages
			if q.queue == exactlyOnce {
				a = s.finalTransform(l, o.messages)
			} else {
				s.do(l, a, func(ctx context.Context, by caller) { by.ack(ctx, a) })
			}
			if a.failure == seb.CodeStoreUnavailable && late < finalLate {
				late++
				continue
			}
			if !a.acked() || slices.ContainsFunc(a.verdicts, func(c seb.Code) bool { return c != "" }) {
				s.history.violate("Liveness", "failed although the store has no faults: %v", a)
			}
		}
	}
	info, err := l.broker.Queue(q.topic, q.queue).Describe(context.Background())
	s.history.violate("Liveness", "the work of %v does not end: %+v, %v", q, info, err)
}

// compareQueues expects a recovered broker to know the queues of a topic as the commits left them.
func (s *simulation) compareQueues(b *seb.Broker, topic string, in *incarnation) {
	known := map[string]string{}
	for info, err := range b.Queues(context.Background(), topic, seb.ListOptions{}) {
		if err != nil {
			s.history.violate("LossIsLoud", "a recovery at the end of the run can't list the queues of %s: %v", topic, err)
			return
		}
		letters, _, _, err := b.Queue(topic, info.Name).Dead(context.Background(), seb.DeadOptions{Limit: 1000, MaxBytes: 64 << 20})
		if err != nil {
			s.history.violate("LossIsLoud", "a recovery at the end of the run can't read dead letters: %v", err)
		}
		var at []spot
		for _, m := range letters {
			at = append(at, spot{int(m.Partition), m.Offset})
		}
		known[info.Name] = fmt.Sprint(info.Ready+info.Held+info.Delayed+info.Leased, info.Epoch, at)
	}
	left := map[string]string{}
	for _, w := range in.queues {
		if w.ended == nil {
			undone, letters := w.left()
			left[w.name] = fmt.Sprint(len(undone), len(w.owners), letters)
		}
	}
	if fmt.Sprint(known) != fmt.Sprint(left) {
		s.history.violate("AckDurable", "a recovery at the end of the run has for %s the queues %v, want %v", topic, known, left)
	}
}

// left returns the records that are neither done nor gone: the records that the queue still has to hand out,
// and the dead letters.
func (w *work) left() (undone, dead []spot) {
	for p := range w.of.partitions {
		for o := range seb.Offset(len(w.of.partitions[p].ids)) {
			at := spot{p, o}
			switch j := w.job(at); {
			case j.done || w.gone(at, lifetimeMax) || o < w.of.partitions[p].start():
			case j.deadLettered:
				dead = append(dead, at)
			default:
				undone = append(undone, at)
			}
		}
	}
	return undone, dead
}
