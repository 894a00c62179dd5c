package state

import (
	"cmp"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
)

// A job of compaction makes one segment. What it is made of is decided here, from the state alone; so a broker that takes
// over goes on where another one has stopped.

// PlanOptions bound a job.
type PlanOptions struct {
	// Bytes bounds the size of the batches that go into the segment. One batch, or one part of another segment, may
	// exceed it.
	Bytes int64
	// Rows bounds the number of batches of the tail.
	Rows int
	// Before is a time of the log in microseconds: only batches that commits before it have appended leave the tail.
	Before int64
	// Commits, Old: a job takes the batches of as many commits as fit, unless these are fewer than Commits and all as young as Old, a
	// time of the log: then it is not worth its requests yet.
	Commits int
	Old     int64
	// Group is how many runs of a level are merged.
	Group int
	// Skip tells which segments are left alone: compaction could not read them.
	Skip func(n *Segment) bool
	// Large is a size in bytes: a range of a partition that has as much in one segment is not merged again.
	Large int64
}

// Plan is a job of compaction.
type Plan struct {
	// Level and Through are those of the new segment: see [format.SegmentAdded].
	Level   uint32
	Through uint64
	Slot    format.Seq
	// Inputs are the segments that the ranges are in; empty if the ranges are in the tail.
	Inputs []*Segment
	Ranges []PlannedRange // by topic, partition and offset
	Bytes  int64          // size of the batches
}

// Describe completes the entry that adds the segment of the plan. stay has ranges that are not in the segment.
func (plan *Plan) Describe(x *format.SegmentAdded, stay []format.SegmentRange) {
	x.Level, x.Through, x.Slot = plan.Level, plan.Through, plan.Slot
	for _, n := range plan.Inputs {
		x.Inputs = append(x.Inputs, n.Number)
	}
	x.Ranges = append(x.Ranges, stay...)
	slices.SortFunc(x.Ranges, func(a, b format.SegmentRange) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Base, b.Base))
	})
}

// PlannedRange is a range of offsets for a segment.
type PlannedRange struct {
	Topic     format.TopicID
	Partition format.Partition
	Base, End format.Offset
	// Batches are the batches of a range in the tail.
	Batches []PlannedBatch
	// Segments are, for other ranges, the segments that have it, in the order of offsets.
	Segments []*Segment
}

// PlannedBatch is a batch of the tail.
type PlannedBatch struct {
	Location
	MaxTime int64
}

// LevelMax is the highest level of a segment.
const LevelMax = 3

// PlanTail returns the job that moves the oldest batches of the tail into a segment of level 1; nil if the tail has none to move, or
// too few for a job.
func (s *State) PlanTail(o PlanOptions) *Plan {
	plan := &Plan{Level: 1, Slot: max(s.bottom, 1) - 1}
	rows, due := 0, false
	end := s.objects.first // the objects below it are in the plan
	for index := end; index < s.objects.next(); {
		// All objects of one commit go together.
		c := s.objects.commitOf(index, s.raised)
		next, live, size := index, 0, int64(0)
		for ; next < s.objects.next() && (next == index || s.objects.commit(next) != (format.CommitTime{}) && s.objects.commit(next) == s.objects.commit(index)); next++ {
			e := s.objects.entry(next)
			live, size = live+int(e.live), size+int64(e.size)
		}
		if c.Time >= o.Before {
			break
		}
		if rows > 0 && (rows+live > o.Rows || plan.Bytes+size > o.Bytes) {
			due = true
			break
		}
		due = due || live > 0 && c.Time < o.Old
		rows, plan.Bytes = rows+live, plan.Bytes+size
		if x := s.objects.entry(index).Object(); !x.Data || s.objects.commit(index) != (format.CommitTime{}) {
			plan.Slot = max(plan.Slot, c.Seq)
		}
		end, index = next, next
	}
	plan.Slot = max(plan.Slot, 1)
	if rows == 0 || !due && int(plan.Slot-max(s.bottom, 1))+1 < o.Commits {
		return nil
	}
	for _, t := range s.topics.oldest(s.TopicCount()) {
		for i := range t.Partitions {
			if r := s.planTailRange(t, format.Partition(i), end); len(r.Batches) > 0 {
				plan.Ranges = append(plan.Ranges, r)
			}
		}
	}
	return plan
}

// planTailRange returns the batches at the beginning of a partition's tail that are in objects below an index.
func (s *State) planTailRange(t *Topic, partition format.Partition, end uint64) PlannedRange {
	p := &t.Partitions[partition]
	r := PlannedRange{Topic: t.ID, Partition: partition, Base: p.tailBase()}
	for ci, c := range p.chunks {
		for bi, b := range c.batches {
			index := c.object + uint64(b.object)
			if index >= end {
				return r
			}
			l := s.location(p, ci, bi)
			r.Batches = append(r.Batches, PlannedBatch{l, b.maxTime})
			r.End = l.End()
		}
	}
	return r
}

// PlanMerge returns the job that merges parts of the oldest runs of a level, or that rewrites a segment of which less
// than half is live; nil if no such job is due.
func (s *State) PlanMerge(o PlanOptions) *Plan {
	for level := uint32(1); level < LevelMax; level++ {
		if inputs, through := s.group(level, o); inputs != nil {
			return s.planParts(&Plan{Level: level + 1, Through: through, Inputs: inputs}, o, o.Large)
		}
	}
	for _, n := range s.segments {
		if n.live < n.Bytes/2 && !o.Skip(n) {
			return s.planParts(&Plan{Level: n.Level, Through: n.Through, Inputs: []*Segment{n}}, o, 1<<62)
		}
	}
	return nil
}

// group returns the segments of a level that have parts to merge, and the Through of the segment that they are merged into:
// what is left of a group of which earlier jobs have merged the first partitions, and otherwise the oldest o.Group runs;
// nil if there are fewer. A run is the segments of a level with the same Through.
func (s *State) group(level uint32, o PlanOptions) (inputs []*Segment, through uint64) {
	small := s.smallParts(o.Large)
	begun := uint64(0) // the last run of a group that was begun
	for _, n := range s.segments {
		if n.Level == level+1 {
			begun = max(begun, n.Through)
		}
	}
	for _, n := range s.segments {
		if n.Level == level && small[n.Number] && !o.Skip(n) {
			inputs = append(inputs, n)
		}
	}
	slices.SortStableFunc(inputs, func(a, b *Segment) int { return cmp.Compare(a.Through, b.Through) })
	if i := slices.IndexFunc(inputs, func(n *Segment) bool { return n.Through > begun }); i > 0 {
		return inputs[:i], begun
	} else if i < 0 && len(inputs) > 0 {
		return inputs, begun
	}
	runs := 0
	for i, n := range inputs {
		if i == 0 || n.Through != inputs[i-1].Through {
			if runs == o.Group {
				return inputs[:i], inputs[i-1].Through
			}
			runs++
		}
	}
	if runs < o.Group {
		return nil, 0
	}
	return inputs, inputs[len(inputs)-1].Through
}

// smallParts returns which segments have a part smaller than large.
func (s *State) smallParts(large int64) map[uint64]bool {
	small := map[uint64]bool{}
	for _, t := range s.topics.byID {
		for i := range t.Partitions {
			for _, x := range t.Partitions[i].parts() {
				if x.segment != 0 && x.bytes < large {
					small[x.segment] = true
				}
			}
		}
	}
	return small
}

// planParts adds the parts of the inputs that are smaller than large to a plan, in the order of partitions, until the
// segment is full.
func (s *State) planParts(plan *Plan, o PlanOptions, large int64) *Plan {
	numbers := make([]uint64, 0, len(plan.Inputs))
	for _, n := range plan.Inputs {
		numbers = append(numbers, n.Number)
	}
	slices.Sort(numbers)
	slices.SortFunc(plan.Inputs, func(a, b *Segment) int { return cmp.Compare(a.Number, b.Number) })
	for _, t := range s.topics.oldest(s.TopicCount()) {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			for k, x := range p.parts() {
				if _, ok := slices.BinarySearch(numbers, x.segment); !ok || x.bytes >= large {
					continue
				}
				if len(plan.Ranges) > 0 && plan.Bytes+x.bytes > o.Bytes {
					return plan
				}
				plan.Bytes += x.bytes
				plan.addPart(t.ID, format.Partition(i), x.base, p.partEnd(k), s.segment(x.segment))
			}
		}
	}
	return plan
}

// addPart adds a part of a segment to the last range of a plan, or as a new one.
func (plan *Plan) addPart(topic format.TopicID, partition format.Partition, base, end format.Offset, n *Segment) {
	if k := len(plan.Ranges); k > 0 {
		if r := &plan.Ranges[k-1]; r.Topic == topic && r.Partition == partition && r.End == base {
			r.End, r.Segments = end, append(r.Segments, n)
			return
		}
	}
	plan.Ranges = append(plan.Ranges, PlannedRange{Topic: topic, Partition: partition, Base: base, End: end, Segments: []*Segment{n}})
}
