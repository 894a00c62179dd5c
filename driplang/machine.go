package driplang

import (
	"slices"
	"time"
)

// RunsMax is the default of [Machine].RunsMax.
const RunsMax = 16

// Machine decides a program event by event, for one entity at a time. T is what the caller keeps of an event. A machine has no
// state but its settings.
type Machine[T any] struct {
	*Program
	// Matches reports whether an event matches an event node of the program. A condition may need the events that the run has
	// seen, see [Machine.Captured]; the run is nil where no alias can be used.
	Matches func(node *Expr, event T, run *Run[T]) bool
	// Same reports whether two runs have captured the same fields. It can be nil if no alias is used.
	Same    func(a, b *Run[T]) bool
	RunsMax int // how many runs of an entity can be open; 0 means the constant [RunsMax]
}

// Entity has the runs of an entity. The zero value is an entity without events.
type Entity[T any] struct {
	runs    []*Run[T] // the open runs that count, in the order in which they began
	last    []int64   // of a counting first part: the times of the last events that match, at most as many as it counts
	lasting *Run[T]   // of a lasting first part: what has happened since the start
	waits   bool      // of a lasting first part: a run has begun, and the first part is not true yet
}

// Result says what a moment did to an entity.
type Result[T any] struct {
	Fired      *Run[T] // the run that fires, if one does
	Lost       int     // other runs that were complete at the same moment, and don't fire
	Begun      int     // runs that began
	Dropped    int     // runs that did not begin, since too many were open
	Superseded int     // runs that ended since a new one has the same future
	Over       int     // runs that ended because nothing can make them true
}

// Event feeds an event to an entity. Events come in the order of the log, and each deadline that [Machine.Deadline] names must
// have passed first if it is earlier than the event.
func (m *Machine[T]) Event(n *Entity[T], event T, at time.Time) (res Result[T]) {
	res = m.Continue(n, event, at)
	now := moment{time: micros(at)}
	if r := m.begin(n, event, now.time); r != nil {
		res.Begun++
		if !m.ended(r, now, &res) {
			m.enter(n, r, &res)
		}
	}
	return res
}

// Continue does the same as Event, but begins no run. It is for an expression that another one has replaced: see [Entity.Drain].
func (m *Machine[T]) Continue(n *Entity[T], event T, at time.Time) (res Result[T]) {
	now := moment{time: micros(at)}
	n.runs = slices.DeleteFunc(n.runs, func(r *Run[T]) bool {
		r.feed(m.root, r.begun, now.time, event, func(leaf *node) bool { return m.matches(leaf, event, r) })
		return m.ended(r, now, &res)
	})
	return res
}

// Pass passes the deadline at a time.
func (m *Machine[T]) Pass(n *Entity[T], deadline time.Time) (res Result[T]) {
	now := moment{time: micros(deadline), deadline: true}
	n.runs = slices.DeleteFunc(n.runs, func(r *Run[T]) bool { return m.ended(r, now, &res) })
	if m.kind == counting {
		n.last = slices.DeleteFunc(n.last, func(t int64) bool { return m.firstWindow != 0 && now.after(t+m.firstWindow) })
	}
	return res
}

// Deadline returns the next deadline of the entity. It is false if the entity waits for events only.
func (m *Machine[T]) Deadline(n *Entity[T]) (_ time.Time, ok bool) {
	var next int64
	for _, r := range n.runs {
		if d := r.next; d != 0 && (next == 0 || d < next) {
			next = d
		}
	}
	if m.kind == counting && m.firstWindow != 0 && len(n.last) > 0 {
		if d := n.last[len(n.last)-1] + m.firstWindow; next == 0 || d < next {
			next = d
		}
	}
	return time.UnixMicro(next).UTC(), next != 0
}

// Empty reports whether nothing has to be kept for the entity.
func (n *Entity[T]) Empty() bool { return len(n.runs) == 0 && len(n.last) == 0 && n.lasting == nil }

// Drain forgets everything but the open runs: what would only begin further ones.
func (n *Entity[T]) Drain() { n.last, n.lasting, n.waits = nil, nil, false }

// Runs returns the number of open runs that count.
func (n *Entity[T]) Runs() int { return len(n.runs) }

// matches reports whether an event matches a leaf.
func (m *Machine[T]) matches(leaf *node, event T, r *Run[T]) bool {
	return slices.ContainsFunc(leaf.events(), func(e *Expr) bool { return m.Matches(e, event, r) })
}

// ended advances a run to a moment, and reports whether it has ended with it.
func (m *Machine[T]) ended(r *Run[T], now moment, res *Result[T]) bool {
	r.advance(m.root, r.begun, now, free)
	if r.verdict(m.root, r.begun, now, free) == True {
		if res.Fired != nil {
			res.Lost++
		}
		res.Fired = r // runs come in the order in which they began
		return true
	}
	if may, _ := r.may(m.root, r.begun, now, free); !may {
		res.Over++
		return true
	}
	r.next = r.deadline(m.root, r.begun, now, free)
	return false
}

// begin returns the run that an event begins, or of which it makes the first part true if the run counts from then on; nil if
// it does neither.
func (m *Machine[T]) begin(n *Entity[T], event T, now int64) *Run[T] {
	switch m.kind {
	case counting:
		return m.count(n, event, now)
	case lasting:
		return m.accumulate(n, event, now)
	default:
		return m.fresh(event, now)
	}
}

// fresh returns the run that an event begins by itself; nil if it can't begin one.
func (m *Machine[T]) fresh(event T, now int64) *Run[T] {
	if !m.canBegin(func(leaf *node) bool { return m.matches(leaf, event, nil) }) { // no alias can be used in the first part
		return nil
	}
	r := newRun[T](m.Program, now)
	r.feed(m.root, now, now, event, func(leaf *node) bool { return m.matches(leaf, event, r) })
	return r
}

// canBegin reports whether an event matches a leaf of the first part that can begin a run.
func (m *Machine[T]) canBegin(match func(*node) bool) bool {
	return !m.first.allLeaves(func(leaf *node) bool { return leaf.negative || leaf.later || !match(leaf) })
}

// count keeps the times of the last events that match a counting first part. Once there are enough, they make a run.
func (m *Machine[T]) count(n *Entity[T], event T, now int64) *Run[T] {
	r := newRun[T](m.Program, now)
	if !m.matches(m.first, event, r) {
		return nil
	}
	if len(n.last) == m.first.Times {
		n.last = slices.Delete(n.last, 0, 1)
	}
	n.last = append(n.last, now)
	r.begun = n.last[0]
	if len(n.last) < m.first.Times || m.firstWindow != 0 && now > r.begun+m.firstWindow {
		return nil
	}
	r.counts[m.first.leaf] = uint16(m.first.Times)
	r.Events[m.first.leaf] = event
	return r
}

// accumulate counts an event in a lasting first part. The run that began last stands for all that wait for the first part.
func (m *Machine[T]) accumulate(n *Entity[T], event T, now int64) *Run[T] {
	if n.lasting == nil {
		n.lasting = newRun[T](m.Program, now)
	}
	match := func(leaf *node) bool { return m.matches(leaf, event, n.lasting) }
	if m.canBegin(match) {
		n.waits = true
		n.lasting.begun = now
	}
	n.lasting.feed(m.first, 0, now, event, match)
	n.lasting.advance(m.first, 0, moment{time: now}, free)
	if !n.waits || n.lasting.verdict(m.first, 0, moment{time: now}, free) != True {
		return nil
	}
	n.waits = false
	return n.lasting.clone()
}

// enter adds an open run to those of the entity, if there is room.
func (m *Machine[T]) enter(n *Entity[T], r *Run[T], res *Result[T]) {
	most := m.RunsMax
	if most == 0 {
		most = RunsMax
	}
	if len(n.runs) >= most {
		i := slices.IndexFunc(n.runs, func(old *Run[T]) bool { return m.supersedes(r, old) })
		if i < 0 {
			res.Begun--
			res.Dropped++
			return
		}
		n.runs = slices.Delete(n.runs, i, i+1)
		res.Superseded++
	}
	n.runs = append(n.runs, r)
}

// supersedes reports whether a new run completes whenever an old one does: see RFC 0006.
func (m *Machine[T]) supersedes(r, old *Run[T]) bool {
	return !m.notBehind && m.firstDone(r) && m.firstDone(old) && !m.seenBehind(old) && (m.Same == nil || m.Same(r, old))
}

// firstDone reports whether the first part of an open run is true.
func (m *Machine[T]) firstDone(r *Run[T]) bool {
	n := m.root
	for n.then >= 0 {
		if r.at[n.then] > 0 {
			return true
		}
		n = n.args[0]
	}
	return false
}

// seenBehind reports whether the run has seen an event that counts behind its first part.
func (m *Machine[T]) seenBehind(r *Run[T]) bool {
	return slices.ContainsFunc(m.leaves, func(leaf *node) bool { return !leaf.inFirst && r.counts[leaf.leaf] > 0 })
}

// Captured returns the event of an alias. It is false if the run has not seen it, or is nil.
func (m *Machine[T]) Captured(r *Run[T], alias string) (event T, ok bool) {
	leaf, ok := m.aliases[alias]
	if !ok || r == nil || !r.happened(leaf) {
		return event, false
	}
	return r.Events[leaf.leaf], true
}

// Seen returns the events that have made leaves of the expression true for a run, in the order of the expression.
func (m *Machine[T]) Seen(r *Run[T]) (events []T) {
	for i, leaf := range m.leaves {
		if r.happened(leaf) {
			events = append(events, r.Events[i])
		}
	}
	return events
}
