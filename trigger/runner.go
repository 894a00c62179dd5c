package trigger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// askStoreAfter is how old the store's last answer may be when a deadline fires on an idle log: clocks drift, and stop in machines
	// that sleep.
	askStoreAfter = time.Hour
	// earlyPause is how long the runner waits if a deadline has not come yet by the store's clock.
	earlyPause = 20 * time.Millisecond
)

// errOvertaken says that another runner has taken over.
var errOvertaken = errors.New("another broker runs the triggers")

// runner evaluates triggers, and appends what they fire. Only the goroutine of run uses it.
type runner struct {
	b      *seb.Broker
	o      Options
	defs   *definitions
	eval   *evaluator
	inputs *inputs
	known  map[firedVersion]*active
	from   map[string]position // from where on each topic is read
	names  map[seb.TopicID]string

	cut     seb.Cut
	cutAt   time.Time
	reached bool     // all records up to the cut were read
	tried   []func() // take back the deadlines that passed although the log may not have reached them yet

	begin    position // earlier records are in the snapshot that was loaded
	askedFor int64    // the deadline for which the store was asked for its time

	output output
	store  store
	report func()      // tells what the runner has done
	others func() bool // whether there are other brokers, which may have to take over
	signed time.Time   // the log time up to which a sign of life was shown
}

// openRunner takes over from another runner, and recovers the state of the triggers from the log.
func openRunner(ctx context.Context, b *seb.Broker, o Options) (*runner, error) {
	r := &runner{b: b, o: o, known: map[firedVersion]*active{}, from: map[string]position{}, names: map[seb.TopicID]string{}}
	r.output = output{b: b, name: func(id seb.TopicID) string { return r.names[id] }, fired: map[firedVersion]lastFire{}}
	r.output.deadline = func() int64 { due, _ := r.eval.timers.first(); return due }
	r.eval = newEvaluator(r.output.take)
	r.inputs = &inputs{b: b, open: map[seb.TopicID]*input{}, gap: r.gap}
	if err := createTopics(ctx, b); err != nil {
		return nil, err
	}
	var err error
	if r.defs, err = openDefinitions(ctx, b); err != nil {
		return nil, err
	}
	if err := r.output.takeOver(ctx); err != nil {
		return nil, err
	}
	r.report, r.others = func() {}, func() bool { return false }
	return r, r.recover(ctx)
}

// recover loads the newest snapshot, and applies the definitions that it includes.
func (r *runner) recover(ctx context.Context) error {
	if _, err := r.defs.readAll(ctx); err != nil {
		return err
	}
	for _, s := range r.defs.all {
		if err := r.learn(s); err != nil {
			return err
		}
	}
	begin, err := r.store.load(ctx, r)
	if err != nil {
		return err
	}
	r.eval.at, r.eval.passed = begin, begin.passed()
	for _, s := range r.defs.all {
		if s.position().compare(begin) <= 0 { // the snapshot has what the version folded
			r.define(s)
		}
	}
	for name := range r.from {
		r.from[name] = begin
	}
	r.from[definitionsTopic], r.begin = begin, begin
	return nil
}

// learn compiles a version, so that its entities can be loaded.
func (r *runner) learn(s *Version) error {
	if s.Definition == nil {
		return nil
	}
	c, err := compile(*s.Definition)
	if err != nil {
		return fmt.Errorf("version %d of trigger %s: %w", s.Number, s.Name, err)
	}
	r.known[firedVersion{s.Name, s.Number}] = r.eval.version(s.Name, s.Number, c)
	return nil
}

// define applies a version at its place in the log. It returns true if more topics have to be read from there on.
func (r *runner) define(s *Version) (more bool) {
	if a := r.known[firedVersion{s.Name, s.Number}]; s.Definition != nil {
		pauses := s.Definition.Mode == Paused || s.Log != r.defs.tag
		if !pauses {
			r.eval.unfreeze(a.trigger)
		}
		if before := a.currentVersion(); before != nil && s.Replace != Drop && before.decidesAs(s.Definition) {
			before.Mode = s.Definition.Mode // its runs go on
		} else {
			r.eval.replace(a, s.Replace == Drop)
		}
		if pauses {
			r.eval.freeze(a.trigger)
		}
	} else if t := r.eval.triggers[s.Name]; t != nil {
		r.eval.remove(t)
	}
	watched := map[string]bool{definitionsTopic: true}
	for _, t := range r.eval.triggers {
		for _, a := range t.versions {
			for _, name := range a.From {
				watched[name] = true
			}
		}
	}
	for name := range r.from {
		if !watched[name] {
			delete(r.from, name)
		}
	}
	for name := range watched {
		if _, reads := r.from[name]; !reads {
			r.from[name] = r.eval.at
			more = true
		}
	}
	return more
}

// run evaluates until ctx ends, another runner takes over, or something fails.
func (r *runner) run(ctx context.Context) error {
	for {
		if err := r.step(ctx); err != nil {
			return err
		}
	}
}

// step waits for commits or the next deadline, evaluates what has come, and appends what it fires.
func (r *runner) step(ctx context.Context) error {
	if err := r.await(ctx); errors.Is(err, errStop) {
		return nil
	} else if err != nil {
		return err
	}
	if err := r.read(ctx); err != nil || !r.reached {
		return err
	}
	if err := r.output.flush(ctx, nil); err != nil {
		return err
	}
	r.report()
	if most, took := cmp.Or(r.o.Memory, memoryDefault), r.eval.memory(); took > most {
		return &seb.Error{
			Code: CodeOverTriggerBudget, Detail: fmt.Sprintf("what the triggers know of entities takes %d MiB; at most %d are allowed", took>>20, most>>20),
			Hint: "raise --trigger-memory, or pause triggers that many entities wait in; nothing is lost as long as the records are kept",
		}
	}
	if len(r.tried) == 0 { // else the evaluator is ahead of the log
		if err := r.store.write(ctx, r); err != nil {
			return err
		}
	}
	if err := r.fireDue(ctx); err != nil {
		return err
	}
	return r.sign(ctx)
}

// signDue returns when the runner has to show the other brokers that it lives: if they commit, or have to know of a deadline.
func (r *runner) signDue() (at time.Time, ok bool) {
	if !r.others() || !r.cut.LogTime.After(r.signed) && !r.untold() {
		return time.Time{}, false
	}
	return r.output.committed.Add(signAfter), true
}

// untold reports whether the next deadline is earlier than the journal says.
func (r *runner) untold() bool {
	next := r.output.deadline()
	return next != 0 && (r.output.told == 0 || r.output.told > next)
}

// sign shows a sign of life if that is due. It costs no commit of its own, unless nobody else may commit before the next deadline.
func (r *runner) sign(ctx context.Context) error {
	if at, ok := r.signDue(); !ok || time.Until(at) > 0 {
		return nil
	}
	r.signed = r.cut.LogTime.Add(signAfter) // by then, others have committed
	if r.untold() {
		return r.output.tick(ctx)
	}
	return r.output.signByRide(ctx)
}

// await waits until the log has commits behind the cut, or the next deadline comes.
func (r *runner) await(ctx context.Context) error {
	o, waiting, cancel := seb.CutOptions{Existing: true}, ctx, context.CancelFunc(func() {})
	if r.reached {
		o.Later = r.cut.LogTime
		due, has := r.eval.timers.first()
		rest := timeOf(due).Sub(r.storeNow())
		if at, ok := r.signDue(); ok && (!has || time.Until(at) < rest) {
			has, rest = true, time.Until(at)
		}
		if has {
			waiting, cancel = context.WithTimeout(ctx, max(0, rest))
		}
	}
	defer cancel()
	var names []string
	for name := range r.from {
		names = append(names, name)
	}
	slices.Sort(names)
	cut, err := r.b.Cut(waiting, names, o)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && waiting.Err() != nil:
		return nil // a deadline has come, or a sign of life is due
	case err != nil:
		return err
	}
	r.cut, r.cutAt, r.reached = cut, time.Now(), false
	return r.watch(ctx)
}

// storeNow returns the store's time, as the broker estimated it at the cut.
func (r *runner) storeNow() time.Time { return r.cut.StoreTime.Add(time.Since(r.cutAt)) }

// watch reads those topics of the cut that are not read yet, and reads no others. It returns errStop if another cut is needed.
func (r *runner) watch(ctx context.Context) error {
	named := map[string]bool{}
	for _, t := range r.cut.Topics {
		named[t.ID] = true
		if r.inputs.byTag(t.ID) != nil {
			continue
		}
		id, err := r.b.TopicID(ctx, t.Topic)
		if seb.CodeOf(err) == seb.CodeTopicNotFound || err == nil && r.b.TopicTag(id) != t.ID {
			return errStop // it was deleted since, so make another cut
		}
		if err != nil {
			return err
		}
		r.names[id] = t.Topic
		var next map[int32]seb.Offset
		if r.from[t.Topic] == r.begin { // it was read before the runner started
			next = r.store.next(id)
		}
		r.inputs.watch(t.Topic, id, r.from[t.Topic], next)
	}
	for id, in := range r.inputs.open {
		if named[in.tag] {
			continue
		}
		delete(r.inputs.open, id)
		if _, watched := r.from[in.name]; watched {
			r.o.Logger.Warn("a topic that triggers watch was deleted, so runs that wait for the absence of an event end", "topic", in.name)
			r.eval.gap(in.name)
		}
	}
	return nil
}

// read evaluates the records up to the cut, and passes the deadlines up to its time.
func (r *runner) read(ctx context.Context) error {
	if r.reached {
		return nil
	}
	whole, err := r.inputs.read(ctx, r.cut, func(topic string, id seb.TopicID, rec *seb.Record) error {
		at := position{time: rec.LogTime.UnixMicro(), topic: id, partition: rec.Partition, offset: rec.Offset}
		if at.compare(r.begin) <= 0 {
			return nil
		}
		r.confirm(at.time)
		if len(r.output.waiting) >= commitFirings {
			if err := r.output.flush(ctx, nil); err != nil {
				return err
			}
		}
		if topic != definitionsTopic {
			r.eval.record(topic, id, rec)
			return nil
		}
		s, err := decodeVersion(rec, id)
		if err != nil {
			return err
		}
		if r.known[firedVersion{s.Name, s.Number}] == nil {
			if err := r.learn(s); err != nil {
				return err
			}
		}
		r.eval.advance(s.position())
		more := r.define(s)
		if err := r.fold(ctx, s); err != nil {
			return err
		}
		if more {
			return errStop
		}
		return nil
	})
	if err != nil || !whole {
		return err
	}
	r.reached = true
	if to := r.cut.LogTime.UnixMicro(); to >= r.eval.passed {
		r.tried = nil // no record has come that is as early as the deadlines that were tried
		r.eval.pass(to)
	}
	return nil
}

// confirm takes back the deadlines that were tried if a record is as early as one of them, since they come after the record.
func (r *runner) confirm(at int64) {
	if len(r.tried) > 0 && at <= r.eval.passed {
		r.takeBack()
	}
	r.tried = nil
}

func (r *runner) takeBack() {
	for _, f := range slices.Backward(r.tried) {
		f()
	}
	r.tried, r.output.waiting = nil, nil
}

// fireDue passes the deadlines that have come by the store's clock, on a log that may not have a later commit yet. What they fire is
// appended only if the log has got no other records up to then.
func (r *runner) fireDue(ctx context.Context) error {
	due, ok := r.eval.timers.first()
	now := r.storeNow()
	if !ok || timeOf(due).After(now) {
		return nil
	}
	if r.cut.StoreTimeAge+time.Since(r.cutAt) > askStoreAfter && r.askedFor != due {
		r.askedFor, r.reached = due, false // make another cut, which asks the store
		return nil
	}
	if len(r.cut.Topics) < len(r.from) {
		return r.output.tick(ctx) // a topic that does not exist can't be a condition, so let the log reach the deadline first
	}
	r.tried = append(r.tried, r.eval.tryPass(now.UnixMicro()))
	if len(r.output.waiting) == 0 {
		return nil
	}
	err := r.output.flush(ctx, &condition{r.cut.Topics, timeOf(r.output.waiting[len(r.output.waiting)-1].at.time)})
	switch seb.CodeOf(err) {
	case seb.CodeEndsConflict:
		r.takeBack()
		return nil
	case seb.CodeTooEarly:
		r.takeBack()
		return wait(ctx, earlyPause)
	default:
		return err
	}
}

// finish stores what the runner knows, unless it was stopped in the middle of a cut.
func (r *runner) finish(ctx context.Context) error {
	if !r.reached {
		return nil
	}
	if len(r.tried) > 0 {
		r.takeBack()
	}
	if err := r.output.flush(ctx, nil); err != nil { // the pages must not be ahead of what was fired
		return err
	}
	return r.store.finish(ctx, r)
}

// gap ends runs, since records are gone before they were read.
func (r *runner) gap(from *input, partition int32, start, end seb.Offset) {
	r.o.Logger.Warn("records were deleted before the triggers saw them, so runs that wait for the absence of an event end", "topic", from.name,
		"partition", partition, "from", int64(start), "to", int64(end))
	r.eval.gap(from.name)
}

// wait waits for a time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
