package restore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/offline"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/segment"
	"github.com/simple-event-broker/seb/internal/state"
)

// moveTail writes what no segment has into new ones, as compaction does. The commits of these segments are in the state alone:
// the copy's log begins after them.
func (c *copier) moveTail(ctx context.Context) error {
	s := c.state
	if s.Level() < format.LevelSegments {
		if err := c.apply(&format.LevelRaised{Level: format.LevelSegments, DeleteDelay: time.Duration(c.cluster.DeleteDelay)}); err != nil {
			return err
		}
	}
	for {
		plan := s.PlanTail(state.PlanOptions{Bytes: c.opts.Memory / 8, Rows: segmentRows, Before: math.MaxInt64, Commits: 0})
		if plan == nil {
			return nil
		}
		added, err := c.buildSegment(ctx, plan)
		if err == nil && added == nil { // none of it can be read
			err = s.LeaveTail(plan)
		} else if err == nil {
			err = c.apply(added)
		}
		if err != nil {
			return err
		}
	}
}

// apply applies entries to the state, as a commit that is not written.
func (c *copier) apply(entries ...format.Entry) error {
	return c.state.Apply(&format.Commit{Seq: c.state.Seq() + 1, Time: c.state.NextTime(0), Entries: entries})
}

// buildSegment writes a segment with batches of the tail; it returns nil if none of them can be read.
func (c *copier) buildSegment(ctx context.Context, plan *state.Plan) (*format.SegmentAdded, error) {
	raws, err := c.readBatches(ctx, plan)
	if err != nil {
		return nil, err
	}
	b := segment.NewBuilder(segment.Options{Codec: record.Zstd})
	var (
		stay  []format.SegmentRange
		moved int64
	)
	for _, r := range plan.Ranges {
		for i := range r.Batches {
			x := &r.Batches[i]
			moved += int64(x.Size)
			if raws[x] == nil {
				stay = append(stay, format.SegmentRange{Topic: r.Topic, Partition: r.Partition, Base: x.Base, End: x.End(), Stays: true})
				continue
			}
			err := b.Add(segment.Input{
				Topic: r.Topic, Partition: r.Partition, Base: x.Base, MaxTime: x.MaxTime, Raw: raws[x],
				Commits: []format.CommitPart{{Base: x.Base, Seq: x.Commit.Seq, Time: x.Commit.Time}},
			})
			if err != nil {
				return nil, err
			}
			delete(raws, x)
		}
	}
	if b.Empty() {
		c.progress(moved)
		return nil, nil //nolint:nilnil // there is no segment
	}
	var id [8]byte
	rand.Read(id[:])
	built, err := b.Finish(c.cluster.ID, format.DataRef{Seq: c.state.Seq(), ID: binary.LittleEndian.Uint64(id[:])}, time.Now().UnixMicro())
	if err != nil {
		return nil, err
	}
	if _, ranges, err := segment.Check(built.Parts...); err != nil || !slices.Equal(ranges, built.Ranges) {
		return nil, fmt.Errorf("a segment has other records than were put into it: %w", err)
	}
	added := built.Added()
	plan.Describe(added, stay)
	return added, c.putSegment(ctx, built.Ref.Key(), built.Object(), moved)
}

// readBatches reads the batches of a plan, object by object. Those that are unreadable are not in the result, if they are to be
// left out.
func (c *copier) readBatches(ctx context.Context, plan *state.Plan) (map[*state.PlannedBatch][]byte, error) {
	var (
		mu      sync.Mutex
		raws    = map[*state.PlannedBatch][]byte{}
		objects = map[state.Object][]*state.PlannedBatch{}
		names   = map[*state.PlannedBatch]string{}
	)
	for i := range plan.Ranges {
		r := &plan.Ranges[i]
		for k := range r.Batches {
			x := &r.Batches[k]
			objects[x.Object] = append(objects[x.Object], x)
			names[x] = fmt.Sprintf("offsets %d to %d of partition %d of topic %q", x.Base, x.End()-1, r.Partition, c.state.TopicByID(r.Topic).Name)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(copiesMax)
	for o, xs := range objects {
		g.Go(func() error {
			slices.SortFunc(xs, func(a, b *state.PlannedBatch) int { return cmp.Compare(a.Pos, b.Pos) })
			first, last := xs[0], xs[len(xs)-1]
			off, end := int64(first.Pos), int64(last.Pos)+int64(last.Size)
			var failed map[*state.PlannedBatch]error
			err := offline.Retry(ctx, end-off, func(ctx context.Context) error {
				failed = map[*state.PlannedBatch]error{}
				body, err := c.source.Store.Get(ctx, objectKey(o), off, end-off)
				if err == nil && int64(len(body.Body)) != end-off {
					err = fmt.Errorf("%w: it has %d bytes", format.ErrCorrupt, body.Size)
				}
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				var damaged error
				for _, x := range xs {
					at := int64(x.Pos) - off
					raw := body.Body[at : at+int64(x.Size) : at+int64(x.Size)]
					if err := record.Verify(raw, x.CRC); err != nil {
						failed[x], damaged = err, err
						continue
					}
					raws[x] = raw
				}
				return damaged
			})
			for _, x := range xs {
				if failed[x] == nil && (err == nil || raws[x] != nil) {
					continue
				}
				if err := c.skip(ctx, names[x]+" in "+objectKey(o), o, cmp.Or(failed[x], err)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return raws, g.Wait()
}
