package driplang

import (
	"fmt"
	"slices"
	"time"
)

// Eval returns the verdict of the expression for a sequence of events of one entity: at the last event, or at a time if at is
// not zero, including the deadlines at that time. The verdict is true if that of any run is true at that moment, else undecided
// if one is, else false. The error says what is wrong with the times of the events: they must not fall, and only an expression
// without WITHIN can do without them. Eval takes time in proportion to the square of the number of events.
func (p *Program) Eval(events []Event, at time.Time) (Verdict, error) {
	if err := p.checkTimes(events, at); err != nil {
		return False, err
	}
	s := sequence{machine: Machine[*Event]{Program: p, Matches: p.Match}}
	var end moment
	for i := range events {
		if !at.IsZero() && events[i].LogTime.After(at) {
			break
		}
		end = moment{time: micros(events[i].LogTime)}
		s.event(&events[i], end)
	}
	if !at.IsZero() {
		end = moment{time: micros(at), deadline: true}
	}
	v := False
	for _, r := range s.runs {
		s.pass(r, end)
		v = max(v, r.verdict(p.root, r.begun, end, free))
	}
	return v, nil
}

// sequence is the state of [Program.Eval]. Unlike an [Entity], it keeps runs that are complete, since they may become false.
type sequence struct {
	machine Machine[*Event]
	entity  Entity[*Event] // of a lasting first part
	runs    []*Run[*Event] // those that are true, or can become true
}

func (s *sequence) event(event *Event, now moment) {
	m := &s.machine
	for _, r := range s.runs {
		s.pass(r, moment{time: now.time - 1, deadline: true})
		r.feed(m.root, r.begun, now.time, event, func(leaf *node) bool { return m.matches(leaf, event, r) })
	}
	var begun *Run[*Event]
	if m.kind == lasting {
		begun = m.accumulate(&s.entity, event, now.time)
	} else {
		begun = m.fresh(event, now.time)
	}
	if begun != nil {
		s.runs = append(s.runs, begun)
	}
	s.runs = slices.DeleteFunc(s.runs, func(r *Run[*Event]) bool {
		r.advance(m.root, r.begun, now, free)
		r.next = r.deadline(m.root, r.begun, now, free)
		may, _ := r.may(m.root, r.begun, now, free)
		return !may
	})
}

// pass passes the deadlines of a run up to a moment.
func (s *sequence) pass(r *Run[*Event], to moment) {
	root := s.machine.root
	for r.next != 0 && to.after(r.next) {
		now := moment{time: r.next, deadline: true}
		r.advance(root, r.begun, now, free)
		r.next = r.deadline(root, r.begun, now, free)
	}
}

func (p *Program) checkTimes(events []Event, at time.Time) error {
	timed := !at.IsZero() || p.hasWindow() || slices.ContainsFunc(events, func(e Event) bool { return !e.LogTime.IsZero() })
	for i := range events {
		switch {
		case events[i].LogTime.IsZero() && timed:
			return fmt.Errorf("event %d has no log time: windows, verdicts at a time and other events with times need the times of all events", i+1)
		case i > 0 && events[i].LogTime.Before(events[i-1].LogTime):
			return fmt.Errorf("event %d is earlier than event %d: log times never fall", i+1, i)
		}
	}
	return nil
}

// hasWindow reports whether the expression has a window.
func (p *Program) hasWindow() bool { return p.root.window != 0 || p.root.innerWindow() != nil }

// Match reports whether an event matches an event node of the program: its name, and its condition. A condition that can't be
// decided does not match: [Condition.Holds] tells why.
func (p *Program) Match(e *Expr, event *Event, r *Run[*Event]) bool {
	if e.Event != Any && e.Event != event.Name {
		return false
	}
	c := p.conditions[e]
	if c == nil {
		return true
	}
	holds, err := c.Holds(event, func(alias string) (any, bool) {
		leaf, ok := p.aliases[alias]
		if !ok || !r.happened(leaf) {
			return nil, false
		}
		return r.Events[leaf.leaf].Variables(), true
	})
	return err == nil && holds
}
