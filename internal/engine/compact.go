package engine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/simple-event-broker/seb/internal/cache"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/segment"
	"github.com/simple-event-broker/seb/internal/sst"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// Compaction moves records from many small objects into segments. The state decides what a job is made of
// ([state.State.PlanTail], [state.State.PlanMerge]); the broker that wins a slot does the job if one is due. If two brokers
// do the same job, the commit of the second one is refused, and its object is of no use.

// Bounds are the bounds of compaction.
type Bounds struct {
	SegmentBytes int64 // size of the batches of a segment; at most an eighth of the memory budget
	BatchBytes   int   // size of a merged batch, uncompressed
	Rows         int   // batches that leave the tail at once
	Group        int   // segments that are merged
	// Large is the size of a range that is not merged again: it is read with few requests as it is.
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
	SegmentBytes: 64 * mib, BatchBytes: 256 << 10, Rows: 131_072, Group: 32, Large: 8 * mib, PageBytes: mib, TailAge: time.Minute,
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
	// compactReads is how many objects a job reads at once.
	compactReads = 16
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
	return state.PlanOptions{
		Bytes: min(Compaction.SegmentBytes, memory/8), Rows: Compaction.Rows, Before: now.Add(-Compaction.TailAge).UnixMicro(),
		Group: Compaction.Group, Large: Compaction.Large, Skip: func(*state.Segment) bool { return false },
	}
}

// unreadable counts how many jobs could not read a batch, or a segment, because it is missing or damaged. After
// unreadableTries jobs, the batch stays where it is, and so do all batches of the segment: they hold up nothing else.
// Only one job at a time uses it.
type unreadable struct {
	batches  map[cache.Range]int
	segments map[uint64]int
}

const unreadableTries = 3

// segment tells whether a segment is left alone.
func (u *unreadable) segment(n *state.Segment) bool { return u.segments[n.Number] >= unreadableTries }

// maybeCompact is called when this broker has won a slot, or has refused an append since the state is full. If a job of compaction is due, it does the job, concurrently with
// the commit loop.
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
			plan, loads = e.plan(s), e.loads
		}
	})
	if plan == nil && page == nil {
		e.compacting.Store(false)
		return
	}
	e.pagedLast = plan == nil // if both kinds of jobs are due, they take turns
	e.tasks.Go(func() {
		defer e.compacting.Store(false) // after nextJob is set
		begun := time.Now()
		defer func() { e.nextJob = time.Now().Add((compactShare - 1) * time.Since(begun)) }()
		if plan == nil {
			e.doPage(page)
			return
		}
		switch added, err := e.compact(e.life, plan, loads); {
		case err == nil:
			e.cramped.Store(false)
			e.metrics.compactions.add(compactDone)
			e.metrics.compactedBytes.Add(plan.Bytes)
			e.metrics.segmentBytes.Add(int64(added.Ref.Size))
			e.metrics.compactionSeconds.Observe(time.Since(begun).Seconds())
			e.logger.Debug("compacted", "segment", added.Ref.Key(), "level", added.Level, "ranges", len(added.Ranges), "bytes", added.Ref.Size, "from", plan.Bytes, "took", time.Since(begun))
		case errors.Is(err, state.ErrNonsense):
			e.metrics.compactions.add(compactOvertaken)
		case e.life.Err() == nil && !e.closing.Load():
			e.metrics.compactions.add(compactFailed)
			e.logFailure("could not compact records; the next commits try again", err, "level", plan.Level)
			pause(e.life, 8)
		}
	})
}

// plan returns the job that is due; nil if none is.
func (e *Engine) plan(s *state.State) *state.Plan {
	commits := e.opts.CheckpointCommits
	if e.cramped.Load() {
		commits = 1 // any job that makes room is due
	}
	o := e.planOptions()
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

// PlanJob returns the job of compaction that is due at a time of the store's clock, for a broker that writes a checkpoint every
// so many commits; nil if none is.
func PlanJob(s *state.State, o state.PlanOptions, checkpointCommits int, delay time.Duration, now time.Time) *state.Plan {
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

// compact does a job, and returns what it has committed.
func (e *Engine) compact(ctx context.Context, plan *state.Plan, loads uint64) (*format.SegmentAdded, error) {
	ctx = withCause(ctx, format.CauseCompact)
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
	return added, e.Commit(ctx, &Request{Change: addSegment{added}, Synced: true})
}

// addTail adds batches of the tail to a segment, and returns those that can't be read, and are to stay where they are. It reads
// object by object, in the order of the log: a commit has batches of many partitions.
func (e *Engine) addTail(ctx context.Context, b *segment.Builder, plan *state.Plan, loads uint64) (stay []format.SegmentRange, err error) {
	var batches []*state.PlannedBatch
	for r := range plan.Ranges {
		for i := range plan.Ranges[r].Batches {
			batches = append(batches, &plan.Ranges[r].Batches[i])
		}
	}
	raws, err := e.readTail(ctx, batches, loads)
	if err != nil {
		return nil, err
	}
	for _, r := range plan.Ranges {
		for i := range r.Batches {
			x := &r.Batches[i]
			raw := raws[x]
			if raw == nil {
				stay = append(stay, format.SegmentRange{Topic: r.Topic, Partition: r.Partition, Base: x.Base, End: x.End(), Stays: true})
				continue
			}
			err := b.Add(segment.Input{
				Topic: r.Topic, Partition: r.Partition, Base: x.Base, MaxTime: x.MaxTime, Raw: raw,
				Commits: []format.CommitPart{{Base: x.Base, Seq: x.Commit.Seq, Time: x.Commit.Time}},
			})
			if err != nil {
				return nil, err
			}
			delete(raws, x)
		}
	}
	return stay, nil
}

// readTail reads batches of the tail. The result has none of those that are to stay where they are.
func (e *Engine) readTail(ctx context.Context, batches []*state.PlannedBatch, loads uint64) (map[*state.PlannedBatch][]byte, error) {
	objects := map[state.Object][]*state.PlannedBatch{}
	for _, x := range batches {
		objects[x.Object] = append(objects[x.Object], x)
	}
	var (
		mu     sync.Mutex
		raws   = map[*state.PlannedBatch][]byte{}
		failed []*state.PlannedBatch // in objects that are missing or damaged
	)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(compactReads)
	for _, xs := range objects {
		g.Go(func() error {
			slices.SortFunc(xs, func(x, y *state.PlannedBatch) int { return cmp.Compare(x.Pos, y.Pos) })
			ls := make([]state.Location, len(xs))
			for i, x := range xs {
				ls[i] = x.Location
			}
			got, err := e.readAll(gctx, ls, loads)
			mu.Lock()
			defer mu.Unlock()
			if lost(err) {
				failed = append(failed, xs...)
				return nil
			}
			for i := range got {
				raws[xs[i]] = got[i]
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, x := range failed {
		got, err := e.readAll(ctx, []state.Location{x.Location}, loads)
		if err == nil {
			raws[x] = got[0]
			continue
		}
		r := rangeOf(x.Location)
		if e.unreadable.batches[r]++; !lost(err) || e.unreadable.batches[r] < unreadableTries {
			return nil, err
		}
		e.logger.Error("compaction leaves a batch where it is: it is missing or damaged", "object", objectKey(x.Object), "offset", x.Base, "err", err, "hint", "run seb fsck --deep, and restore the object")
	}
	return raws, nil
}

// readAll returns batches of one object, which lie one behind the other, from the cache or from the store. It reads them in extents.
func (e *Engine) readAll(ctx context.Context, ls []state.Location, loads uint64) ([][]byte, error) {
	raws := make([][]byte, len(ls))
	for i := range ls {
		raws[i] = e.cache.Get(rangeOf(ls[i]))
	}
	for i := 0; i < len(ls); {
		if raws[i] != nil {
			i++
			continue
		}
		n := extent(ls[i:])
		if err := e.fetchShared(ctx, ls[i:i+n], loads, raws[i:i+n]); err != nil {
			return nil, err
		}
		i += n
	}
	return raws, nil
}

// addSegments adds the batches of parts of other segments to a segment.
func (e *Engine) addSegments(ctx context.Context, b *segment.Builder, plan *state.Plan, loads uint64) error {
	tables := map[uint64]*sst.Table{} // by the numbers of segments: neighbouring partitions have rows in the same blocks
	for _, r := range plan.Ranges {
		next := r.Base
		for _, n := range r.Segments {
			var (
				rows []*format.SegmentBatch
				ls   []state.Location
			)
			damaged := func(err error) error {
				if lost(err) {
					e.unreadable.segments[n.Number]++
				}
				return err
			}
			if tables[n.Number] == nil {
				if len(tables) == compactTables {
					clear(tables)
				}
				t, err := e.table(ctx, n, loads)
				if err != nil {
					return damaged(err)
				}
				tables[n.Number] = t
			}
			for x, err := range segment.From(tables[n.Number], r.Topic, r.Partition, next) {
				if err != nil {
					return damaged(err)
				}
				if x.Base >= r.End {
					break
				}
				rows = append(rows, x)
				ls = append(ls, locationOf(state.Location{Object: state.Object{Data: true, Seq: uint64(n.Ref.Seq), Tag: n.Ref.ID, Size: n.Ref.Size}}, x))
			}
			raws, err := e.readAll(ctx, ls, loads)
			if err != nil {
				return damaged(err)
			}
			for i, x := range rows {
				if x.Base < next {
					return format.Corrupt("the segments of partition %d of topic %d overlap at offset %d", r.Partition, r.Topic, x.Base)
				}
				if err := b.Add(segment.Input{Topic: r.Topic, Partition: r.Partition, Base: x.Base, MaxTime: x.MaxTime, Raw: raws[i], Commits: x.Commits}); err != nil {
					return err
				}
				next = x.Base + format.Offset(x.Span)
			}
		}
		if next != r.End {
			return format.Corrupt("the segments of partition %d of topic %d end at offset %d instead of %d", r.Partition, r.Topic, next, r.End)
		}
	}
	return nil
}

// storeSegment writes a segment to the store, reads it back, and checks that it has the records that went in.
func (e *Engine) storeSegment(ctx context.Context, b *segment.Builder) (*segment.Built, error) {
	built, err := b.Finish(e.cluster.ID, e.newRef(), e.opts.Wall().UnixMicro())
	if err != nil {
		return nil, err
	}
	_, ranges, err := segment.Check(built.Object)
	if err == nil && !slices.Equal(ranges, built.Ranges) {
		err = errors.New("it has other records than its inputs")
	}
	if err != nil {
		return nil, fmt.Errorf("check a segment before it is stored: %w", err)
	}
	return built, e.putChecked(ctx, format.CauseCompact, built.Ref.Key(), built.Object)
}

// putChecked writes an object to the store, and reads it back.
func (e *Engine) putChecked(ctx context.Context, cause format.Cause, key string, object []byte) error {
	ctx, cancel := storeContext(ctx, 2*int64(len(object)))
	defer cancel()
	if _, err := e.stores[cause].Create(ctx, key, object); err != nil && !errors.Is(err, objstore.ErrExists) {
		return err
	}
	got, err := objstore.GetWhole(ctx, e.stores[cause], key, int64(len(object)))
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if !bytes.Equal(got.Body, object) {
		return fmt.Errorf("read back %s: the store has other bytes than this broker has written", key)
	}
	return nil
}

// newRef returns the key of an object that this broker is about to write.
func (e *Engine) newRef() format.DataRef {
	var id [8]byte
	rand.Read(id[:])
	return format.DataRef{Seq: e.appliedSlot(), ID: binary.LittleEndian.Uint64(id[:])}
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
