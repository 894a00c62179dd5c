package trigger

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/driplang"
)

// evaluator decides what triggers fire. It is a function of the definitions, and of the records and deadlines in their order.
type evaluator struct {
	triggers map[string]*trigger
	pages    [pageCount]page
	timers   timers
	at       position             // the last record
	passed   int64                // all deadlines up to this time have passed; microseconds since 1970
	emit     func(firing)         // gets each firing, in order
	undo     *undo                // unless nil, notes what the evaluator changes
	trace    func(moment)         // unless nil, gets each moment of an entity
	only     string               // unless empty, the one entity that counts
	watching map[string]*watching // by topic
}

// watching has the versions that watch a topic, in the order in which they get an event.
type watching struct {
	all   []*active
	named map[string][]*active // those that events of a name matter to, for each name that one of them names
	any   []*active            // those that events of all other names matter to
}

// of returns the versions that events of a name matter to.
func (w *watching) of(name string) []*active {
	if named, ok := w.named[name]; ok {
		return named
	}
	return w.any
}

// moment is what an event or a deadline did to an entity.
type moment struct {
	key     entityKey
	at      position
	event   *Event // nil at a deadline
	did     driplang.Result[*seen]
	repeats bool // it would have fired, but the repeat does not allow that
	errors  int64
	next    time.Time // the next deadline; zero without one
	open    int       // runs that are open now
}

// currentVersion returns the version that begins runs, or nil.
func (t *trigger) currentVersion() *active {
	for _, a := range t.versions {
		if a.current {
			return a
		}
	}
	return nil
}

// trigger is a trigger by its name, whatever its definition.
type trigger struct {
	name     string
	versions []*active // the current one is the last, if it is not over; the others begin no runs
	counts   Counts
}

// active is a definition of a trigger that is evaluated.
type active struct {
	*compiled
	*trigger
	number   int64
	machine  driplang.Machine[*seen]
	current  bool // it begins runs
	frozen   bool // the trigger is paused
	entities int  // how many it knows
}

// Counts say what a trigger has done since its runner started.
type Counts struct {
	Events          int64 `json:"events"` // events that the trigger looked at
	Fired           int64 `json:"fired"`
	Lost            int64 `json:"lost"`             // runs that became true at the same moment as a later run of the entity
	Repeats         int64 `json:"repeats"`          // firings that the repeat does not allow
	Dropped         int64 `json:"dropped"`          // runs that did not begin, since the entity had too many
	ConditionErrors int64 `json:"condition_errors"` // conditions that could not be decided, and so did not hold
	Gaps            int64 `json:"gaps"`             // entities whose runs ended, since records were deleted before the trigger saw them
}

func newEvaluator(emit func(firing)) *evaluator {
	return &evaluator{triggers: map[string]*trigger{}, emit: emit}
}

// version makes a version of a trigger known, so that its entities can be loaded. It is not evaluated before replace is called.
func (v *evaluator) version(name string, number int64, c *compiled) *active {
	t := v.triggers[name]
	if t == nil {
		t = &trigger{name: name}
		v.triggers[name] = t
	}
	a := &active{compiled: c, trigger: t, number: number}
	a.machine = driplang.Machine[*seen]{Program: c.program, RunsMax: c.RunsMax, Matches: a.matches, Same: a.same}
	return a
}

// replace makes a version the current one of its trigger. The open runs of the version before go on, or are dropped.
func (v *evaluator) replace(a *active, drop bool) {
	v.retire(a.trigger, drop)
	a.current = true
	a.versions = append(a.versions, a)
	v.watch()
}

// watch finds out again which versions watch which topics.
func (v *evaluator) watch() {
	v.watching = map[string]*watching{}
	for _, t := range v.sorted() {
		for _, a := range t.versions {
			for i := 0; i < len(a.From) && !a.frozen; i++ {
				w := v.watching[a.From[i]]
				if w == nil {
					w = &watching{named: map[string][]*active{}}
					v.watching[a.From[i]] = w
				}
				w.all = append(w.all, a)
			}
		}
	}
	for _, w := range v.watching {
		for _, a := range w.all {
			if a.looksAt(driplang.Any) {
				w.any = append(w.any, a)
			}
			for _, name := range a.names {
				w.named[name] = nil
			}
		}
		for name := range w.named {
			for _, a := range w.all {
				if a.looksAt(name) {
					w.named[name] = append(w.named[name], a)
				}
			}
		}
	}
}

// looksAt reports whether events of a name matter to the version.
func (a *active) looksAt(name string) bool {
	return slices.Contains(a.names, name) || slices.Contains(a.names, driplang.Any)
}

// freeze pauses a trigger: neither events nor deadlines reach its entities.
func (v *evaluator) freeze(t *trigger) {
	for _, a := range t.versions {
		a.frozen = true
	}
	v.watch()
}

// unfreeze lets a trigger go on. Runs that could become true because of an event that came in the pause end; the others go on.
func (v *evaluator) unfreeze(t *trigger) {
	for _, a := range t.versions {
		if !a.frozen {
			continue
		}
		a.frozen = false
		v.eachEntity(a, func(p *page, key entityKey) {
			if a.program.NeedsAbsence() {
				p.put(key, "")
				a.counts.Gaps++
				return
			}
			n := p.load(key, v.passed)
			v.took(p, n, moment{key: key, at: deadlineAt(v.passed), did: a.machine.Pass(n, timeOf(v.passed))})
		})
	}
	v.watch()
}

// retire ends the time in which the current version of a trigger begins runs.
func (v *evaluator) retire(t *trigger, drop bool) {
	for _, old := range t.versions {
		if !drop && !old.current {
			continue
		}
		old.current = false
		v.eachEntity(old, func(p *page, key entityKey) {
			if drop {
				p.put(key, "")
				return
			}
			n := p.load(key, v.passed)
			n.Drain()
			p.save(key, n)
		})
	}
	t.versions = slices.DeleteFunc(t.versions, func(old *active) bool { return old.entities == 0 })
	v.watch()
}

// remove forgets a trigger and what it knew.
func (v *evaluator) remove(t *trigger) {
	v.retire(t, true)
	for i := range v.pages {
		p := &v.pages[i]
		if v.at.compare(p.clock) <= 0 {
			continue
		}
		if p.fired[t] != nil {
			delete(p.fired, t)
			p.dirty = true
		}
	}
}

// gap ends the runs for which it matters whether an event has come to a topic, since records of the topic are gone that the evaluator has not
// seen. Runs that wait for events only go on.
func (v *evaluator) gap(topic string) {
	for _, t := range v.sorted() {
		for _, a := range t.versions {
			if !slices.Contains(a.From, topic) || a.frozen || !a.program.NeedsAbsence() {
				continue
			}
			for i := range v.pages { // all, since nobody knows when the records were appended
				for entity := range v.pages[i].runs[a] {
					v.pages[i].put(entityKey{a, entity}, "")
					a.counts.Gaps++
				}
			}
		}
	}
}

// memory returns about how many bytes the entities take.
func (v *evaluator) memory() (n int64) {
	for i := range v.pages {
		n += v.pages[i].bytes
		for _, f := range v.pages[i].fired {
			n += int64(cap(f.packed) + 4*cap(f.order))
		}
	}
	return n
}

// eachEntity calls f for the entities of a version, except on pages that were stored behind the last record.
func (v *evaluator) eachEntity(of *active, f func(*page, entityKey)) {
	for i := range v.pages {
		p := &v.pages[i]
		if v.at.compare(p.clock) <= 0 {
			continue
		}
		for entity := range p.runs[of] {
			f(p, entityKey{of, entity})
		}
	}
}

// advance moves on to the next record. Earlier deadlines pass first.
func (v *evaluator) advance(to position) {
	v.pass(to.time - 1)
	v.at = to
}

// record gives the next record to the triggers that watch its topic.
func (v *evaluator) record(topic string, id seb.TopicID, r *seb.Record) {
	v.advance(position{time: r.LogTime.UnixMicro(), topic: id, partition: r.Partition, offset: r.Offset})
	w := v.watching[topic]
	if w == nil {
		return
	}
	if name, is := cloudEvent(r); is && len(w.of(name)) == 0 {
		return // most events matter to nobody, so don't decode their data
	}
	e := EventOf(topic, r)
	for _, a := range w.of(e.Name) {
		v.event(a, &e)
	}
}

// event gives an event to a version of a trigger.
func (v *evaluator) event(a *active, e *Event) {
	a.counts.Events++
	of := a.entityOf(e)
	if of == "" || v.only != "" && of != v.only {
		return
	}
	key := entityKey{a, of}
	p := &v.pages[pageOf(of)]
	if v.at.compare(p.clock) <= 0 || p.done(key) {
		return
	}
	n := p.load(key, v.passed)
	s := &seen{at: v.at, name: e.Name, event: e}
	errors := a.counts.ConditionErrors
	var res driplang.Result[*seen]
	if a.current {
		res = a.machine.Event(n, s, e.LogTime)
	} else {
		res = a.machine.Continue(n, s, e.LogTime)
	}
	v.took(p, n, moment{key: key, at: v.at, event: e, did: res, errors: a.counts.ConditionErrors - errors})
}

// pass passes all deadlines up to a time, in their order.
func (v *evaluator) pass(to int64) {
	for {
		t, ok := v.timers.next(to)
		if !ok {
			break
		}
		v.passed = t.due - 1
		if v.undo != nil {
			v.undo.timers = append(v.undo.timers, t)
		}
		if t.key.of.frozen {
			continue // unfreeze sets it again
		}
		p := &v.pages[pageOf(t.key.entity)]
		n := p.load(t.key, v.passed)
		machine := &t.key.of.machine
		if due, ok := machine.Deadline(n); !ok || due.UnixMicro() != t.due {
			continue // the run that set the timer has ended, or has set another one
		}
		v.took(p, n, moment{key: t.key, at: deadlineAt(t.due), did: machine.Pass(n, time.UnixMicro(t.due))})
	}
	v.passed = max(v.passed, to)
}

// took counts what a moment did to an entity, emits its firing, and stores the entity.
func (v *evaluator) took(p *page, n *entity, m moment) {
	a := m.key.of
	if v.undo != nil {
		v.undo.note(p, m.key)
	}
	a.counts.Lost += int64(m.did.Lost)
	a.counts.Dropped += int64(m.did.Dropped)
	switch {
	case m.did.Fired == nil:
	case p.mayFire(m.key, m.at.time):
		a.counts.Fired++
		v.emit(a.firing(m.key.entity, m.did.Fired, m.at))
		if p.done(m.key) {
			n = &entity{}
		}
	default:
		a.counts.Repeats++
		m.repeats = true
	}
	p.save(m.key, n)
	due, waits := a.machine.Deadline(n)
	if waits {
		v.timers.set(timer{due: due.UnixMicro(), key: m.key})
		m.next = due
	}
	if v.trace != nil {
		m.open = n.Runs()
		v.trace(m)
	}
}

// tryPass passes deadlines as pass does, and returns a function that takes that back.
func (v *evaluator) tryPass(to int64) (takeBack func()) {
	u := &undo{passed: v.passed, counts: map[*trigger]Counts{}}
	for _, t := range v.triggers {
		u.counts[t] = t.counts
	}
	v.undo = u
	v.pass(to)
	v.undo = nil
	return func() {
		for _, x := range slices.Backward(u.entities) {
			x.page.put(x.key, x.runs)
			x.page.putFired(x.key.of.trigger, x.key.entity, x.fired)
		}
		for _, t := range u.timers {
			v.timers.set(t)
		}
		for t, counts := range u.counts {
			t.counts = counts
		}
		v.passed = u.passed
	}
}

// undo is what tryPass has changed.
type undo struct {
	passed   int64
	timers   []timer
	entities []undoEntity
	counts   map[*trigger]Counts
}

// undoEntity is an entity as it was.
type undoEntity struct {
	page  *page
	key   entityKey
	runs  string
	fired firedTimes
}

func (u *undo) note(p *page, key entityKey) {
	u.entities = append(u.entities, undoEntity{p, key, p.runs[key.of][key.entity], p.firedTimes(key)})
}

// sorted returns the triggers by name.
func (v *evaluator) sorted() []*trigger {
	return slices.SortedFunc(maps.Values(v.triggers), func(a, b *trigger) int { return cmp.Compare(a.name, b.name) })
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
