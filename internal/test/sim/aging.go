package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/engine"
)

// ages is a topic whose records brokers delete by age, in most seeds. One client appends to it. No client deletes its records.
const ages = "ages"

func (p *plan) planAging(r *rand.Rand) {
	if chance(r, 0.7) {
		p.age = pick(r, 3*time.Second, 20*time.Second, time.Minute, 10*time.Minute)
		p.agePauses = between(r, 100*time.Millisecond, 20*time.Second)
		p.walls = p.walls && chance(r, 0.4) // a broker whose wall clock is wrong deletes nothing by age
	}
}

// setUpAging creates the topic whose records are deleted by age.
func (s *simulation) setUpAging() {
	if s.plan.age == 0 {
		return
	}
	s.setUpTopic(ages, seb.TopicOptions{Config: seb.TopicConfig{Retention: s.plan.age}})
}

// appendAging appends records to the topic whose records are deleted by age, and reads what it has.
func (s *simulation) appendAging() {
	r := stream(s.cfg.Seed, "aging")
	for i := range 10 + r.IntN(40) {
		s.sleep(time.Duration(r.Int64N(int64(2 * s.plan.agePauses))))
		l := s.nodes[r.IntN(len(s.nodes))].current()
		if l == nil {
			continue
		}
		id := fmt.Sprintf("aging.%d", i)
		o := &op{kind: appends, topic: ages, partition: -1, values: []string{id}}
		s.history.send(id, id)
		o.client, o.broker, o.via, o.call = "aging", l.name, viaLibrary, s.now()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		library{l.broker, s.history}.append(ctx, o, "", o.values)
		o.ret = s.now()
		s.history.add(o)
		if chance(r, 0.3) {
			s.readAging(ctx, l)
		}
		if chance(r, 0.3) {
			s.setAge(ctx, l)
		}
		cancel()
	}
}

// setAge sets the age again: what was set before the level of the log was raised does not apply.
func (s *simulation) setAge(ctx context.Context, l *life) {
	_, _ = l.broker.UpdateTopic(ctx, ages, seb.TopicUpdate{Retention: &s.plan.age}) // a later call sets it if this one fails
}

// readAging notes which records a broker reads from the start of the partition on.
func (s *simulation) readAging(ctx context.Context, l *life) {
	got, err := l.broker.Fetch(ctx, ages, 0, seb.Earliest, seb.FetchOptions{Limit: 1000})
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range got.Records {
		id, _ := s.history.identify(string(x.Value))
		s.aged = append(s.aged, agedRecord{l.name, x.Offset, id})
	}
}

// agedRecord is a record that a broker has read.
type agedRecord struct {
	broker string
	offset seb.Offset
	id     string
}

// finalAging expects all records to be deleted when they are over, although nothing is appended any longer.
func (s *simulation) finalAging(lives []*life) {
	if s.plan.age == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	for _, l := range lives {
		s.setAge(ctx, l)
	}
	cancel()
	b := &engine.Compaction
	time.Sleep(s.plan.age + s.plan.age/20 + b.RetainMin + 2*b.RetainGrace + max(s.plan.delay, s.plan.margin) + time.Minute)
	if !s.plan.clock || s.plan.walls || s.plan.dateJitter > 0 {
		return // a clock seems to be wrong, so records may stay
	}
	for _, l := range lives {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		t, err := l.broker.Topic(ctx, ages)
		cancel()
		switch {
		case err != nil:
			s.history.violate("Liveness", "%s does not describe a topic although the store has no faults: %v", l.name, err)
		case strings.Contains(t.Retention.Waits, "level"): // too few commits have raised it
		case t.Partitions[0].Start != t.Partitions[0].End:
			s.history.violate("RetentionAsAsked", "%s says that records are left which are older than %v: %+v, %+v", l.name, s.plan.age, t.Partitions[0], *t.Retention)
		}
	}
}

// tellRetention expects a start that brokers have moved to delete no record younger than the topic's retention.
func (s *simulation) tellRetention(in *incarnation, p *partition, start seb.Offset, at moment, now int64) {
	if in.name != ages {
		return
	}
	s.mu.Lock()
	s.counts.Expired += int(start - p.start())
	s.mu.Unlock()
	for o := p.start(); o < start; o++ {
		x := &p.info[o]
		if age := now - x.time; age < (s.plan.age - s.plan.skewBetween()).Microseconds() {
			s.history.violate("RetentionAsAsked", "slot %d deletes record %d, whose log time is %d µs before that of the slot; the topic keeps records for %v", at.seq, o, age, s.plan.age)
		}
		if age := s.begun.Add(at.Duration).Sub(time.UnixMicro(x.time)); age < s.plan.age-s.plan.skewBetween() {
			s.history.violate("RetentionAsAsked", "slot %d deletes record %d when %v have passed since its log time; the topic keeps records for %v", at.seq, o, age, s.plan.age)
		}
	}
}

// checkAging compares the records that brokers have read with the log.
func (x *checker) checkAging() {
	if x.sim.plan.age == 0 {
		return
	}
	p := x.final.partitions[place{ages, 0}]
	for _, r := range x.sim.aged {
		if p == nil || int(r.offset) >= len(p.ids) || p.ids[r.offset] != r.id {
			x.history.violate("DenseOffsets", "%s has read %s at offset %d of the topic %s, which the log does not have there", r.broker, r.id, r.offset, ages)
		}
	}
}
