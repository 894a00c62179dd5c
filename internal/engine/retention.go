package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// Retention deletes records that their topics no longer keep. The state decides which ones ([state.State.Expiries]); the broker that
// has won the last slot moves the starts of their partitions, in one commit for all. A log without traffic wakes that broker when
// the next records are over, and sends no request before.

// retention is what an Engine knows about retention beside the state.
type retention struct {
	alarm
	need time.Duration // for how long the store's clock must have run evenly before this broker deletes anything

	failures int // passes in a row that have failed; owned by the goroutine that makes them

	held atomic.Pointer[retentionHeld] // why this broker does not delete what is over; nil if it does

	mu     sync.Mutex
	fronts map[partitionOf]state.Front
}

type partitionOf struct {
	topic     format.TopicID
	partition format.Partition
}

// retentionHeld says why a broker deletes no records although they are over.
type retentionHeld struct {
	reason string
	until  time.Time // by the wall clock, if nothing else happens; zero if that depends on something else than time
}

// expireMost bounds the partitions whose starts one commit moves.
const expireMost = 4096

// beginRetention is called when the log is recovered. If the newest commit seems to be older than the delete delay, the store's
// clock may be wrong since before this broker started. So the broker waits longer before it deletes anything.
func (e *Engine) beginRetention() {
	r := &e.retention
	r.need = time.Duration(e.cluster.Margin)
	if s := e.live.State; s.Seq() > 0 && e.StoreNow().Sub(time.UnixMicro(s.Time())) > time.Duration(e.cluster.DeleteDelay) {
		r.need = time.Duration(e.cluster.DeleteDelay)
	}
}

// retain deletes what is over, if it is time to do so.
func (e *Engine) retain(ctx context.Context) (wait time.Duration, timed bool) {
	r := &e.retention
	due, last, shortest := e.retentionDue()
	now := e.StoreNow()
	switch {
	case due.IsZero():
		r.held.Store(nil)
		return 0, false
	case due.After(now):
		r.held.Store(nil)
		// A topic that is empty now may soon have records that are over before due.
		if wait = due.Sub(now); shortest > 0 {
			wait = min(wait, shortest)
		}
		return max(wait, Compaction.RetainMin), true
	}
	if last.After(due) && last.Before(now) {
		due = last // the broker that has made this commit is there
	}
	if left := e.left() - now.Sub(due); left > 0 {
		return max(left, Compaction.RetainMin), true
	}
	if held := e.holdRetention(); held != nil {
		if was := r.held.Swap(held); was == nil || was.reason != held.reason {
			e.logger.Info("retention deletes nothing for now", "reason", held.reason)
		}
		return max(time.Until(held.until), Compaction.RetainMin), true
	}
	r.held.Store(nil)
	if err := e.expire(ctx, now); err != nil && !e.ending(ctx) {
		e.logFailure("could not delete all records that their topics no longer keep; trying again", err)
		r.failures++
		return min(Compaction.RetainMin<<min(r.failures, 16), Compaction.RetainMax), true
	}
	r.failures = 0
	return Compaction.RetainMin, true
}

// retentionDue returns the store's time from which on records should be deleted; zero if that depends on something else than time.
// last is the time of the last commit, and shortest the shortest age up to which a topic keeps records.
func (e *Engine) retentionDue() (due, last time.Time, shortest time.Duration) {
	now := e.StoreNow()
	e.View(func(s *state.State) {
		shortest, last = s.ShortestRetention(), time.UnixMicro(s.Time())
		for _, x := range s.Expiries(e.retentionOptions(now)) {
			earliest(&due, x.Due)
			if x.Full {
				earliest(&due, min(s.Time(), now.UnixMicro())) // the last commit may have made it full
			}
		}
	})
	return due, last, shortest
}

func (e *Engine) retentionOptions(now time.Time) state.RetentionOptions {
	return state.RetentionOptions{Now: now.UnixMicro(), SlackMin: Compaction.RetainMin, SlackMax: Compaction.RetainMax, Front: e.retention.front}
}

func (r *retention) front(topic format.TopicID, partition format.Partition) state.Front {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fronts[partitionOf{topic, partition}]
}

// holdRetention returns why this broker must not delete records now, since a clock may be wrong; nil if it may.
func (e *Engine) holdRetention() *retentionHeld {
	r := &e.retention
	margin := time.Duration(e.cluster.Margin)
	if ahead := e.opts.Wall().Sub(e.StoreNow()); ahead.Abs() > margin {
		return &retentionHeld{reason: "the clock of this machine and that of the store differ by " + ahead.Round(time.Second).String() + ": set the wrong one right"}
	}
	steady, jump := e.log.ClockSteady()
	need, why := r.need, ""
	if need > margin {
		why = "; it waits for so long since the last commit seemed to be old when the broker started"
	}
	if jump > 0 {
		need, why = max(need, time.Duration(e.cluster.DeleteDelay), jump), "; it waits for so long since the clock has stepped forward by "+jump.Round(time.Second).String()
	}
	if steady > need {
		return nil
	}
	return &retentionHeld{until: time.Now().Add(need - steady), reason: "this broker has watched the store's clock run evenly for less than " + need.String() + why}
}

// TopicRetention tells how far the deletion of a topic's old records has come.
type TopicRetention struct {
	Oldest time.Time // when the oldest record was committed, or an earlier time
	Next   time.Time // when the next records are deleted because of their age; zero if that depends on something else than time
	Queue  string    // a queue that holds records that are over; "" if none does
	Waits  string    // why this broker deletes nothing although it is time; "" if it does
}

// Retention tells how far the deletion of a topic's old records has come.
func (e *Engine) Retention(topic format.TopicID) (r TopicRetention) {
	e.View(func(s *state.State) {
		t := s.TopicByID(topic)
		switch {
		case t == nil:
			return
		case s.Level() < format.LevelSegments:
			r.Waits = fmt.Sprintf("the log has level %d of the format, and retention needs level %d: see seb upgrade", s.Level(), format.LevelSegments)
		case t.Dormant:
			r.Waits = "the limits were set by an earlier version, which did not apply them: set them again"
		}
		now := e.StoreNow()
		for _, x := range s.ExpiriesOf(t, e.retentionOptions(now)) {
			earliest(&r.Oldest, x.Oldest)
			earliest(&r.Next, x.Due)
			if x.Queue != nil {
				r.Queue = x.Queue.Name
			}
			late := x.Full || x.Due != 0 && x.Due <= now.UnixMicro()
			switch held := e.retention.held.Load(); {
			case late && held != nil:
				r.Waits = held.reason
				if !held.until.IsZero() {
					r.Waits += ", probably until " + held.until.UTC().Format(time.RFC3339)
				}
			case late && e.left() > 0:
				r.Waits = "this broker leaves it for some minutes to the broker that has made the last commit"
			}
		}
	})
	return r
}

// earliest lowers t to a time in microseconds since 1970, unless that is 0.
func earliest(t *time.Time, us int64) {
	if at := time.UnixMicro(us).UTC(); us != 0 && (t.IsZero() || at.Before(*t)) {
		*t = at
	}
}

// expire deletes what is over. now is the store's time before the sync that comes first: a date that comes with the sync, and is
// wrong, deletes nothing.
func (e *Engine) expire(ctx context.Context, now time.Time) error {
	if err := e.SyncToAct(ctx); err != nil || e.holdRetention() != nil {
		return err
	}
	if after := e.StoreNow(); after.Before(now) {
		now = after
	}
	var (
		xs     []state.Expiry
		loads  uint64
		cuts   []*state.Expiry
		fronts []state.Front // of cuts, once they are made
		failed error
	)
	look := func(s *state.State) {
		xs, loads = s.Expiries(e.retentionOptions(now)), e.loads
		e.retention.forget(s)
	}
	// Of a partition whose front is in a segment, the state knows only since when records may be due. The table says more.
	e.View(look)
	for _, x := range xs {
		if x.Edge != nil && x.Base <= x.From && e.retention.front(x.Topic, x.Partition) == (state.Front{}) {
			if _, err := e.readEdge(ctx, &x, loads); err != nil {
				failed = fmt.Errorf("partition %d of topic %d: %w", x.Partition, x.Topic, err)
			}
		}
	}
	e.View(look)
	if !slices.ContainsFunc(xs, func(x state.Expiry) bool { return x.Full || x.Due != 0 && x.Due <= now.UnixMicro() }) {
		return failed
	}
	for i := range xs {
		x, front := &xs[i], state.Front{}
		if x.Edge != nil {
			var err error
			if front, err = e.readEdge(ctx, x, loads); err != nil {
				failed = fmt.Errorf("partition %d of topic %d: %w", x.Partition, x.Topic, err)
				continue
			}
		}
		if x.Start > x.From {
			cuts, fronts = append(cuts, x), append(fronts, front)
		}
	}
	for len(cuts) > 0 {
		n := min(len(cuts), expireMost)
		if err := e.commitExpiry(ctx, cuts[:n]); err != nil {
			return errors.Join(failed, err)
		}
		e.View(func(s *state.State) { e.retention.learn(s, cuts[:n], fronts[:n]) })
		cuts, fronts = cuts[n:], fronts[n:]
	}
	return failed
}

// forget drops what is known about the fronts of partitions that have moved on.
func (r *retention) forget(s *state.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, f := range r.fronts {
		if t := s.TopicByID(at.topic); t == nil || t.Partitions[at.partition].Start != f.Start {
			delete(r.fronts, at)
		}
	}
}

// learn keeps what is known about the fronts of partitions that have been cut.
func (r *retention) learn(s *state.State, cuts []*state.Expiry, fronts []state.Front) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, x := range cuts {
		t := s.TopicByID(x.Topic)
		if f := fronts[i]; f != (state.Front{}) && t != nil && t.Partitions[x.Partition].Start == f.Start {
			r.fronts[partitionOf{x.Topic, x.Partition}] = f
		}
	}
}

// readEdge reads in a segment's table of locations which of its records are over, and moves x.Start past them. It keeps what it
// learns about the front of the partition as it is, and returns what will hold once the partition starts at x.Start.
func (e *Engine) readEdge(ctx context.Context, x *state.Expiry, loads uint64) (after state.Front, err error) {
	c := &Cursor{e: e, id: x.Topic, partition: x.Partition}
	dead, first := int64(0), x.Base <= x.From
	for row, err := range c.batches(ctx, x.Edge, x.Base, loads) {
		if err != nil {
			return after, err
		}
		end := row.Base + format.Offset(row.Span)
		front := func(at format.Offset, part format.CommitPart) state.Front {
			return state.Front{Start: at, Segment: x.Edge.Number, Time: part.Time, Dead: dead, Size: int64(row.Size)}
		}
		if row.Base >= x.End {
			break
		}
		if end > x.From && first {
			first = false
			e.retention.mu.Lock()
			e.retention.fronts[partitionOf{x.Topic, x.Partition}] = front(x.From, commitAt(row, x.From, math.MinInt64))
			e.retention.mu.Unlock()
		}
		if end > x.From && row.Commits[len(row.Commits)-1].Time > x.Before && int64(row.Size) > x.Excess {
			part := commitAt(row, x.Start, x.Before)
			x.Start = max(x.Start, part.Base)
			return front(x.Start, part), nil
		}
		dead, x.Excess, x.Start = dead+int64(row.Size), x.Excess-int64(row.Size), max(x.Start, end)
	}
	return after, nil
}

// commitAt returns the first commit of a batch that has an offset from the given one on, and is later than before.
func commitAt(row *format.SegmentBatch, offset format.Offset, before int64) format.CommitPart {
	for i, part := range row.Commits {
		if next := i + 1; part.Time > before && (next == len(row.Commits) || row.Commits[next].Base > offset) {
			return part
		}
	}
	return row.Commits[len(row.Commits)-1]
}

// commitExpiry moves the starts of partitions.
func (e *Engine) commitExpiry(ctx context.Context, cuts []*state.Expiry) error {
	change := &expire{cuts: cuts}
	switch err := e.Commit(ctx, &Request{Change: change, Synced: true}); {
	case errors.Is(err, errNothingOver):
		return nil
	case err != nil:
		return err
	}
	e.metrics.expiredRecords.Add(change.records)
	e.logger.Info("deleted records that their topics no longer keep", "partitions", change.moved, "records", change.records)
	for _, p := range change.passed {
		e.metrics.passedRecords.Add(p.Records)
		e.logger.Warn("retention has deleted records that a queue had not done", "topic", p.Topic, "queue", p.Queue, "partition", int(p.Partition), "records", p.Records)
	}
	return nil
}

// expire is the change that deletes what is over.
type expire struct {
	cuts []*state.Expiry

	// Set by the last Apply: how many partitions and records are deleted, and which of them queues had not done.
	moved   int
	records int64
	passed  []state.Passed
}

var errNothingOver = errors.New("nothing is over")

// Apply implements Change.
func (x *expire) Apply(d *state.Draft) (entries []format.Entry, _ error) {
	x.records, x.passed = 0, nil
	for _, y := range x.cuts {
		if to := d.Expire(y); to != nil {
			entries = append(entries, to)
			x.records += int64(to.Start - d.Start(to.Topic, to.Partition))
			x.passed = append(x.passed, d.Passed(to)...)
		}
	}
	x.moved = len(entries)
	if x.moved == 0 {
		return nil, errNothingOver
	}
	return entries, nil
}
