package trigger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// overdueAfter is how long the runner may show no sign of life while others commit, or after its next deadline.
	overdueAfter = 30 * time.Second
	// signAfter is how long after its last commit the runner shows a sign of life, if others commit.
	signAfter = 10 * time.Second
	// meetFor is how long a broker that starts waits for a connection to the broker that ran the triggers last.
	meetFor = 2 * time.Second
	// restAfter is how long a broker that does not run the triggers looks away after each change of the log.
	restAfter = time.Second
	// againAfter is how long a runner pauses after an error; up to againMax after several.
	againAfter, againMax = time.Second, time.Minute
	// finishMax is how long a runner that ends stores its state.
	finishMax = 5 * time.Second
	// memoryDefault is the default of Options.Memory.
	memoryDefault = 256 << 20
)

// Options are the options of [Open].
type Options struct {
	// Logger gets what the runner reports; nil means [slog.Default].
	Logger *slog.Logger
	// Memory bounds what the triggers know of entities, in bytes; 0 means 256 MiB. If they know more, they stop where they are in the
	// log, and go on from there once they may have more.
	Memory int64

	storeMin  int64      // replaces storeMin in tests
	trimAfter seb.Offset // replaces trimAfter in tests
}

// Triggers are the triggers of a log. One of the brokers that have opened them runs them; the others stand by.
type Triggers struct {
	b      *seb.Broker
	o      Options
	end    context.CancelFunc
	tasks  sync.WaitGroup
	others atomic.Bool // whether there are other brokers

	mu     sync.Mutex
	status Status
}

// Status says what this broker does with the triggers.
type Status struct {
	Running bool              // this broker runs them
	Err     error             // why it can't; nil if nothing is wrong
	LogTime time.Time         // the log time up to which they were evaluated
	Counts  map[string]Counts // by trigger, since this broker began to run them
	Waiting map[string]int    // by trigger, the entities with open runs
}

// Open takes part in running the triggers of a log. The caller calls Close before it closes the broker.
func Open(b *seb.Broker, o Options) *Triggers {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	ctx, end := context.WithCancel(context.Background())
	t := &Triggers{b: b, o: o, end: end}
	t.tasks.Go(func() { t.run(ctx) })
	t.tasks.Go(func() { t.countOthers(ctx) })
	return t
}

// Close ends the runner. Another broker goes on.
func (t *Triggers) Close() {
	t.end()
	t.tasks.Wait()
}

// Status returns what this broker does with the triggers.
func (t *Triggers) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.status
	s.Counts, s.Waiting = maps.Clone(s.Counts), maps.Clone(s.Waiting)
	return s
}

func (t *Triggers) set(change func(*Status)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.status)
}

// run stands by, takes over when the runner is lost, and runs until another broker takes over.
func (t *Triggers) run(ctx context.Context) {
	first, pause := true, againAfter
	for ctx.Err() == nil {
		began := time.Now()
		err := t.standBy(ctx, first)
		if err == nil {
			err = t.lead(ctx)
		}
		first = false
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errOvertaken):
			t.o.Logger.Info("another broker runs the triggers now")
			t.set(func(s *Status) { *s = Status{} })
		default:
			t.o.Logger.Error("the triggers do not run; trying again", "err", err)
			t.set(func(s *Status) { *s = Status{Err: err} })
		}
		if pause = min(2*pause, againMax); time.Since(began) > againMax {
			pause = againAfter
		}
		if wait(ctx, pause) != nil {
			return
		}
	}
}

// lead runs the triggers.
func (t *Triggers) lead(ctx context.Context) error {
	r, err := openRunner(ctx, t.b, t.o)
	if err != nil {
		return err
	}
	t.o.Logger.Info("this broker runs the triggers")
	r.report = func() {
		t.set(func(s *Status) {
			*s = Status{Running: true, LogTime: r.cut.LogTime, Counts: map[string]Counts{}, Waiting: map[string]int{}}
			for name, x := range r.eval.triggers {
				s.Counts[name] = x.counts
				for _, a := range x.versions {
					s.Waiting[name] += a.entities
				}
			}
		})
	}
	r.others = t.others.Load
	if err = r.run(ctx); ctx.Err() == nil {
		_ = r.output.settle() // whatever became of the ride, the next runner recovers from the log
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishMax)
	defer cancel()
	if err := r.finish(last); err != nil {
		t.o.Logger.Warn("the state of the triggers could not be stored at the end, so the next runner has more to read", "err", err)
	}
	return ctx.Err()
}

// countOthers finds out again and again whether there are other brokers.
func (t *Triggers) countOthers(ctx context.Context) {
	for ctx.Err() == nil {
		t.others.Store(len(t.b.Peers().List(ctx)) > 0)
		_ = wait(ctx, signAfter) // returns early if ctx ends
	}
}

// standBy returns when this broker is to run the triggers.
func (t *Triggers) standBy(ctx context.Context, starts bool) error {
	cut, err := t.b.Cut(ctx, []string{definitionsTopic, stateTopic}, seb.CutOptions{Existing: true})
	var w watcher
	for {
		if err != nil {
			return err
		}
		lost, next, err := w.look(ctx, t.b, cut)
		if err != nil || lost {
			return err
		}
		if starts && w.known {
			if starts = false; !t.meets(ctx, w.runner) {
				return ctx.Err()
			}
		}
		if cut, err = t.later(ctx, cut, next); err != nil {
			return err
		}
	}
}

// later waits until the log has changed, or a time of the store has come; then it makes sure that it knows all of the log.
func (t *Triggers) later(ctx context.Context, cut seb.Cut, next time.Time) (seb.Cut, error) {
	if err := wait(ctx, restAfter); err != nil {
		return cut, err
	}
	o := seb.CutOptions{Existing: true, Later: cut.LogTime}
	names := []string{definitionsTopic, stateTopic}
	if next.IsZero() {
		return t.b.Cut(ctx, names, o)
	}
	waiting, cancel := context.WithTimeout(ctx, max(0, next.Sub(cut.StoreTime)))
	defer cancel()
	got, err := t.b.Cut(waiting, names, o)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		o.Later = time.Time{}
		return t.b.Cut(ctx, names, o)
	}
	return got, err
}

// meets reports whether this broker gets a connection to a session within a short time.
func (t *Triggers) meets(ctx context.Context, session string) bool {
	ctx, cancel := context.WithTimeout(ctx, meetFor)
	defer cancel()
	for {
		for _, p := range t.b.Peers().List(ctx) {
			if p.Connected && p.Session.String() == session {
				return true
			}
		}
		if wait(ctx, meetFor/10) != nil {
			return false
		}
	}
}

// watcher watches the runner of another broker.
type watcher struct {
	known   bool
	runner  string // the session that wrote the last entry of the journal
	version string // of the runner's consumer
	moved   time.Time
	next    time.Time // the next deadline; zero without one
}

// look reports whether the runner is lost, and if not, when to look again although nothing has changed.
func (w *watcher) look(ctx context.Context, b *seb.Broker, cut seb.Cut) (lost bool, again time.Time, err error) {
	ends := map[string]seb.Offset{}
	for _, c := range cut.Topics {
		ends[c.Topic] = c.Ends[0]
	}
	if ends[definitionsTopic] == 0 {
		return false, time.Time{}, nil // no trigger was ever defined
	}
	if ends[stateTopic] == 0 {
		return true, time.Time{}, nil // nobody has run them yet
	}
	info, err := b.Consumer(stateTopic, runnerConsumer).Describe(ctx)
	if err != nil {
		return false, time.Time{}, err
	}
	if info.Version != w.version {
		records, err := fetchState(ctx, b, ends[stateTopic]-1, 1)
		if err != nil {
			return false, time.Time{}, err
		}
		j, err := decodeJournal(records[0].Value)
		if err != nil {
			return false, time.Time{}, err
		}
		w.version, w.runner, w.known, w.moved, w.next = info.Version, j.Runner, true, cut.LogTime, time.Time{}
		if j.Next != 0 {
			w.next = timeOf(j.Next)
		}
	}
	if cut.LogTime.Sub(w.moved) > overdueAfter {
		return true, time.Time{}, nil
	}
	if w.next.IsZero() {
		return false, time.Time{}, nil
	}
	due := w.next.Add(overdueAfter)
	return cut.StoreTime.After(due), due, nil
}

// The form of names of triggers.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$`)

// Codes of errors of triggers, in addition to those of package seb.
const (
	CodeTriggerNotFound    seb.Code = "trigger_not_found"
	CodeInvalidTrigger     seb.Code = "invalid_trigger"
	CodeInvalidTriggerName seb.Code = "invalid_trigger_name"
	CodeOverTriggerBudget  seb.Code = "over_trigger_budget"
)

func invalid(err error) error {
	return &seb.Error{Code: CodeInvalidTrigger, Detail: err.Error(), Outcome: seb.NotCommitted, Err: err}
}

// writes sets the outcome of an error with which a change ends before it has sent a commit.
func writes(err *error) {
	if e, ok := errors.AsType[*seb.Error](*err); ok && e.Outcome == "" {
		refused := *e
		refused.Outcome = seb.NotCommitted
		*err = &refused
	}
}

func checkName(name string) error {
	if nameForm.MatchString(name) {
		return nil
	}
	return &seb.Error{
		Code: CodeInvalidTriggerName, Detail: fmt.Sprintf("%q is no name for a trigger", name), Outcome: seb.NotCommitted,
		Hint: "use 1 to 100 letters, digits, and . _ -, with a letter or digit first",
	}
}

// PutOptions are the options of [Triggers.Put].
type PutOptions struct {
	Replace Replace // what happens to the open runs of the version before; empty means [Drain]
	CatchUp bool    // with a start in the past, what was due before also fires
}

// Put stores a version of a trigger, which counts from its place in the log on. All topics that it watches must exist. The topic that
// gets the firings is created if it does not exist.
func (t *Triggers) Put(ctx context.Context, name string, d Definition, o PutOptions) (_ *Version, err error) {
	defer writes(&err)
	if err := checkName(name); err != nil {
		return nil, err
	}
	if _, err := compile(d); err != nil {
		return nil, invalid(err)
	}
	if o.Replace != "" && o.Replace != Drain && o.Replace != Drop {
		return nil, invalid(fmt.Errorf("replace: expected drain or drop, not %q", o.Replace))
	}
	for _, topic := range d.From {
		if _, err := t.b.TopicID(ctx, topic); err != nil {
			return nil, err
		}
	}
	if err := seb.CheckTopicName(d.To); err != nil {
		return nil, err
	}
	if d.Mode != Paused { // a pause succeeds, whatever became of the topic
		if err := t.createTarget(ctx, d.To); err != nil {
			return nil, err
		}
	}
	return t.store(ctx, Version{Name: name, Definition: &d, Replace: o.Replace, CatchUp: o.CatchUp})
}

// createTarget creates the topic that gets the firings, unless it exists: readers and queues can then wait for the first one.
func (t *Triggers) createTarget(ctx context.Context, topic string) error {
	_, err := t.b.Topic(ctx, topic)
	if seb.CodeOf(err) == seb.CodeTopicNotFound {
		_, _, err = t.b.CreateTopic(ctx, topic, seb.TopicOptions{})
	}
	return err
}

func (t *Triggers) store(ctx context.Context, v Version) (*Version, error) {
	if err := createTopics(ctx, t.b); err != nil {
		return nil, err
	}
	defs, err := openDefinitions(ctx, t.b)
	if err != nil {
		return nil, err
	}
	return defs.put(ctx, v)
}

// load reads the versions of all triggers.
func (t *Triggers) load(ctx context.Context) (*definitions, error) {
	defs, err := openDefinitions(ctx, t.b)
	if seb.CodeOf(err) == seb.CodeTopicNotFound {
		return &definitions{}, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = defs.readAll(ctx)
	return defs, err
}

// List returns the last versions of all triggers, by name.
func (t *Triggers) List(ctx context.Context) ([]*Version, error) {
	defs, err := t.load(ctx)
	if err != nil {
		return nil, err
	}
	current := defs.current()
	var all []*Version
	for _, name := range slices.Sorted(maps.Keys(current)) {
		all = append(all, current[name])
	}
	return all, nil
}

// Versions returns all versions of a trigger since it was last created, the newest first.
func (t *Triggers) Versions(ctx context.Context, name string) ([]*Version, error) {
	defs, err := t.load(ctx)
	if err != nil {
		return nil, err
	}
	var all []*Version
	for _, s := range slices.Backward(defs.all) {
		if s.Name == name && s.Definition == nil {
			break
		}
		if s.Name == name {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil, &seb.Error{Code: CodeTriggerNotFound, Detail: fmt.Sprintf("trigger %q does not exist", name), Outcome: seb.NotCommitted}
	}
	return all, nil
}

// Get returns the last version of a trigger.
func (t *Triggers) Get(ctx context.Context, name string) (*Version, error) {
	all, err := t.Versions(ctx, name)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Delete deletes a trigger, its open runs, and what it knows of entities that have fired.
func (t *Triggers) Delete(ctx context.Context, name string) (err error) {
	defer writes(&err)
	if _, err := t.Get(ctx, name); err != nil {
		return err
	}
	_, err = t.store(ctx, Version{Name: name})
	return err
}

// SetMode stores a version of a trigger with another mode. While a trigger is paused, neither events nor deadlines reach
// it. When it goes on, the open runs that could become true because of an event that came in the pause end; the others go on.
func (t *Triggers) SetMode(ctx context.Context, name string, mode Mode) (_ *Version, err error) {
	defer writes(&err)
	s, err := t.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	d := *s.Definition
	d.Mode, d.Start = mode, Start{}
	return t.Put(ctx, name, d, PutOptions{})
}
