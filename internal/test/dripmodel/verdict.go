package dripmodel

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/driplang"
)

// Match reports whether history[event] matches the leaf, which is always an event: of "2 TIMES (A OR B)", A and B are asked for.
// Captured maps the aliases of the run that can be used at the leaf to indexes of events.
type Match func(leaf *driplang.Expr, event int, captured map[string]int) bool

// ByName returns a Match that compares names, and ignores conditions.
func ByName(history []driplang.Event) Match {
	return func(leaf *driplang.Expr, event int, _ map[string]int) bool {
		return leaf.Event == driplang.Any || leaf.Event == history[event].Name
	}
}

// instant is a moment, or the origin of an expression.
type instant struct {
	at       time.Time
	seen     int  // how many events of the history come up to it
	deadline bool // after all events of its time; otherwise it is right behind an event, or before all
}

func (a instant) compare(b instant) int {
	if c := a.at.Compare(b.at); c != 0 || a.deadline == b.deadline {
		return cmp.Or(c, cmp.Compare(a.seen, b.seen))
	}
	if b.deadline {
		return -1
	}
	return 1
}

func earlier(a, b instant) instant {
	if a.compare(b) <= 0 {
		return a
	}
	return b
}

// context is the earliest deadline of the windows around an expression, or nil if it is in no window.
type context *instant

// sequence is what all runs of an expression over a history share.
type sequence struct {
	expr   *driplang.Expr
	first  *driplang.Expr // the first part
	events []driplang.Event
	match  Match
	start  instant // what leaves of a lasting first part count from
	end    instant // the last moment that is asked for
}

func (s *sequence) event(i int) instant { return instant{at: s.events[i].LogTime, seen: i + 1} }

func (s *sequence) deadline(at time.Time) instant {
	seen := 0
	for seen < len(s.events) && !s.events[seen].LogTime.After(at) {
		seen++
	}
	return instant{at: at, seen: seen, deadline: true}
}

func (s *sequence) lasting() bool { return kindOf(s.expr) == lasting }

// begins reports whether a run begins with the event.
func (s *sequence) begins(event int) bool {
	return event >= s.start.seen && s.canBegin(s.first, event, true)
}

func (s *sequence) canBegin(e *driplang.Expr, event int, positive bool) bool {
	if e.Op == driplang.OpEvent {
		return positive && s.match(e, event, nil)
	}
	if e.Op == driplang.OpThen {
		return s.canBegin(e.Args[0], event, positive)
	}
	positive = positive != (e.Op == driplang.OpNot)
	return slices.ContainsFunc(e.Args, func(a *driplang.Expr) bool { return s.canBegin(a, event, positive) })
}

// run is a run of the expression, whether it is open or not.
type run struct {
	*sequence
	begun     int // the index of its first event
	origin    instant
	moments   []instant // in order
	deadlines []instant // of its windows, up to the end
	counted   bool      // towards the runs that may be open
}

// run returns the run that begins with an event. The deadlines of a run depend on when operands of THEN became true, which may
// be at deadlines: they are collected until there are no further ones.
func (s *sequence) run(event int) *run {
	r := &run{sequence: s, begun: event, origin: instant{at: s.events[event].LogTime, seen: event}}
	from := event
	if s.lasting() {
		r.origin, from = s.event(event), s.start.seen // verdict counts leaves of the first part from the start instead
	}
	for known := -1; known < len(r.deadlines); {
		known = len(r.deadlines)
		r.moments = slices.Clone(r.deadlines)
		for i := from; i < s.end.seen; i++ {
			r.moments = append(r.moments, s.event(i))
		}
		slices.SortFunc(r.moments, instant.compare)
		r.whole(s.end)
	}
	return r
}

// whole returns the verdict of the whole expression.
func (r *run) whole(m instant) driplang.Verdict { return r.verdict(r.expr, r.origin, m, nil, nil) }

// window returns the context in a node, and the moment to ask for there: what is in a window stays as it is at the deadline.
func (r *run) window(e *driplang.Expr, o, m instant, c context) (instant, context) {
	if e.Within == 0 {
		return m, c
	}
	d := r.deadline(o.at.Add(e.Within))
	if d.compare(r.end) <= 0 && !slices.Contains(r.deadlines, d) {
		r.deadlines = append(r.deadlines, d)
	}
	m = earlier(m, d)
	if c != nil {
		d = earlier(d, *c)
	}
	return m, &d
}

// verdict returns the verdict of e at m, counted from o.
func (r *run) verdict(e *driplang.Expr, o, m instant, c context, captured map[string]int) driplang.Verdict {
	if e == r.first && r.lasting() {
		o = r.start
	}
	m, c = r.window(e, o, m, c)
	switch {
	case leaf(e):
		switch {
		case len(r.matches(e, o, m, captured)) >= e.Times:
			return driplang.True
		case c == nil || m.compare(*c) >= 0:
			return driplang.False
		}
		return driplang.Undecided
	case e.Op == driplang.OpThen:
		s := r.stages(e, o, m, c, captured)
		last := s[len(s)-1]
		return r.verdict(e.Args[len(s)-1], last.origin, m, c, last.captured)
	}
	var of []driplang.Verdict
	for _, a := range e.Args {
		of = append(of, r.verdict(a, o, m, c, captured))
	}
	switch e.Op {
	case driplang.OpNot:
		return -of[0]
	case driplang.OpAnd:
		return slices.Min(of)
	default:
		return slices.Max(of)
	}
}

// leaf reports whether e counts events.
func leaf(e *driplang.Expr) bool { return e.Op == driplang.OpEvent || e.Times > 1 }

// matches returns the events after o, up to m, that match a leaf.
func (r *run) matches(e *driplang.Expr, o, m instant, captured map[string]int) []int {
	var found []int
	for i := o.seen; i < m.seen; i++ {
		matches := func(a *driplang.Expr) bool { return r.match(a, i, captured) }
		if e.Op == driplang.OpEvent && matches(e) || slices.ContainsFunc(e.Args, matches) {
			found = append(found, i)
		}
	}
	return found
}

// stage is from where an operand of THEN counts, and which aliases it can use.
type stage struct {
	origin   instant
	captured map[string]int
}

// stages returns the stages of those operands of a THEN that have an origin at m.
func (r *run) stages(e *driplang.Expr, o, m instant, c context, captured map[string]int) []stage {
	s := []stage{{o, captured}}
	for _, a := range e.Args[:len(e.Args)-1] {
		last := s[len(s)-1]
		x, ok := r.becomes(a, last.origin, m, c, last.captured)
		if !ok {
			break
		}
		s = append(s, stage{x, r.capture(a, last.origin, x, c, last.captured)})
	}
	return s
}

// becomes returns the first moment from o up to m at which e is true.
func (r *run) becomes(e *driplang.Expr, o, m instant, c context, captured map[string]int) (instant, bool) {
	for _, x := range r.moments {
		if o.compare(x) <= 0 && x.compare(m) <= 0 && r.verdict(e, o, x, c, captured) == driplang.True {
			return x, true
		}
	}
	return instant{}, false
}

// capture returns what is captured, and the aliases of events that have surely happened, now that e is true.
func (r *run) capture(e *driplang.Expr, o, m instant, c context, captured map[string]int) map[string]int {
	if e == r.first && r.lasting() {
		o = r.start
	}
	m, c = r.window(e, o, m, c)
	all := map[string]int{}
	maps.Copy(all, captured)
	switch {
	case e.Op == driplang.OpEvent && e.As != "":
		all[e.As] = r.matches(e, o, m, captured)[e.Times-1]
	case e.Op == driplang.OpAnd:
		for _, a := range e.Args {
			maps.Copy(all, r.capture(a, o, m, c, captured))
		}
	case e.Op == driplang.OpThen:
		s := r.stages(e, o, m, c, captured)
		last := s[len(s)-1]
		return r.capture(e.Args[len(s)-1], last.origin, m, c, last.captured)
	}
	return all
}

// Verdict returns the verdict of a finished sequence of events, at its last event, or at a time, without the events after it.
func Verdict(e *driplang.Expr, history []driplang.Event, at *time.Time, match Match) driplang.Verdict {
	s := &sequence{expr: e, first: firstPart(e), events: history, match: match}
	switch {
	case at != nil:
		s.end = s.deadline(*at)
	case len(history) > 0:
		s.end = s.event(len(history) - 1)
	}
	best := driplang.False
	for i := range s.end.seen {
		if s.begins(i) {
			best = max(best, s.run(i).whole(s.end))
		}
	}
	return best
}
