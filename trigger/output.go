package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// runnerConsumer is the consumer of the state's topic that the runner moves with each of its commits. Its position is the newest
	// manifest, and its version tells two runners apart: of two, one commits.
	runnerConsumer = "runner"
	// commitFirings and commitBytes bound the firings of one commit.
	commitFirings = 5000
	commitBytes   = 2 << 20
)

// output appends what triggers fire, and the state of the triggers.
type output struct {
	b        *seb.Broker
	name     func(seb.TopicID) string // of a topic that was read
	waiting  []firing                 // not appended yet
	fired    map[firedVersion]lastFire
	fence    string     // the version of the runner's consumer
	manifest seb.Offset // the newest manifest; 0 = none
	end      seb.Offset // of the state's topic

	deadline  func() int64 // the next deadline, in microseconds since 1970; 0 = none
	told      int64        // the next deadline, as the journal has it
	committed time.Time    // when the last commit was made, by this machine
	riding    *ride        // nil if no commit rides
}

// condition is what has to hold for a commit: the topics end as the runner has read them, and the log's time is later.
type condition struct {
	ends  []seb.TopicCut
	after time.Time
}

// take takes a firing, unless an earlier runner has appended it.
func (o *output) take(f firing) {
	key := firedVersion{f.trigger.name, f.trigger.number}
	if last, has := o.fired[key]; has && last.covers(&f) {
		return
	}
	if f.trigger.Mode == Dry {
		return
	}
	o.waiting = append(o.waiting, f)
}

// takeOver moves the runner's consumer, so that no other runner can commit from then on.
func (o *output) takeOver(ctx context.Context) error {
	info, _, err := o.b.Consumer(stateTopic, runnerConsumer).Create(ctx)
	if err != nil {
		return fmt.Errorf("create the consumer of the runner: %w", err)
	}
	o.fence, o.manifest = info.Version, info.Positions[0].Next
	return o.tick(ctx)
}

// tick commits nothing but a sign of life.
func (o *output) tick(ctx context.Context) error { return o.commit(ctx, seb.Commit{}, journal{}) }

// flush appends the firings that wait. The first commit has the condition, unless it is nil: the others are behind it in the log.
func (o *output) flush(ctx context.Context, only *condition) error {
	for len(o.waiting) > 0 {
		c, j, n := seb.Commit{}, journal{}, 0
		at := map[string]int{}       // the append of each topic
		of := map[firedVersion]int{} // the entry of each version
		for size := 0; n < len(o.waiting) && n < commitFirings && size < commitBytes; n++ {
			f := &o.waiting[n]
			key := firedVersion{f.trigger.name, f.trigger.number}
			if _, has := of[key]; !has {
				of[key] = len(j.Fired)
				j.Fired = append(j.Fired, journalFired{Trigger: key.name, Version: key.number})
			}
			entry := &j.Fired[of[key]]
			entry.Last = placeOf(f)
			entry.Count++
			rec, err := f.record(o.name)
			if err != nil && f.failed == "" {
				f.failed = err.Error()
			}
			length := len(rec.Key) + len(rec.Value)
			if most := o.b.Limits().RecordBytes; length+1024 > most {
				f.failed = fmt.Sprintf("the record has %d bytes; at most %d are allowed", length, most)
			}
			if f.failed != "" {
				j.Failed = append(j.Failed, failedFiring{key.name, key.number, placeOf(f), f.id(), f.failed})
				continue
			}
			to := f.trigger.To
			if _, has := at[to]; !has {
				at[to] = len(c.Appends)
				c.Appends = append(c.Appends, seb.CommitAppend{Topic: to})
			}
			c.Appends[at[to]].Records = append(c.Appends[at[to]].Records, rec)
			size += length
		}
		if only != nil {
			c.Ends, c.After = only.ends, only.after
		}
		if err := o.commit(ctx, c, j); err != nil {
			return err
		}
		for _, f := range j.Fired {
			o.fired[firedVersion{f.Trigger, f.Version}] = f.Last
		}
		o.waiting, only = o.waiting[n:], nil
	}
	o.waiting = nil
	return nil
}

// commit commits, together with an entry of the journal, and if no other runner has taken over.
func (o *output) commit(ctx context.Context, c seb.Commit, j journal, pages ...seb.Record) error {
	if err := o.settle(); err != nil {
		return err
	}
	c, err := o.complete(c, &j, pages)
	if err != nil {
		return err
	}
	for {
		done, err := o.b.Commit(ctx, c)
		if err == nil {
			o.made(done, &j)
			return nil
		}
		again := retryAfter(err)
		if seb.OutcomeOf(err) != seb.NotCommitted || again == 0 {
			return overtaken(err)
		}
		if err := wait(ctx, again); err != nil {
			return err
		}
	}
}

// complete adds the entry of the journal, and the move of the runner's consumer.
func (o *output) complete(c seb.Commit, j *journal, pages []seb.Record) (seb.Commit, error) {
	j.Runner, j.Next = o.b.Session().ID().String(), o.deadline()
	value, err := json.Marshal(j)
	if err != nil {
		return c, fmt.Errorf("journal of triggers: %w", err)
	}
	state := append(pages, seb.Record{Value: value, Headers: []seb.Header{{Name: kindHeader, Value: []byte(kindJournal)}}})
	to := seb.CommitAppend{Topic: stateTopic, Records: state}
	if o.end > 0 {
		to.Options = []seb.AppendOption{seb.IfOffset(o.end)} // the manifest names offsets
	}
	c.Appends = append(c.Appends, to)
	c.Positions = []seb.CommitPositions{{Topic: stateTopic, Consumer: runnerConsumer, Version: o.fence, Offsets: seb.Offsets{0: o.manifest}}}
	return c, nil
}

// made notes a commit.
func (o *output) made(done seb.Committed, j *journal) {
	o.fence = done.Versions[0]
	last := done.Appends[len(done.Appends)-1].Ranges[0]
	o.end = last.Offset + seb.Offset(last.Count)
	o.told, o.committed = j.Next, time.Now()
}

// overtaken returns errOvertaken if another runner has made a commit fail.
func overtaken(err error) error {
	if code := seb.CodeOf(err); code == seb.CodePositionConflict || code == seb.CodeOffsetConflict {
		return fmt.Errorf("%w: %w", errOvertaken, err)
	}
	return err
}

// ride is a commit that waits for a commit that is made anyway.
type ride struct {
	journal journal
	cancel  context.CancelFunc
	ended   chan struct{}
	done    seb.Committed // once ended is closed
	err     error
}

// signByRide shows a sign of life, together with a commit that is made anyway. It does not wait for that.
func (o *output) signByRide(ctx context.Context) error {
	if o.riding != nil {
		select {
		case <-o.riding.ended:
			return o.settle()
		default:
			return nil // the one before waits still
		}
	}
	r := &ride{ended: make(chan struct{})}
	c, err := o.complete(seb.Commit{Rides: true}, &r.journal, nil)
	if err != nil {
		return err
	}
	ctx, r.cancel = context.WithCancel(ctx)
	o.riding = r
	go func() {
		defer close(r.ended)
		r.done, r.err = o.b.Commit(ctx, c)
	}()
	return nil
}

// settle ends a ride, since the next commit has to know whether it was made.
func (o *output) settle() error {
	r := o.riding
	if r == nil {
		return nil
	}
	r.cancel()
	<-r.ended
	o.riding = nil
	switch {
	case r.err == nil:
		o.made(r.done, &r.journal)
	case seb.CodeOf(r.err) == seb.CodeCanceled && seb.OutcomeOf(r.err) == seb.NotCommitted:
	default:
		return overtaken(r.err)
	}
	return nil
}

// retryAfter returns how long to wait before a retry; 0 if a retry can't help.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*seb.Error](err); ok {
		return e.RetryAfter
	}
	return 0
}
