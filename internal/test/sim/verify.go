package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/engine"
)

const (
	// patience is how long an operation may take on a store without faults.
	patience = 2 * time.Minute
	idleTime = time.Hour

	// atEnd is the client that checks the brokers at the end of the run.
	atEnd = "end"
)

// setUp creates the topics that exist during the whole run. At that time the only faults are crashes of new
// processes.
func (s *simulation) setUp() {
	for _, t := range s.plan.topics {
		s.setUpTopic(t.name, seb.TopicOptions{Partitions: int32(t.partitions)})
	}
}

func (s *simulation) setUpTopic(name string, opts seb.TopicOptions) {
	for created := false; !created; s.sleep(100 * time.Millisecond) {
		if s.now() > lifetimeMax {
			s.giveUp("no broker creates the topics")
		}
		for _, n := range s.nodes {
			if l := n.current(); l != nil && !created {
				_, _, err := l.broker.CreateTopic(context.Background(), name, opts)
				created = err == nil
			}
		}
	}
}

// verifyLiveness expects every broker to answer on a store without faults, and to send no requests while it
// has no clients. It adds the operations of this check to the history.
func (s *simulation) verifyLiveness() {
	var lives []*life
	for _, n := range s.nodes {
		if l := n.current(); l != nil {
			lives = append(lives, l)
		} else {
			s.history.violate("Liveness", "node %s does not start although the store has no faults", n.name)
		}
	}
	for i, l := range lives {
		for j, t := range s.plan.topics {
			s.finalAppend(l, t.name, fmt.Sprintf("end.%d.%d", i, j))
		}
	}
	time.Sleep(2 * time.Second) // more than any StaleMax
	for _, l := range lives {
		for _, t := range s.plan.topics {
			for p := range t.partitions {
				s.finalReads(l, place{t.name, p})
			}
		}
	}
	for i, t := range s.plan.topics {
		if len(lives) > 0 {
			s.finalWork(lives[i%len(lives)], t.name)
		}
	}
	s.finalDrains(lives)
	time.Sleep(2 * time.Second)
	for _, l := range lives {
		s.finalShows(l)
		s.finalLists(l)
	}
	s.finalAging(lives)
	time.Sleep(6*s.plan.delay + 12*engine.Compaction.RetainGrace) // brokers delete what is dead, also what has died by the commits of that
	time.Sleep(time.Minute)                                       // brokers answer the questions of others that are still under way
	before := s.sentBy(lives)
	time.Sleep(idleTime)
	byChance := s.plan.walls && s.plan.age > 0 // wall clocks may be right by chance, and then records are deleted
	if n := s.sentBy(lives) - before; n != 0 && !byChance {
		s.history.violate("Liveness", "%d store requests in an hour without a client", n)
	}
}

func (s *simulation) sentBy(lives []*life) (n int) {
	for _, l := range lives {
		l.link.mu.Lock()
		n += l.link.sent
		l.link.mu.Unlock()
	}
	return n
}

// finalAppend appends one record. If the brokers' clock stands still, finalAppend may try twice: with such a
// clock, a broker that was idle for longer than its log lease notices the end of the lease only after it has
// sent its claim. Then the outcome of the append is unknown.
func (s *simulation) finalAppend(l *life, topic, id string) {
	o := &op{kind: appends, topic: topic, partition: -1, values: []string{id}}
	s.history.send(id, id)
	s.do(l, o, func(ctx context.Context, by caller) { by.append(ctx, o, "", o.values) })
	switch {
	case o.acked():
	case o.outcome == seb.Unknown && !s.plan.clock && !strings.HasSuffix(id, "again"):
		s.finalAppend(l, topic, id+".again")
	default:
		s.history.violate("Liveness", "failed although the store has no faults: %v", o)
	}
}

func (s *simulation) do(l *life, o *op, do func(context.Context, caller)) {
	o.client, o.broker, o.via, o.call = atEnd, l.name, viaLibrary, s.now()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	do(ctx, library{l.broker, s.history})
	o.ret = s.now()
	s.history.add(o)
}

// finalReads reads a whole partition.
func (s *simulation) finalReads(l *life, p place) {
	for from := seb.Earliest; ; {
		o := &op{kind: reads, topic: p.topic, partition: p.partition, from: from}
		s.do(l, o, func(ctx context.Context, by caller) {
			by.read(ctx, o, seb.FetchOptions{Limit: 1000, MaxBytes: 64 << 20})
		})
		if !o.acked() {
			s.history.violate("Liveness", "failed although the store has no faults: %v", o)
		}
		if len(o.records) == 0 {
			return
		}
		from = seb.At(o.next)
	}
}
