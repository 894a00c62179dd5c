package trigger

import (
	"context"
	"fmt"
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
			in.watch(t.Topic, id, deadlineAt(from.UnixMicro()-1), nil)
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

// Explanation says what a trigger knows of an entity, and why: see [Triggers.Explain].
type Explanation struct {
	Trigger string    `json:"trigger"`
	Version int64     `json:"version"`
	Entity  string    `json:"entity"`
	From    time.Time `json:"from"` // since when the trigger looks at events
	Steps   []Step    `json:"steps"`
	Open    int       `json:"open_runs"`
	Next    time.Time `json:"next_deadline,omitzero"`
}

// Step is an event of an entity, or a deadline, and what it did.
type Step struct {
	Time     time.Time    `json:"time"`
	Event    *FiringEvent `json:"event,omitempty"` // nil at a deadline
	Did      []string     `json:"did"`
	Open     int          `json:"open_runs"`
	Deadline time.Time    `json:"next_deadline,omitzero"`
}

// stepsMax bounds the steps of an explanation.
const stepsMax = 10_000

// Explain evaluates the events of an entity under the last version of a trigger again, and tells what each of them did. It reads all
// records of the topics since the start of the trigger.
func (t *Triggers) Explain(ctx context.Context, name, entity string) (Explanation, error) {
	s, err := t.Get(ctx, name)
	if err != nil {
		return Explanation{}, err
	}
	c, err := compile(*s.Definition)
	if err != nil {
		return Explanation{}, invalid(err)
	}
	x := Explanation{Trigger: name, Version: s.Number, Entity: entity, From: s.At, Steps: []Step{}}
	if start := s.Definition.Start; !start.IsZero() && start.Before(s.At) {
		x.From = start.Time
	}
	now, err := t.b.Cut(ctx, s.Definition.From, seb.CutOptions{Existing: true})
	if err != nil {
		return Explanation{}, err
	}
	v := newEvaluator(func(firing) {})
	v.only = entity
	v.trace = func(m moment) {
		x.Open, x.Next = m.open, m.next
		if len(x.Steps) < stepsMax {
			x.Steps = append(x.Steps, stepOf(m))
		}
	}
	v.replace(v.version(name, s.Number, c), false)
	if err := replay(ctx, t.b, v, s.Definition.From, x.From, deadlineAt(now.LogTime.UnixMicro())); err != nil {
		return Explanation{}, err
	}
	v.pass(now.LogTime.UnixMicro())
	return x, nil
}

// stepOf tells in words what a moment did.
func stepOf(m moment) Step {
	s := Step{Time: timeOf(m.at.time), Open: m.open, Deadline: m.next, Did: []string{}}
	if m.event != nil {
		s.Event = &FiringEvent{m.event.Name, m.event.Topic, m.at.partition, m.at.offset, s.Time}
	}
	say := func(n int, one, many string) {
		switch {
		case n == 1:
			s.Did = append(s.Did, one)
		case n > 1:
			s.Did = append(s.Did, fmt.Sprintf(many, n))
		}
	}
	say(m.did.Begun, "a run begins", "%d runs begin")
	say(m.did.Over, "a run ends, since nothing can make it true now", "%d runs end, since nothing can make them true now")
	say(m.did.Superseded, "an older run ends, since the new one completes whenever it would", "%d older runs end, since the new one completes whenever they would")
	say(m.did.Dropped, "no run begins, since too many are open", "%d runs do not begin, since too many are open")
	say(m.did.Lost, "another run is complete at the same moment, and does not fire", "%d other runs are complete at the same moment, and do not fire")
	switch {
	case m.did.Fired != nil && m.repeats:
		s.Did = append(s.Did, "a run is complete, but the repeat does not allow the firing")
	case m.did.Fired != nil:
		s.Did = append(s.Did, "a run is complete, and the trigger fires")
	}
	say(int(m.errors), "a condition can't be decided, for example because a field is missing, so it does not hold",
		"%d conditions can't be decided, for example because fields are missing, so they do not hold")
	if len(s.Did) == 0 {
		s.Did = append(s.Did, "no run begins or ends")
	}
	return s
}
