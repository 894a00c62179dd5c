package engine

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/segment"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// Compaction moves records from many small objects into segments. The state decides what a job is made of
// ([state.State.PlanTail], [state.State.PlanMerge]); the broker that wins a slot does the job if one is due. If two brokers
// do the same job, the commit of the second one is refused, and its object is of no use.

// Bounds are the bounds of compaction.
type Bounds struct {
	SegmentBytes int64 // size of the batches of a segment; at most a quarter of the memory budget
	BatchBytes   int   // size of a merged batch, uncompressed
	Rows         int   // batches that leave the tail at once; fewer if the memory budget is small
	Group        int   // segments that are merged
	// Large is the size of a range that is not merged again: it is read with few requests as it is. It is at most half of what a
	// job takes: two larger ranges don't fit into one segment.
	Large int64
	// PageBytes is about how many bytes of idempotency keys that are in no page a snapshot may have before a page is stored.
	PageBytes int64
	// TailAge is how long batches stay in the tail at least: those who read near the end find them in memory.
	TailAge time.Duration
	// RaiseAfter and RaiseCommits are for how long, and in how many commits, all writers must have known the next level
	// of the log before a broker raises the level by itself.
	RaiseAfter   time.Duration
	RaiseCommits int
	// RaiseNew says that the first commit of a log raises its level.
	RaiseNew bool
	// RetainMin and RetainMax bound the time between two passes of retention. A broker that has not won the last slot leaves a
	// pass to the one that has, for RetainGrace.
	RetainMin, RetainMax, RetainGrace time.Duration
}

// Compaction has the bounds of this process. Tests set lower ones before they open an engine.
var Compaction = Bounds{
	SegmentBytes: 64 * mib, BatchBytes: 256 << 10, Rows: 131_072, Group: 32, Large: 32 * mib, PageBytes: mib, TailAge: time.Minute,
	RaiseAfter: time.Hour, RaiseCommits: 1000, RaiseNew: true,
	RetainMin: time.Minute, RetainMax: 6 * time.Hour, RetainGrace: 5 * time.Minute,
}

// What becomes of jobs, in metrics.
const (
	compactDone      = "done"
	compactOvertaken = "overtaken"
	compactFailed    = "failed"
)

const (
	// compactReads is how many objects of the tail a job reads at once. If they are large, it reads fewer: all together have
	// 1/compactRoom of the memory budget, so that enough is left for what readers fetch.
	compactReads, compactRoom = 64, 16
	// compactTables is how many tables of segments a job keeps open, each with a block of about 64 KiB.
	compactTables = 64
	// Jobs take about 1/compactShare of all time, unless the state has filled 1/compactUrgent of its memory.
	compactShare, compactUrgent = 10, 4
)

// planOptions returns the bounds of jobs.
func (e *Engine) planOptions() state.PlanOptions {
	o := JobBounds(e.opts.Memory, e.StoreNow())
	o.Skip = e.unreadable.segment
	return o
}

// JobBounds returns the bounds of jobs at a time of the store's clock, for a broker with that memory.
func JobBounds(memory int64, now time.Time) state.PlanOptions {
	size := min(Compaction.SegmentBytes, memory/4)
	return state.PlanOptions{
		Bytes: size, Rows: min(Compaction.Rows, int(memory/rowShare)), Before: now.Add(-Compaction.TailAge).UnixMicro(),
		Group: Compaction.Group, Large: min(Compaction.Large, size/2), Skip: func(*state.Segment) bool { return false },
	}
}

// maybeCompact is called when this broker has won a slot, or has refused an append since the state is full. If a job of compaction
// is due, it does the job, concurrently with the commit loop.
func (e *Engine) maybeCompact() {
	if e.stopped.Load() != nil || e.closing.Load() || !e.compacting.CompareAndSwap(false, true) {
		return
	}
	var (
		plan  *state.Plan
		page  []state.Keyed
		loads uint64
	)
	e.View(func(s *state.State) {
		if time.Now().Before(e.nextJob) && s.Memory() <= e.opts.StateMemory/compactUrgent {
			return
		}
		if page = s.PlanPage(Compaction.PageBytes, pageShare*Compaction.PageBytes); page == nil || e.pagedLast {
			plan, loads = e.plan(s, e.planOptions()), e.loads
		}
	})
	if plan == nil && page == nil {
		e.compacting.Store(false)
		return
	}
	e.pagedLast = plan == nil // if both kinds of jobs are due, they take turns
	e.tasks.Go(func() {
		defer e.compacting.Store(false) // after nextJob is set
		e.jobBegan = time.Now()
		defer func() { e.nextJob = time.Now().Add((compactShare - 1) * time.Since(e.jobBegan)) }()
		if plan == nil {
			e.doPage(page)
			return
		}
		switch plan, added, err := e.compact(e.jobs, plan, loads); {
		case err == nil && plan == nil: // another broker has done it
			e.metrics.compactions.add(compactOvertaken)
		case err == nil:
			e.cramped.Store(false)
			e.metrics.compactions.add(compactDone)
			e.metrics.compactedBytes.Add(plan.Bytes)
			e.metrics.segmentBytes.Add(int64(added.Ref.Size))
			e.metrics.compactionSeconds.Observe(time.Since(e.jobBegan).Seconds())
			e.logger.Debug("compacted", "segment", added.Ref.Key(), "level", added.Level, "ranges", len(added.Ranges), "bytes", added.Ref.Size, "from", plan.Bytes, "took", time.Since(e.jobBegan))
		case errors.Is(err, state.ErrNonsense):
			e.metrics.compactions.add(compactOvertaken)
		case e.jobs.Err() == nil && !e.closing.Load():
			e.metrics.compactions.add(compactFailed)
			e.logFailure("could not compact records; the next commits try again", err)
			pause(e.jobs, 8)
		}
	})
}

// plan returns the job that is due, within bounds; nil if no job is due.
func (e *Engine) plan(s *state.State, o state.PlanOptions) *state.Plan {
	commits := e.opts.CheckpointCommits
	if e.cramped.Load() || e.opts.Thorough && s.DeadInTail() {
		commits = 1 // any job that makes room is due
	}
	if plan := planTail(s, o, commits, time.Duration(e.cluster.DeleteDelay), e.StoreNow()); plan != nil {
		return plan
	}
	at := partsAt{e.loads, s.PartChanges()}
	if e.merged == at {
		return nil
	}
	plan := s.PlanMerge(o)
	if plan == nil {
		e.merged = at
	}
	return plan
}

// partsAt names a version of what the state has in segments. To find out whether a merge is due costs a walk over all parts of
// all partitions: too much for each commit.
type partsAt struct{ loads, changes uint64 }

// PlanJob returns the job of compaction that is due at a time of the store's clock for an engine with [Options.Thorough] that
// writes a checkpoint every so many commits; nil if none is.
func PlanJob(s *state.State, o state.PlanOptions, checkpointCommits int, delay time.Duration, now time.Time) *state.Plan {
	if s.DeadInTail() {
		checkpointCommits = 1
	}
	if plan := planTail(s, o, checkpointCommits, delay, now); plan != nil {
		return plan
	}
	return s.PlanMerge(o)
}

// planTail returns the job that is due of those that move batches of the tail; nil if none is.
func planTail(s *state.State, o state.PlanOptions, checkpointCommits int, delay time.Duration, now time.Time) *state.Plan {
	if s.Level() < format.LevelSegments {
		return nil
	}
	o.Commits, o.Old = checkpointCommits, now.Add(-delay-Compaction.TailAge).UnixMicro()
	return s.PlanTail(o)
}

// compact takes the memory for a job, does the job, and returns what it has committed. The job that it has done, which it returns,
// may be smaller than the given one; it is nil if no job is due any longer.
func (e *Engine) compact(ctx context.Context, plan *state.Plan, loads uint64) (*state.Plan, *format.SegmentAdded, error) {
	plan, loads, release, err := e.takeJob(ctx, plan, loads)
	e.jobBegan = time.Now() // waiting for memory is no work
	if plan == nil {
		return nil, nil, err
	}
	defer release()
	added, err := e.buildSegment(withCause(ctx, format.CauseCompact), plan, loads)
	release() // a commit may wait for memory that this job has
	if err != nil {
		return plan, nil, err
	}
	return plan, added, e.Commit(ctx, &Request{Change: addSegment{added}, Synced: true})
}

// buildSegment writes the segment of a job to the store, and returns the entry that adds it to the log.
func (e *Engine) buildSegment(ctx context.Context, plan *state.Plan, loads uint64) (*format.SegmentAdded, error) {
	b := segment.NewBuilder(segment.Options{Codec: record.Zstd, BatchBytes: Compaction.BatchBytes})
	var (
		stay []format.SegmentRange
		err  error
	)
	if len(plan.Inputs) == 0 {
		stay, err = e.addTail(ctx, b, plan, loads)
	} else {
		err = e.addSegments(ctx, b, plan, loads)
	}
	if err != nil {
		return nil, err
	}
	if b.Empty() {
		return nil, errors.New("none of the oldest batches can be read")
	}
	built, err := e.storeSegment(ctx, b)
	if err != nil {
		return nil, err
	}
	added := built.Added()
	plan.Describe(added, stay)
	return added, nil
}

// storeSegment writes a segment to the store, reads it back, and checks that it has the records that went in.
func (e *Engine) storeSegment(ctx context.Context, b *segment.Builder) (*segment.Built, error) {
	built, err := b.Finish(e.cluster.ID, e.newRef(), e.opts.Wall().UnixMicro())
	if err != nil {
		return nil, err
	}
	_, ranges, err := segment.Check(built.Parts...)
	if err == nil && !slices.Equal(ranges, built.Ranges) {
		err = errors.New("it has other records than its inputs")
	}
	if err != nil {
		return nil, fmt.Errorf("check a segment before it is stored: %w", err)
	}
	return built, e.putChecked(ctx, format.CauseCompact, built.Ref.Key(), built.Parts...)
}

// putChecked writes an object to the store, and reads it back.
func (e *Engine) putChecked(ctx context.Context, cause format.Cause, key string, parts ...[]byte) error {
	size := int64(0)
	for _, p := range parts {
		size += int64(len(p))
	}
	ctx, cancel := storeContext(ctx, 2*size)
	defer cancel()
	if _, err := e.stores[cause].Create(ctx, key, parts...); err != nil && !errors.Is(err, objstore.ErrExists) {
		return err
	}
	if err := e.readBack(ctx, cause, key, size, parts); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	return nil
}

// newRef returns the key of an object that this broker is about to write.
func (e *Engine) newRef() format.DataRef {
	var id [8]byte
	rand.Read(id[:])
	return format.DataRef{Seq: e.appliedSlot(), ID: binary.LittleEndian.Uint64(id[:])}
}

// readBackBytes returns how many bytes of a segment are read back with one request.
func (e *Engine) readBackBytes() int64 { return max(e.opts.Memory/32, readWindowBytes) }

// readBack compares what the store has with what was written, in windows.
func (e *Engine) readBack(ctx context.Context, cause format.Cause, key string, size int64, rest [][]byte) error {
	var part []byte // with rest, what was not compared yet
	for off := int64(0); off < size; {
		n := min(e.readBackBytes(), size-off)
		release, err := e.budget.Hold(ctx, budget.Fetches, n)
		if err != nil {
			return err
		}
		got, err := e.stores[cause].Get(ctx, key, off, n)
		body := got.Body
		same := err == nil && got.Size == size && int64(len(body)) == n
		for same && len(body) > 0 {
			if len(part) == 0 {
				part, rest = rest[0], rest[1:]
			}
			k := min(len(part), len(body))
			same = bytes.Equal(part[:k], body[:k])
			part, body = part[k:], body[k:]
		}
		release()
		switch {
		case err != nil:
			return err
		case !same:
			return fmt.Errorf("the store has other bytes in %s than this broker has written", key)
		}
		off += n
	}
	return nil
}

func (e *Engine) appliedSlot() (applied format.Seq) {
	e.View(func(s *state.State) { applied = s.Seq() })
	return applied
}

// addSegment is the change that puts a segment in the place of its inputs.
type addSegment struct{ added *format.SegmentAdded }

// Apply implements Change.
func (x addSegment) Apply(d *state.Draft) ([]format.Entry, error) {
	if err := d.CheckSegment(x.added); err != nil {
		return nil, err
	}
	return []format.Entry{x.added}, nil
}
