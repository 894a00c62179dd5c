package trigger

import (
	"context"
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/driplang"
)

// fold evaluates what happened before a version, from its start on, if that is in the past. So entities that are inside of a window
// already count. What was due before the version fires only if the version asks for that.
func (r *runner) fold(ctx context.Context, s *Version) error {
	a := r.known[firedVersion{s.Name, s.Number}]
	if a == nil || !a.current || a.Start.IsZero() {
		return nil
	}
	end := s.position()
	sub := newEvaluator(func(f firing) {
		p := &r.eval.pages[pageOf(f.entity)]
		if end.compare(p.clock) <= 0 {
			return
		}
		f.trigger = a
		if p.mayFire(entityKey{a, f.entity}, f.at.time) && s.CatchUp {
			a.counts.Fired++
			r.output.take(f)
		}
	})
	c := *a.compiled
	if _, per := c.Repeat.Limit(); per > 0 {
		c.Repeat = driplang.Every // the limit counts what earlier versions have fired, so it is checked above
	}
	of := sub.version(s.Name, s.Number, &c)
	sub.replace(of, false)
	if err := replay(ctx, r.b, sub, a.From, a.Start.Time, end); err != nil {
		return err
	}
	sub.pass(end.time - 1)
	for i := range sub.pages {
		p := &r.eval.pages[i]
		if end.compare(p.clock) <= 0 {
			continue
		}
		for entity, runs := range sub.pages[i].runs[of] {
			to := entityKey{a, entity}
			if p.done(to) {
				continue
			}
			p.put(to, runs)
			if due, ok := a.machine.Deadline(p.load(to, end.time-1)); ok {
				r.eval.timers.set(timer{due: due.UnixMicro(), key: to})
			}
		}
	}
	return nil
}

// replay evaluates the records of topics from a time up to a position.
func replay(ctx context.Context, b *seb.Broker, v *evaluator, topics []string, from time.Time, end position) error {
	cut, err := b.Cut(ctx, topics, seb.CutOptions{Existing: true})
	if err != nil {
		return err
	}
	in := &inputs{b: b, open: map[seb.TopicID]*input{}, gap: func(*input, int32, seb.Offset, seb.Offset) {}}
	for _, t := range cut.Topics {
		id, err := b.TopicID(ctx, t.Topic)
		if err != nil {
			return err
		}
		if b.TopicTag(id) == t.ID {
			in.watch(t.Topic, id, deadlineAt(from.UnixMicro()-1))
		}
	}
	_, err = in.read(ctx, cut, func(topic string, id seb.TopicID, rec *seb.Record) error {
		at := position{time: rec.LogTime.UnixMicro(), topic: id, partition: rec.Partition, offset: rec.Offset}
		if at.compare(end) >= 0 {
			return errStop
		}
		v.record(topic, id, rec)
		return nil
	})
	return err
}

// Report says what a trigger would have done: see [Triggers.Test].
type Report struct {
	From, To  time.Time
	Events    int64            // events that the trigger looked at
	Firings   int64            // firings in all
	Entities  int              // entities that have fired
	Most      int64            // the most firings of one entity
	ByDay     map[string]int64 // firings by the day on which they were due, in UTC
	Samples   []Firing         // the first ones
	Counts    Counts
	OpenRuns  int // entities with an open run at the end
	ReadBytes int64
}

// samplesMax is how many firings a report has.
const samplesMax = 20

// Test tells what a definition would have done from a time on until now, if it had been there. It appends nothing.
func (t *Triggers) Test(ctx context.Context, d Definition, from time.Time) (Report, error) {
	c, err := compile(d)
	if err != nil {
		return Report{}, invalid(err)
	}
	now, err := t.b.Cut(ctx, d.From, seb.CutOptions{})
	if err != nil {
		return Report{}, err
	}
	names := map[seb.TopicID]string{}
	for _, topic := range d.From {
		id, err := t.b.TopicID(ctx, topic)
		if err != nil {
			return Report{}, err
		}
		names[id] = topic
	}
	r := Report{From: from, To: now.LogTime, ByDay: map[string]int64{}}
	each := map[string]int64{}
	v := newEvaluator(func(f firing) {
		r.Firings++
		each[f.entity]++
		r.Most = max(r.Most, each[f.entity])
		r.ByDay[timeOf(f.at.time).Format(time.DateOnly)]++
		if len(r.Samples) < samplesMax {
			r.Samples = append(r.Samples, f.public(func(id seb.TopicID) string { return names[id] }))
		}
	})
	a := v.version("test", 1, c)
	v.replace(a, false)
	if err := replay(ctx, t.b, v, d.From, from, deadlineAt(now.LogTime.UnixMicro())); err != nil {
		return Report{}, err
	}
	v.pass(now.LogTime.UnixMicro())
	r.Entities, r.Events, r.Counts, r.OpenRuns = len(each), a.counts.Events, a.counts, a.entities
	return r, nil
}

// Firings returns the last firings of a trigger, the newest first. It looks at the last records of the topic that gets them.
func (t *Triggers) Firings(ctx context.Context, name string, most int) ([]Firing, error) {
	s, err := t.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	topic, err := t.b.Topic(ctx, s.Definition.To)
	if seb.CodeOf(err) == seb.CodeTopicNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []Firing
	for _, p := range topic.Partitions {
		last := max(p.Start, p.End-firingsLook)
		for last < p.End {
			got, err := t.b.Fetch(ctx, topic.Name, p.Partition, seb.AtOrAfter(last), seb.FetchOptions{})
			if err != nil {
				return nil, err
			}
			for i := range got.Records {
				if f, ok := decodeFiring(&got.Records[i]); ok && f.Trigger == name {
					found = append(found, f)
				}
			}
			last = got.Next
		}
	}
	slices.SortStableFunc(found, func(a, b Firing) int { return b.Fired.Compare(a.Fired) })
	return found[:min(len(found), most)], nil
}

// firingsLook is at how many records of each partition Firings looks.
const firingsLook = 1000
