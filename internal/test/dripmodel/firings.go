package dripmodel

import (
	"maps"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/driplang"
)

// Repeat says how often a trigger fires for an entity. The zero value sets no limit.
type Repeat struct {
	Once bool
	Most int           // at most so many firings ...
	Per  time.Duration // ... that are due in this time
}

// Options say how [Firings] evaluates.
type Options struct {
	Repeat
	RunsMax  int       // runs that may be open; 0 means 16
	Start    time.Time // events before it don't exist for the trigger
	Until    time.Time // deadlines up to it count, and those before the last event
	Replaced time.Time // from then on no run begins, since the trigger has another expression; zero if it has not
	Match    Match
	Captures func(captured map[string]int) string // the same for runs that have captured the same fields; nil if no alias is used
}

// Firing is one firing of a trigger.
type Firing struct {
	Due time.Time
	Run int // the index of the run's first event
	At  int // the index of the event at which the run fired, or -1 if it fired at a deadline
}

// Counts say what became of runs. After a firing under Once, nothing is counted.
type Counts struct {
	Begun      int // all runs
	Over       int // runs that nothing can make true, from their first event on or later
	Dropped    int // runs too many
	Superseded int // runs that have ended for a newer run, so that it isn't one too many
	Lost       int // runs that fired at the same moment as a run that began later
	Repeats    int // firings that the repeat has dropped
}

// Firings returns the firings of a trigger for one entity, in order. The history is all events of the entity, in order.
func Firings(e *driplang.Expr, history []driplang.Event, o Options) ([]Firing, Counts) {
	s := &sequence{expr: e, first: firstPart(e), events: history, match: o.Match}
	s.end = s.deadline(o.Until)
	s.start.at = o.Start
	for s.start.seen < len(history) && history[s.start.seen].LogTime.Before(o.Start) {
		s.start.seen++
	}
	runs := map[int]*run{}
	var moments []instant
	for i := range history {
		moments = append(moments, s.event(i))
	}
	if n := len(history); n > 0 && s.end.compare(s.event(n-1)) < 0 {
		s.end = s.event(n - 1)
	}
	for i := range history {
		if s.begins(i) {
			runs[i] = s.run(i)
			moments = append(moments, runs[i].deadlines...)
		}
	}
	slices.SortFunc(moments, instant.compare)

	t := trigger{sequence: s, Options: o}
	for _, m := range slices.Compact(moments) {
		replaced := !o.Replaced.IsZero() && !m.at.Before(o.Replaced)
		if replaced {
			t.open = slices.DeleteFunc(t.open, func(r *run) bool { return !r.counted })
		}
		if r, ok := runs[m.seen-1]; ok && !m.deadline && !replaced {
			t.open = append(t.open, r)
			t.counts.Begun++
		}
		t.end(m)
		if o.Once && len(t.firings) > 0 {
			break
		}
		t.count(m)
	}
	return t.firings, t.counts
}

// trigger is what the specification itself remembers: which runs are open, and what fired.
type trigger struct {
	*sequence
	Options
	open    []*run // in the order in which they began
	firings []Firing
	counts  Counts
}

// end ends the runs that fire at m, and those that nothing can make true after m.
func (t *trigger) end(m instant) {
	var open, fired []*run
	for _, r := range t.open {
		switch {
		case r.whole(m) == driplang.True:
			fired = append(fired, r)
		case !r.may(r.expr, r.origin, m, nil, nil, true):
			t.counts.Over++
		default:
			open = append(open, r)
		}
	}
	t.open = open
	if len(fired) == 0 {
		return
	}
	t.counts.Lost += len(fired) - 1
	f := Firing{Due: m.at, Run: fired[len(fired)-1].begun, At: m.seen - 1}
	if m.deadline {
		f.At = -1
	}
	recent := 0
	for _, before := range t.firings {
		if before.Due.After(m.at.Add(-t.Per)) {
			recent++
		}
	}
	if t.Most > 0 && recent >= t.Most {
		t.counts.Repeats++
		return
	}
	t.firings = append(t.firings, f)
}

// count counts the runs that begin to count at m, and drops those that are too many.
func (t *trigger) count(m instant) {
	if t.lasting() { // the last run whose first part wasn't true before stands for all of them
		var last *run
		for _, r := range t.open {
			if !r.counted {
				last = r
			}
		}
		t.open = slices.DeleteFunc(t.open, func(r *run) bool { return !r.counted && r != last })
	}
	most := t.RunsMax
	if most == 0 {
		most = 16
	}
	for _, r := range slices.Clone(t.open) {
		part, done := r.part(m)
		if r.counted || !done && (t.first.Times > 1 || t.lasting()) {
			continue
		}
		r.counted = true
		counted := slices.DeleteFunc(slices.Clone(t.open), func(x *run) bool { return !x.counted || x == r })
		if len(counted) < most {
			continue
		}
		ends, why := r, &t.counts.Dropped
		if done && !t.notBehind(t.expr) {
			i := slices.IndexFunc(counted, func(x *run) bool {
				p, ok := x.part(m)
				return ok && !x.seenBehind(x.expr, x.origin, m, nil, nil) && t.same(p.captured, part.captured)
			})
			if i >= 0 {
				ends, why = counted[i], &t.counts.Superseded
			}
		}
		*why++
		t.open = slices.DeleteFunc(t.open, func(x *run) bool { return x == ends })
	}
}

func (t *trigger) same(a, b map[string]int) bool {
	return t.Captures == nil || t.Captures(maps.Clone(a)) == t.Captures(maps.Clone(b))
}

// notBehind reports whether there is a NOT behind the first part.
func (s *sequence) notBehind(e *driplang.Expr) bool {
	return e != s.first && (e.Op == driplang.OpNot || slices.ContainsFunc(e.Args, s.notBehind))
}

// part returns when the first part of the run has become true, and what it has captured, and whether that was up to m.
func (r *run) part(m instant) (stage, bool) {
	var c context
	for e := r.expr; e != r.first; e = e.Args[0] {
		m, c = r.window(e, r.origin, m, c)
	}
	x, ok := r.becomes(r.first, r.origin, m, c, nil)
	if !ok {
		return stage{}, false
	}
	return stage{x, r.capture(r.first, r.origin, x, c, nil)}, true
}

// seenBehind reports whether a leaf behind the first part has matched an event.
func (r *run) seenBehind(e *driplang.Expr, o, m instant, c context, captured map[string]int) bool {
	if e == r.first {
		return false
	}
	m, c = r.window(e, o, m, c)
	switch {
	case leaf(e):
		return len(r.matches(e, o, m, captured)) > 0
	case e.Op == driplang.OpThen:
		for i, s := range r.stages(e, o, m, c, captured) {
			if r.seenBehind(e.Args[i], s.origin, m, c, s.captured) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(e.Args, func(a *driplang.Expr) bool { return r.seenBehind(a, o, m, c, captured) })
}

// may reports whether e may become true after m, or false, by the estimate of the specification. It includes "is".
func (r *run) may(e *driplang.Expr, o, m instant, c context, captured map[string]int, become bool) bool {
	if e == r.first && r.lasting() {
		o = r.start
	}
	if e.Within > 0 && m.compare(r.deadline(o.at.Add(e.Within))) >= 0 {
		v := r.verdict(e, o, m, c, captured)
		return become && v == driplang.True || !become && v == driplang.False
	}
	m, c = r.window(e, o, m, c)
	operand := func(a *driplang.Expr) bool { return r.may(a, o, m, c, captured, become) }
	cannot := func(a *driplang.Expr) bool { return !operand(a) }
	switch {
	case leaf(e) && len(r.matches(e, o, m, captured)) >= e.Times:
		return become
	case leaf(e):
		return true // no deadline around it has passed: see above
	case e.Op == driplang.OpNot:
		return r.may(e.Args[0], o, m, c, captured, !become)
	case e.Op == driplang.OpThen:
		s := r.stages(e, o, m, c, captured)
		last := s[len(s)-1]
		return len(s) < len(e.Args) && !become || r.may(e.Args[len(s)-1], last.origin, m, c, last.captured, become)
	case (e.Op == driplang.OpAnd) == become:
		return !slices.ContainsFunc(e.Args, cannot)
	default:
		return slices.ContainsFunc(e.Args, operand)
	}
}
