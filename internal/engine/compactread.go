package engine

import (
	"bytes"
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/simple-event-broker/seb/internal/cache"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/segment"
	"github.com/simple-event-broker/seb/internal/sst"
	"github.com/simple-event-broker/seb/internal/state"
)

// What compaction reads. A segment is sorted by partitions, the tail by commits: of the tail, a job reads whole objects, and has all
// of their batches in memory. Other segments are sorted as the new one is, so a job reads each of them from its beginning to its
// end, in windows.

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

// addTail adds batches of the tail to a segment, and returns those that can't be read, and are to stay where they are.
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
	next := 0
	for _, r := range plan.Ranges {
		for i := range r.Batches {
			runtime.Gosched() // what waits for a processor comes first: a job is long
			x, raw := &r.Batches[i], raws[next]
			raws[next] = nil // the builder has it
			next++
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
		}
	}
	return stay, nil
}

// readTail reads batches of the tail, object by object. Those that are to stay where they are become nil.
func (e *Engine) readTail(ctx context.Context, batches []*state.PlannedBatch, loads uint64) (raws [][]byte, err error) {
	order := make([]int32, len(batches)) // by place
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int {
		x, y := &batches[i].Location, &batches[j].Location
		return cmp.Or(cmp.Compare(x.Object.Seq, y.Object.Seq), cmp.Compare(x.Object.Tag, y.Object.Tag), cmp.Compare(x.Pos, y.Pos))
	})
	var mu sync.Mutex
	var failed []int32 // in objects that are missing or damaged
	raws = make([][]byte, len(batches))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(compactReads)
	most := e.opts.Memory / compactRoom
	room := semaphore.NewWeighted(most)
	for len(order) > 0 {
		n := slices.IndexFunc(order, func(i int32) bool { return batches[i].Object != batches[order[0]].Object })
		if n < 0 {
			n = len(order)
		}
		of := order[:n]
		order = order[n:]
		size := min(int64(batches[of[0]].Object.Size), readWindowBytes, most)
		if room.Acquire(gctx, size) != nil {
			break // a read has failed, or ctx has ended: Wait tells
		}
		g.Go(func() error {
			defer room.Release(size)
			ls := make([]state.Location, len(of))
			for k, i := range of {
				ls[k] = batches[i].Location
			}
			got, err := e.readAll(gctx, ls, loads)
			if lost(err) {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, of...)
				return nil
			}
			for k := range got {
				raws[of[k]] = got[k]
			}
			return err
		})
	}
	if err := cmp.Or(g.Wait(), ctx.Err()); err != nil {
		return nil, err
	}
	for _, i := range failed {
		x := batches[i]
		got, err := e.readAll(ctx, []state.Location{x.Location}, loads)
		if err == nil {
			raws[i] = got[0]
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
		if err := e.fetchShared(ctx, ls[i:i+n], true, loads, raws[i:i+n]); err != nil {
			return nil, err
		}
		for k := range n { // each for itself, so that the first one that the builder has is free at once
			raws[i+k] = bytes.Clone(raws[i+k])
		}
		i += n
	}
	return raws, nil
}

// addSegments adds the batches of parts of other segments to a segment.
func (e *Engine) addSegments(ctx context.Context, b *segment.Builder, plan *state.Plan, loads uint64) error {
	window := inputWindow(plan, inputs(plan))
	open := map[uint64]*jobInput{} // by the numbers of segments: neighbouring partitions are in the same blocks and windows
	for _, r := range plan.Ranges {
		next := r.Base
		for _, n := range r.Segments {
			if open[n.Number] == nil {
				if len(open) == compactTables {
					clear(open)
				}
				open[n.Number] = &jobInput{e: e, n: n, loads: loads, window: window}
			}
			in := open[n.Number]
			for x, err := range in.batches(ctx, r.Topic, r.Partition, next) {
				runtime.Gosched() // as for the tail
				var raw []byte
				if err == nil {
					if x.Base >= r.End {
						break
					}
					raw, err = in.raw(ctx, x)
				}
				if err != nil {
					if lost(err) {
						e.unreadable.segments[n.Number]++
					}
					return err
				}
				if x.Base < next {
					return format.Corrupt("the segments of partition %d of topic %d overlap at offset %d", r.Partition, r.Topic, x.Base)
				}
				if err := b.Add(segment.Input{Topic: r.Topic, Partition: r.Partition, Base: x.Base, MaxTime: x.MaxTime, Raw: raw, Commits: x.Commits}); err != nil {
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

// jobInput is a segment that a job reads, from its beginning to its end.
type jobInput struct {
	e      *Engine
	n      *state.Segment
	loads  uint64
	window int64 // bytes that it reads at once
	table  *sst.Table
	off    int64 // place in the segment of what was read last
	body   []byte
}

// batches iterates over the batches of a partition, from an offset on.
func (in *jobInput) batches(ctx context.Context, topic format.TopicID, partition format.Partition, from format.Offset) func(func(*format.SegmentBatch, error) bool) {
	return func(yield func(*format.SegmentBatch, error) bool) {
		if in.table == nil {
			t, err := in.e.table(ctx, in.n, in.loads)
			if err != nil {
				yield(nil, err)
				return
			}
			in.table = t
		}
		segment.From(in.table, topic, partition, from)(yield)
	}
}

// raw returns a batch. It is valid until the next call.
func (in *jobInput) raw(ctx context.Context, x *format.SegmentBatch) ([]byte, error) {
	object := state.Object{Data: true, Seq: uint64(in.n.Ref.Seq), Tag: in.n.Ref.ID, Size: in.n.Ref.Size}
	if raw := in.e.cache.Get(rangeOf(locationOf(state.Location{Object: object}, x))); raw != nil {
		return raw, nil
	}
	pos, size := int64(x.Pos), int64(x.Size)
	if pos < in.off || pos+size > in.off+int64(len(in.body)) {
		in.body = nil
		n := max(size, min(in.window, int64(in.n.Table.Pos)-pos))
		err := in.e.readObject(ctx, object, pos, n, in.loads, func(body []byte) error {
			in.off, in.body = pos, body
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	raw := in.body[pos-in.off : pos-in.off+size]
	if err := record.Verify(raw, x.CRC); err != nil {
		in.body = nil // another try reads it again
		return nil, err
	}
	return raw, nil
}
