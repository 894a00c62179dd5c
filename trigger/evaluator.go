package trigger

import (
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/driplang"
)

// evaluator decides what triggers fire. It is a function of the triggers, and of the records and deadlines in their order.
type evaluator struct {
	triggers map[string]*active
	pages    [pageCount]page
	timers   timers
	at       position     // the last record
	passed   int64        // all deadlines up to this time have passed; microseconds since 1970
	emit     func(firing) // gets each firing, in order
}

// active is a version of a trigger that is being evaluated.
type active struct {
	*compiled
	name    string
	version int64
	machine driplang.Machine[*seen]
	counts  Counts
}

// Counts say what a trigger has done since its runner started.
type Counts struct {
	Events          int64 // events that the trigger looked at
	Fired           int64
	Lost            int64 // runs that became true at the same moment as a later run of the entity
	Repeats         int64 // firings that the repeat does not allow
	Dropped         int64 // runs that did not begin, since the entity had too many
	ConditionErrors int64 // conditions that could not be decided, and so did not hold
}

func newEvaluator(emit func(firing)) *evaluator {
	return &evaluator{triggers: map[string]*active{}, emit: emit}
}

// add begins to evaluate a trigger.
func (v *evaluator) add(name string, version int64, c *compiled) {
	a := &active{compiled: c, name: name, version: version}
	a.machine = driplang.Machine[*seen]{Program: c.program, RunsMax: c.RunsMax, Matches: a.matches, Same: a.same}
	v.triggers[name] = a
}

// record gives the next record to the triggers that watch its topic. Earlier deadlines pass first.
func (v *evaluator) record(topic string, id seb.TopicID, r *seb.Record) {
	at := position{time: r.LogTime.UnixMicro(), topic: id, partition: r.Partition, offset: r.Offset}
	v.pass(at.time - 1)
	v.at = at
	e := EventOf(topic, r)
	for _, a := range v.triggers {
		if slices.Contains(a.From, topic) && a.looksAt(e.Name) {
			v.event(a, &e, at)
		}
	}
}

// event gives an event to a trigger.
func (v *evaluator) event(a *active, e *Event, at position) {
	a.counts.Events++
	of := a.entityOf(e)
	if of == "" {
		return
	}
	key := entityKey{a.name, of}
	p := v.page(of)
	if at.compare(p.clock) <= 0 {
		return // the page was stored behind this record
	}
	n := p.load(a, key, v.passed)
	if n.done(a) {
		return
	}
	s := &seen{at: at, name: e.Name, event: e}
	res := a.machine.Event(&n.Entity, s, e.LogTime)
	v.took(a, key, n, res, at)
	v.store(p, a, key, n)
}

// pass passes all deadlines up to a time, in their order.
func (v *evaluator) pass(to int64) {
	for {
		t, ok := v.timers.next(to)
		if !ok {
			break
		}
		v.passed = t.due - 1
		a := v.triggers[t.key.trigger]
		if a == nil {
			continue // the trigger was deleted
		}
		p := v.page(t.key.entity)
		n := p.load(a, t.key, v.passed)
		if due, ok := a.machine.Deadline(&n.Entity); !ok || due.UnixMicro() != t.due {
			continue // the run that set the timer has ended, or has set another one
		}
		v.took(a, t.key, n, a.machine.Pass(&n.Entity, time.UnixMicro(t.due)), deadlineAt(t.due))
		v.store(p, a, t.key, n)
	}
	v.passed = to
}

// took counts what a moment did to an entity, and emits its firing.
func (v *evaluator) took(a *active, key entityKey, n *entity, r driplang.Result[*seen], at position) {
	a.counts.Lost += int64(r.Lost)
	a.counts.Dropped += int64(r.Dropped)
	switch {
	case r.Fired == nil:
	case n.mayFire(a.Repeat, at.time):
		a.counts.Fired++
		v.emit(a.firing(key.entity, r.Fired, at))
	default:
		a.counts.Repeats++
	}
}

// store stores an entity in its page, and sets the timer of its next deadline.
func (v *evaluator) store(p *page, a *active, key entityKey, n *entity) {
	p.save(a, key, n)
	if due, ok := a.machine.Deadline(&n.Entity); ok {
		v.timers.set(timer{due: due.UnixMicro(), key: key})
	}
}

// looksAt reports whether events of a name matter to the trigger.
func (a *active) looksAt(name string) bool {
	return slices.Contains(a.names, name) || slices.Contains(a.names, driplang.Any)
}

// entityOf returns the entity of an event; empty if the event has none.
func (a *active) entityOf(e *Event) string {
	if a.by == nil {
		return e.Entity
	}
	v, err := a.by.Value(&e.Event, nil)
	if err != nil {
		a.counts.ConditionErrors++
		return ""
	}
	return entityOf(v)
}

// matches decides an event node of the expression.
func (a *active) matches(node *driplang.Expr, s *seen, run *driplang.Run[*seen]) bool {
	if node.Event != driplang.Any && node.Event != s.name {
		return false
	}
	c := a.program.Condition(node)
	if c == nil {
		return true
	}
	holds, err := c.Holds(&s.event.Event, a.aliases(run))
	if err != nil {
		a.counts.ConditionErrors++
	}
	return holds && err == nil
}

// aliases returns the fields of the events that a run has captured.
func (a *active) aliases(run *driplang.Run[*seen]) func(alias string) (any, bool) {
	return func(alias string) (any, bool) {
		s, ok := a.machine.Captured(run, alias)
		if !ok {
			return nil, false
		}
		return s.variables(), true
	}
}
